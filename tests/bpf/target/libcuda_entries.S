# SPDX-License-Identifier: Apache-2.0
# Exported functions that begin as the real libcuda's do (compare, jump) and go on in libcuda_bodies.c.
# Two begin otherwise, for the other rows of the placement rule. The marks begin with a five-byte nop.

#define ENTRY(name) .globl name; .type name, %function; .p2align 4; name: \
	cmpl $0x321cba00, entry_flag(%rip); je 1f; 1: jmp body_##name; .size name, . - name
#define STEPPED_ENTRY(name) .globl name; .type name, %function; .p2align 4; name: \
	mov %rdi, %rdi; jmp body_##name; .size name, . - name
#define PUSH_ENTRY(name) .globl name; .type name, %function; .p2align 4; name: \
	push %rbp; pop %rbp; jmp body_##name; .size name, . - name

	.text
	ENTRY(cuLaunchKernel)
	ENTRY(cuLaunchKernel_ptsz)
	ENTRY(cuLaunchKernelEx)
	ENTRY(cuGraphLaunch)
	ENTRY(cuMemAlloc_v2)
	ENTRY(cuMemAllocPitch_v2)
	ENTRY(cuMemFree_v2)
	ENTRY(cuMemcpyHtoD_v2)
	ENTRY(cuMemsetD32_v2)
	ENTRY(cuStreamSynchronize)
	STEPPED_ENTRY(cuEventSynchronize)
	PUSH_ENTRY(cuCtxSynchronize)
	ENTRY(cuDevicePrimaryCtxRetain)
	ENTRY(cuCtxSetCurrent)
	ENTRY(cuCtxPushCurrent_v2)
	ENTRY(cuCtxPopCurrent_v2)
	ENTRY(cuDeviceGetUuid_v2)
	ENTRY(cuModuleGetFunction)
	ENTRY(cuLibraryGetKernel)
	ENTRY(cuKernelGetFunction)
	ENTRY(cuStreamCreateWithPriority)
	ENTRY(cuMemcpyDtoH_v2)

	.data
	.p2align 2
entry_flag:
	.long 0
	.section .note.GNU-stack, "", %progbits
