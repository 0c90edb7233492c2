// SPDX-License-Identifier: Apache-2.0
/*
 * Simulated libcudart: the runtime's calls that go on to the driver, by the driver's exported names. Each entry point
 * begins with `push %rbp`, as the real ones do. A thread starts on device 0; its context is set at its first call.
 */
#include <stddef.h>
#include <stdint.h>

typedef int cudaError_t;
typedef uint64_t CUdeviceptr;

struct dim3 {
	unsigned x, y, z;
};

int cuInit(unsigned);
int cuDeviceGetCount(int *);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuCtxSynchronize(void);
int cuLaunchKernel(const void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
		   void **);
int cuMemAlloc_v2(CUdeviceptr *, size_t);
int cuMemFree_v2(CUdeviceptr);
int cuMemAllocAsync(CUdeviceptr *, size_t, void *);
int cuMemFreeAsync(CUdeviceptr, void *);
int cuMemcpyHtoDAsync_v2(CUdeviceptr, const void *, size_t, void *);
int cuMemcpyDtoHAsync_v2(void *, CUdeviceptr, size_t, void *);
int cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, size_t, void *);
int cuStreamCreate(void **, unsigned);
int cuStreamSynchronize(void *);

enum { CUDA_ERROR_INVALID_VALUE = 1 };
enum { COPY_HOST_TO_DEVICE = 1, COPY_DEVICE_TO_HOST = 2, COPY_DEVICE_TO_DEVICE = 3 }; /* cudaMemcpyKind */

static __thread int device;
static __thread int is_ready;

#define TRY(call)                          \
	do {                               \
		int result_ = (call);      \
		if (result_)               \
			return result_;    \
	} while (0)

static cudaError_t prepare(void)
{
	void *context;

	if (is_ready)
		return 0;
	TRY(cuInit(0));
	TRY(cuDevicePrimaryCtxRetain(&context, device));
	TRY(cuCtxSetCurrent(context));
	is_ready = 1;
	return 0;
}

#if defined(__x86_64__)
#define ENTRY_BODY(name) "\tpush %rbp\n\tmov %rsp, %rbp\n\tpop %rbp\n\tjmp sim_" name "\n"
#else
#define ENTRY_BODY(name) "\tnop\n\tb sim_" name "\n"
#endif
#define ENTRY(name)                                                                                  \
	__asm__(".text\n\t.p2align 4\n\t.globl " #name "\n\t.type " #name ", %function\n" #name ":\n" \
		ENTRY_BODY(#name) "\t.size " #name ", .-" #name "\n");
#define RUNTIME(name) \
	ENTRY(name)   \
	__attribute__((visibility("hidden"), used)) cudaError_t sim_##name

RUNTIME(cudaRuntimeGetVersion)(int *version)
{
	*version = 12040;
	return 0;
}

RUNTIME(cudaGetDeviceCount)(int *count)
{
	TRY(cuInit(0));
	return cuDeviceGetCount(count);
}

RUNTIME(cudaSetDevice)(int ordinal)
{
	device = ordinal;
	is_ready = 0;
	return prepare();
}

RUNTIME(cudaGetDevice)(int *ordinal)
{
	*ordinal = device;
	return 0;
}

RUNTIME(cudaLaunchKernel)(const void *function, struct dim3 grid, struct dim3 block, void **arguments,
			  size_t shared_bytes, void *stream)
{
	TRY(prepare());
	return cuLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z, (unsigned)shared_bytes,
			      stream, arguments, NULL);
}

RUNTIME(cudaMalloc)(CUdeviceptr *address, size_t bytes)
{
	TRY(prepare());
	return cuMemAlloc_v2(address, bytes);
}

RUNTIME(cudaFree)(CUdeviceptr address)
{
	TRY(prepare());
	return cuMemFree_v2(address);
}

RUNTIME(cudaMallocAsync)(CUdeviceptr *address, size_t bytes, void *stream)
{
	TRY(prepare());
	return cuMemAllocAsync(address, bytes, stream);
}

RUNTIME(cudaFreeAsync)(CUdeviceptr address, void *stream)
{
	TRY(prepare());
	return cuMemFreeAsync(address, stream);
}

static cudaError_t copy(uintptr_t destination, uintptr_t source, size_t bytes, int kind, void *stream)
{
	TRY(prepare());
	if (kind == COPY_HOST_TO_DEVICE)
		return cuMemcpyHtoDAsync_v2(destination, (const void *)source, bytes, stream);
	if (kind == COPY_DEVICE_TO_HOST)
		return cuMemcpyDtoHAsync_v2((void *)destination, source, bytes, stream);
	if (kind == COPY_DEVICE_TO_DEVICE)
		return cuMemcpyDtoDAsync_v2(destination, source, bytes, stream);
	return CUDA_ERROR_INVALID_VALUE;
}

RUNTIME(cudaMemcpyAsync)(uintptr_t destination, uintptr_t source, size_t bytes, int kind, void *stream)
{
	return copy(destination, source, bytes, kind, stream);
}

RUNTIME(cudaMemcpy)(uintptr_t destination, uintptr_t source, size_t bytes, int kind)
{
	TRY(copy(destination, source, bytes, kind, NULL));
	return cuStreamSynchronize(NULL);
}

RUNTIME(cudaStreamCreateWithFlags)(void **stream, unsigned flags)
{
	TRY(prepare());
	return cuStreamCreate(stream, flags);
}

RUNTIME(cudaStreamSynchronize)(void *stream)
{
	TRY(prepare());
	return cuStreamSynchronize(stream);
}

RUNTIME(cudaDeviceSynchronize)(void)
{
	TRY(prepare());
	return cuCtxSynchronize();
}
