# SPDX-License-Identifier: Apache-2.0
"""What an attacher finds in the stub libraries: names, sonames, first bytes."""

from __future__ import annotations

import platform
import re

import pytest
from elftools.elf.elffile import ELFFile

from hotstage.simhost import build

CUDA_FUNCTIONS = re.findall(r"X\((cu\w+)\)", (build.STUBS / "cuda_functions.h").read_text())
OBSERVED = """
cuInit cuDeviceGetUuid_v2 cuDevicePrimaryCtxRetain cuCtxSetCurrent cuCtxPushCurrent_v2
cuCtxPopCurrent_v2 cuLaunchKernel cuLaunchKernel_ptsz cuLaunchKernelEx cuLaunchCooperativeKernel cuGraphLaunch
cuGraphInstantiateWithFlags cuMemAlloc_v2 cuMemFree_v2 cuMemAllocAsync cuMemFreeAsync cuMemAllocManaged
cuMemHostAlloc cuMemFreeHost cuMemcpyHtoD_v2 cuMemcpyDtoH_v2 cuMemcpyDtoD_v2 cuMemcpyHtoDAsync_v2
cuMemcpyDtoHAsync_v2 cuMemsetD8_v2 cuMemsetD8Async cuMemGetInfo_v2 cuStreamCreate cuStreamDestroy_v2
cuStreamSynchronize cuStreamWaitEvent cuEventCreate cuEventRecord cuEventSynchronize cuCtxSynchronize
cuGetProcAddress_v2 cuGetErrorString
"""
COMPARE_AND_JUMP = re.compile(rb"\x81\x3d....\x00\xba\x1c\x32\x74.", re.DOTALL)


@pytest.fixture(scope="module")
def stubs(tmp_path_factory):
    return build.lay_out(tmp_path_factory.mktemp("stubs"))


def exports(elf):
    return {
        symbol.name: symbol["st_value"]
        for symbol in elf.get_section_by_name(".dynsym").iter_symbols()
        if symbol["st_shndx"] != "SHN_UNDEF" and symbol["st_info"]["type"] == "STT_FUNC"
    }


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the compare-and-jump is x86-64's")
def test_every_driver_function_begins_with_the_compare_and_the_jump(stubs):
    with stubs.libcuda.open("rb") as file:
        elf = ELFFile(file)
        found = exports(elf)
        assert set(found) == set(CUDA_FUNCTIONS)
        for name, address in found.items():
            (offset,) = elf.address_offsets(address, 12)
            file.seek(offset)
            assert COMPARE_AND_JUMP.fullmatch(file.read(12)), name


@pytest.mark.parametrize(
    ("library", "soname"),
    [
        ("libcuda", "libcuda.so.1"),
        ("libcudart", "libcudart.so.12"),
        ("libnccl", "libnccl.so.2"),
        ("libnvidia_ml", "libnvidia-ml.so.1"),
    ],
)
def test_libraries_have_the_real_sonames(stubs, library, soname):
    with getattr(stubs, library).open("rb") as file:
        elf = ELFFile(file)
        tags = {tag.entry.d_tag: tag for tag in elf.get_section_by_name(".dynamic").iter_tags()}
        assert tags["DT_SONAME"].soname == soname
        assert elf.get_section_by_name(".note.gnu.build-id") is not None


def test_the_catalogue_of_an_observer_is_there():
    assert not set(OBSERVED.split()) - set(CUDA_FUNCTIONS)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the push is x86-64's")
def test_every_runtime_function_begins_with_a_push_under_the_librarys_version(stubs):
    with stubs.libcudart.open("rb") as file:
        elf = ELFFile(file)
        found = exports(elf)
        assert {"cudaLaunchKernel", "cudaMalloc", "cudaMemcpyAsync", "cudaStreamSynchronize"} <= set(found)
        for name, address in found.items():
            (offset,) = elf.address_offsets(address, 1)
            file.seek(offset)
            assert file.read(1) == b"\x55", name
        versions = elf.get_section_by_name(".gnu.version_d").iter_versions()
        assert "libcudart.so.12" in {name.name for _, names in versions for name in names}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the push is x86-64's")
def test_every_collective_begins_with_a_push_and_has_its_other_name_at_the_same_address(stubs):
    with stubs.libnccl.open("rb") as file:
        elf = ELFFile(file)
        found = exports(elf)
        assert {"ncclAllReduce", "ncclCommInitRank", "ncclGroupEnd"} <= set(found)
        for name, address in found.items():
            assert found.get(f"p{name}", address) == address
            (offset,) = elf.address_offsets(address, 1)
            file.seek(offset)
            assert file.read(1) == b"\x55", name
