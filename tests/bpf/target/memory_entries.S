# SPDX-License-Identifier: Apache-2.0
# Exported functions that begin as the real libcuda's do (compare, jump) and go on in memory_bodies.c.

#define ENTRY(name) .globl name; .type name, %function; .p2align 4; name: \
	cmpl $0x321cba00, entry_flag(%rip); je 1f; 1: jmp body_##name; .size name, . - name

	.text
	ENTRY(cuDevicePrimaryCtxRetain)
	ENTRY(cuDevicePrimaryCtxRelease_v2)
	ENTRY(cuDevicePrimaryCtxReset_v2)
	ENTRY(cuCtxCreate_v2)
	ENTRY(cuCtxDestroy_v2)
	ENTRY(cuCtxSetCurrent)
	ENTRY(cuDeviceGetUuid_v2)
	ENTRY(cuMemAlloc_v2)
	ENTRY(cuMemAllocPitch_v2)
	ENTRY(cuMemAllocManaged)
	ENTRY(cuMemAllocAsync)
	ENTRY(cuMemAllocFromPoolAsync)
	ENTRY(cuMemFree_v2)
	ENTRY(cuMemFreeAsync)
	ENTRY(cuMemHostAlloc)
	ENTRY(cuMemFreeHost)
	ENTRY(cuMemCreate)
	ENTRY(cuMemRelease)
	ENTRY(cuMemAddressReserve)
	ENTRY(cuMemAddressFree)
	ENTRY(cuMemMap)
	ENTRY(cuMemUnmap)
	ENTRY(cuMemRetainAllocationHandle)
	ENTRY(cuMemPoolGetAttribute)
	ENTRY(cuArrayCreate_v2)
	ENTRY(cuArray3DCreate_v2)
	ENTRY(cuMipmappedArrayCreate)
	ENTRY(cuArrayDestroy)
	ENTRY(cuMipmappedArrayDestroy)
	ENTRY(cuIpcOpenMemHandle_v2)
	ENTRY(cuIpcCloseMemHandle)
	ENTRY(cuMemPoolImportPointer)
	ENTRY(cuExternalMemoryGetMappedBuffer)
	ENTRY(cuMulticastCreate)
	ENTRY(cuGraphAddMemAllocNode)
	ENTRY(cuGraphAddNode)
	ENTRY(cuGraphAddNode_v2)
	ENTRY(cuDeviceGetGraphMemAttribute)
	ENTRY(cuDeviceGraphMemTrim)
	ENTRY(cuMemPoolTrimTo)
	ENTRY(cuMemPoolDestroy)
	ENTRY(cuStreamBeginCapture_v2)
	ENTRY(cuStreamEndCapture)

	.data
	.p2align 2
entry_flag:
	.long 0
	.section .note.GNU-stack, "", %progbits
