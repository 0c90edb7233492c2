// SPDX-License-Identifier: Apache-2.0
/*
 * Every function that the simulated libcuda exports, by its real name. One line here gives the entry point, the
 * truth counter and the answer of cuGetProcAddress.
 */
#ifndef HOTSTAGE_SIMHOST_CUDA_FUNCTIONS_H
#define HOTSTAGE_SIMHOST_CUDA_FUNCTIONS_H

#define CUDA_FUNCTIONS(X)            \
	X(cuInit)                    \
	X(cuDriverGetVersion)        \
	X(cuGetErrorString)          \
	X(cuGetErrorName)            \
	X(cuGetProcAddress)          \
	X(cuGetProcAddress_v2)       \
	X(cuDeviceGetCount)          \
	X(cuDeviceGet)               \
	X(cuDeviceGetName)           \
	X(cuDeviceGetUuid)           \
	X(cuDeviceGetUuid_v2)        \
	X(cuDeviceGetPCIBusId)       \
	X(cuDeviceGetAttribute)      \
	X(cuDeviceTotalMem_v2)       \
	X(cuDevicePrimaryCtxRetain)  \
	X(cuDevicePrimaryCtxRelease_v2) \
	X(cuCtxCreate_v2)            \
	X(cuCtxSetCurrent)           \
	X(cuCtxGetCurrent)           \
	X(cuCtxGetDevice)            \
	X(cuCtxPushCurrent_v2)       \
	X(cuCtxPopCurrent_v2)        \
	X(cuCtxSynchronize)          \
	X(cuModuleLoadData)          \
	X(cuModuleGetFunction)       \
	X(cuStreamCreate)            \
	X(cuStreamCreateWithPriority) \
	X(cuStreamDestroy_v2)        \
	X(cuStreamSynchronize)       \
	X(cuStreamSynchronize_ptsz)  \
	X(cuStreamQuery)             \
	X(cuStreamWaitEvent)         \
	X(cuStreamWaitEvent_ptsz)    \
	X(cuStreamBeginCapture_v2)   \
	X(cuStreamEndCapture)        \
	X(cuEventCreate)             \
	X(cuEventDestroy_v2)         \
	X(cuEventRecord)             \
	X(cuEventRecord_ptsz)        \
	X(cuEventQuery)              \
	X(cuEventSynchronize)        \
	X(cuEventElapsedTime)        \
	X(cuLaunchKernel)            \
	X(cuLaunchKernel_ptsz)       \
	X(cuLaunchKernelEx)          \
	X(cuLaunchKernelEx_ptsz)     \
	X(cuLaunchCooperativeKernel) \
	X(cuLaunchCooperativeKernel_ptsz) \
	X(cuGraphInstantiateWithFlags) \
	X(cuGraphInstantiateWithParams) \
	X(cuGraphLaunch)             \
	X(cuGraphLaunch_ptsz)        \
	X(cuGraphExecDestroy)        \
	X(cuGraphDestroy)            \
	X(cuMemGetInfo_v2)           \
	X(cuMemAlloc_v2)             \
	X(cuMemAllocPitch_v2)        \
	X(cuMemAllocManaged)         \
	X(cuMemAllocAsync)           \
	X(cuMemAllocAsync_ptsz)      \
	X(cuMemAllocFromPoolAsync)   \
	X(cuMemFree_v2)              \
	X(cuMemFreeAsync)            \
	X(cuMemFreeAsync_ptsz)       \
	X(cuMemHostAlloc)            \
	X(cuMemAllocHost_v2)         \
	X(cuMemFreeHost)             \
	X(cuMemCreate)               \
	X(cuMemRelease)              \
	X(cuMemMap)                  \
	X(cuMemUnmap)                \
	X(cuMemAddressReserve)       \
	X(cuMemAddressFree)          \
	X(cuMemcpy)                  \
	X(cuMemcpyAsync)             \
	X(cuMemcpyPeerAsync)         \
	X(cuMemcpyHtoD_v2)           \
	X(cuMemcpyDtoH_v2)           \
	X(cuMemcpyDtoD_v2)           \
	X(cuMemcpyHtoDAsync_v2)      \
	X(cuMemcpyDtoHAsync_v2)      \
	X(cuMemcpyDtoDAsync_v2)      \
	X(cuMemsetD8_v2)             \
	X(cuMemsetD8Async)           \
	X(cuMemsetD32_v2)            \
	X(cuMemsetD32Async)

#endif
