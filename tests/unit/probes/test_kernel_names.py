# SPDX-License-Identifier: Apache-2.0
"""Names of kernels as people read them; the mangled ones are of public projects, or hostile."""

from __future__ import annotations

import random
import time

import pytest

from hotstage.probes.kernel_names import LIMIT, short_name

NAMES = {
    "triton_poi_fused_add_0": "triton_poi_fused_add_0",
    "_attn_fwd": "_attn_fwd",
    "_Z9vectorAddPKfS0_Pfi": "vectorAdd",
    "_ZL11block_scalePfi": "block_scale",
    # PyTorch
    (
        "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_"
    ): "native::vectorized_elementwise_kernel<CUDAFunctor_add, …>",
    (
        "_ZN2at6native29vectorized_elementwise_kernelILi4EZZZNS0_24clamp_scalar_kernel_cudaERNS_18TensorI"
        "teratorBaseEN3c106ScalarES5_ENKUlvE_clEvENKUlvE0_clEvEUlfE_St5arrayIPcLm2EEEEviT0_T1_"
    ): "native::vectorized_elementwise_kernel<clamp_scalar_kernel_cuda, …>",
    (
        "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfNS0_7MeanOpsIfffffEEjfLi4EEEEEvT1_"
    ): "native::reduce_kernel<ReduceOp, …>",
    (
        "_ZN2at6native45_GLOBAL__N__2c1b8d6f_7_Copy_cu_0e6a2b5e_1234513copy_kernel_vILi4EEEvPKfPf"
    ): "native::copy_kernel_v<…>",
    # flash attention
    (
        "_ZN5flash24flash_fwd_splitkv_kernelI23Flash_fwd_kernel_traitsILi128ELi64ELi128ELi4ELb0ELb0EN7cut"
        "lass10bfloat16_tE19Flash_kernel_traitsILi128ELi64ELi128ELi4ES3_EELb0ELb0ELb0ELb0ELb1ELb0ELb0EEEv"
        "NS_16Flash_fwd_paramsE"
    ): "flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits, …>",
    # cutlass
    (
        "_ZN7cutlass7Kernel2I64cutlass_80_tensorop_f16_s16816gemm_relu_f16_64x64_32x6_tn_align8EEvNT_6ParamsE"
    ): "cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_relu_f16_64x64_32x6_tn_align8, …>",
    (
        "_ZN7cutlass13device_kernelINS_4gemm6kernel13GemmUniversalIN4cute5tupleIJiiiiEEENS1_10collective1"
        "3CollectiveMmaINS1_34MainloopSm90TmaGmmaWarpSpecializedILi7ENS5_IJNS4_1CILi2EEENSA_ILi1EEESC_EEE"
    ): "cutlass::device_kernel<GemmUniversal, …>",
    # vLLM
    "_ZN4vllm15rms_norm_kernelIN3c108BFloat16EEEvPT_PKS3_S6_fii": "vllm::rms_norm_kernel<BFloat16, …>",
    (
        "_ZN4vllm25paged_attention_v2_kernelIttLi128ELi16ELi128ELNS_18Fp8KVCacheDataTypeE0ELb0ELi512EEEvP"
        "fS2_PT_"
    ): "vllm::paged_attention_v2_kernel<…>",
}


@pytest.mark.parametrize("mangled", NAMES, ids=lambda name: name[:48])
def test_what_is_read_of_a_kernel(mangled: str) -> None:
    assert short_name(mangled.encode()) == NAMES[mangled]


@pytest.mark.parametrize("length", range(0, 200, 7))
def test_a_name_that_is_cut_short_still_has_what_was_read(length: int) -> None:
    mangled = next(name for name in NAMES if "splitkv" in name).encode()
    shown = short_name(mangled[: 40 + length])
    assert shown.startswith("flash::flash_fwd_splitkv_kernel<Fl") and shown.endswith(", …>")


@pytest.mark.parametrize(
    "hostile",
    [
        b"",
        b"_Z",
        b"_ZN",
        b"_ZNE",
        b"_Z999999999999x",
        b"_ZN1a" + b"I" * 230,
        b"_Z1aI" + b"N1bI" * 60,
        b"_Z1aI" + b"P" * 230,
        b"_Z1aI" + b"Z" * 230,
        b"_Z1aI" + b"F" * 230,
        b"_Z1aI" + b"M" * 230,
        b"_Z1aIDpDpDp",
        b"\x1b[2J\xff\xfe\r\n",
        b"a\0hidden",
        b"k" * 240,
    ],
    ids=lambda name: repr(name[:12]),
)
def test_a_hostile_name_is_bounded_and_printable(hostile: bytes) -> None:
    shown = short_name(hostile)
    assert len(shown) <= LIMIT and shown.isprintable() and "hidden" not in shown


def test_nonsense_is_read_in_a_moment_and_never_raises() -> None:
    rng = random.Random(5)
    names = [
        b"_Z" + bytes(rng.choice(b"NIELSTZ_PKRJDFM0123456789abstiv") for _ in range(238)) for _ in range(2000)
    ]
    began = time.process_time()
    assert all(len(short_name(name)) <= LIMIT for name in names)
    assert time.process_time() - began < 4
