# SPDX-License-Identifier: Apache-2.0
"""The numbers taken from NVTX's public headers, against those headers; a C program that contains them."""

from __future__ import annotations

import os
import subprocess
from importlib import metadata
from pathlib import Path

import pytest
from tests.unit.marks.conftest import PACKAGE

from hotstage_marks.nvtx import VARIABLE

NUMBERS = {
    "ABI_EXPORT_TABLE_CALLBACKS": "NVTX_ETID_CALLBACKS",
    "ABI_MODULE_CORE": "NVTX_CB_MODULE_CORE",
    "ABI_MODULE_CORE2": "NVTX_CB_MODULE_CORE2",
    "ABI_RANGE_START_EX": "NVTX_CBID_CORE_RangeStartEx",
    "ABI_RANGE_START_A": "NVTX_CBID_CORE_RangeStartA",
    "ABI_RANGE_START_W": "NVTX_CBID_CORE_RangeStartW",
    "ABI_RANGE_END": "NVTX_CBID_CORE_RangeEnd",
    "ABI_RANGE_PUSH_EX": "NVTX_CBID_CORE_RangePushEx",
    "ABI_RANGE_PUSH_A": "NVTX_CBID_CORE_RangePushA",
    "ABI_RANGE_PUSH_W": "NVTX_CBID_CORE_RangePushW",
    "ABI_RANGE_POP": "NVTX_CBID_CORE_RangePop",
    "ABI_DOMAIN_RANGE_START_EX": "NVTX_CBID_CORE2_DomainRangeStartEx",
    "ABI_DOMAIN_RANGE_END": "NVTX_CBID_CORE2_DomainRangeEnd",
    "ABI_DOMAIN_RANGE_PUSH_EX": "NVTX_CBID_CORE2_DomainRangePushEx",
    "ABI_DOMAIN_RANGE_POP": "NVTX_CBID_CORE2_DomainRangePop",
    "ABI_DOMAIN_REGISTER_STRING_A": "NVTX_CBID_CORE2_DomainRegisterStringA",
    "ABI_DOMAIN_REGISTER_STRING_W": "NVTX_CBID_CORE2_DomainRegisterStringW",
    "ABI_DOMAIN_CREATE_A": "NVTX_CBID_CORE2_DomainCreateA",
    "ABI_DOMAIN_CREATE_W": "NVTX_CBID_CORE2_DomainCreateW",
    "ABI_MESSAGE_ASCII": "NVTX_MESSAGE_TYPE_ASCII",
    "ABI_MESSAGE_UNICODE": "NVTX_MESSAGE_TYPE_UNICODE",
    "ABI_MESSAGE_REGISTERED": "NVTX_MESSAGE_TYPE_REGISTERED",
    "ABI_NO_PUSH_POP_TRACKING": "NVTX_NO_PUSH_POP_TRACKING",
    "sizeof(struct abi_event)": "sizeof(nvtxEventAttributes_t)",
    "offsetof(struct abi_event, size)": "offsetof(nvtxEventAttributes_t, size)",
    "offsetof(struct abi_event, message_type)": "offsetof(nvtxEventAttributes_t, messageType)",
    "offsetof(struct abi_event, message)": "offsetof(nvtxEventAttributes_t, message)",
    "sizeof(struct abi_callbacks)": "sizeof(NvtxExportTableCallbacks)",
    "offsetof(struct abi_callbacks, module_table)": (
        "offsetof(NvtxExportTableCallbacks, GetModuleFunctionTable)"
    ),
}


@pytest.fixture(scope="module")
def headers() -> Path:
    """The folder with nvtx3/, of the vendor's own wheel."""
    files = metadata.files("nvidia-nvtx") or []
    (header,) = (file for file in files if file.name == "nvToolsExt.h")
    return Path(str(header.locate())).resolve().parents[1]


def test_every_number_is_the_vendors(headers: Path, tmp_path: Path):
    source = tmp_path / "compare.c"
    source.write_text(
        '#include <nvtx3/nvToolsExt.h>\n#include "nvtx/abi.h"\n'
        + "".join(f'_Static_assert(({ours}) == ({theirs}), "{ours}");\n' for ours, theirs in NUMBERS.items())
    )
    done = subprocess.run(
        ["gcc", "-fsyntax-only", f"-I{headers}", f"-I{PACKAGE / 'native'}", source],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_number_of_the_header_is_compared():
    written = (PACKAGE / "native/nvtx/abi.h").read_text()
    named = {word.strip("(),") for word in written.split() if word.startswith("ABI_")}
    assert named - set(NUMBERS) == set()


def test_a_c_program_with_the_vendors_headers_lives_through_a_crowd(
    headers: Path, tmp_path: Path, recording_folder: Path
):
    source, crowd = Path(__file__).with_name("crowd.c"), tmp_path / "crowd"
    subprocess.run(["gcc", "-O1", f"-I{headers}", source, "-o", crowd, "-pthread", "-ldl"], check=True)
    environment = {**os.environ, VARIABLE: str(recording_folder / "libhotstage_nvtx.so")}
    done = subprocess.run([crowd], env=environment, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
