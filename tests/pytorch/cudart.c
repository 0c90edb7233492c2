// SPDX-License-Identifier: Apache-2.0
/*
 * A libcudart.so.13 on top of the simulated libcuda, as far as PyTorch's allocator, streams, copies and launches need
 * it. It is compiled when the tests run; what else the real one exports is generated then and answers 0
 * (tests/pytorch/simulated.py). Device memory is an address and nothing more, so no kernel computes anything.
 *
 * Constants and offsets are those of CUDA 13's driver_types.h and cuda_runtime_api.h.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUNTIME_VERSION 13000

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_DEVICE = 101, NOT_READY = 600 };
enum { HOST_TO_DEVICE = 1, DEVICE_TO_HOST = 2, DEVICE_TO_DEVICE = 3 }; /* cudaMemcpyKind */
enum { MEMORY_UNREGISTERED = 0, MEMORY_DEVICE = 2 };		       /* cudaMemoryType */

/* Where the simulated libcuda has its memory, a range a device. */
#define RANGE_BASE 0x700000000000ULL
#define RANGE_BITS 40

struct dim3 {
	unsigned x, y, z;
};

int cuInit(unsigned);
int cuDriverGetVersion(int *);
int cuDeviceGetCount(int *);
int cuDeviceGetName(char *, int, int);
int cuDeviceGetUuid_v2(unsigned char *, int);
int cuDeviceGetPCIBusId(char *, int, int);
int cuDeviceTotalMem_v2(size_t *, int);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuCtxSynchronize(void);
int cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);
int cuLaunchKernel(const void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
		   void **);
int cuLaunchKernelEx(const void *, const void *, void **, void **);
int cuLaunchCooperativeKernel(const void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
			      void **);
int cuMemGetInfo_v2(size_t *, size_t *);
int cuMemAlloc_v2(uint64_t *, size_t);
int cuMemFree_v2(uint64_t);
int cuMemHostAlloc(void **, size_t, unsigned);
int cuMemFreeHost(void *);
int cuMemcpyHtoDAsync_v2(uint64_t, const void *, size_t, void *);
int cuMemcpyDtoHAsync_v2(void *, uint64_t, size_t, void *);
int cuMemcpyDtoDAsync_v2(uint64_t, uint64_t, size_t, void *);
int cuMemsetD8Async(uint64_t, unsigned char, size_t, void *);
int cuStreamCreateWithPriority(void **, unsigned, int);
int cuStreamDestroy_v2(void *);
int cuStreamSynchronize(void *);
int cuStreamQuery(void *);
int cuStreamWaitEvent(void *, void *, unsigned);
int cuEventCreate(void **, unsigned);
int cuEventDestroy_v2(void *);
int cuEventRecord(void *, void *);
int cuEventQuery(void *);
int cuEventSynchronize(void *);
int cuEventElapsedTime(float *, void *, void *);

static __thread int device, is_ready, last_error;

static int keep(int error)
{
	if (error && error != NOT_READY)
		last_error = error;
	return error;
}

static int make_ready(void)
{
	void *context;
	int error;

	if (is_ready)
		return SUCCESS;
	error = cuInit(0);
	if (!error)
		error = cuDevicePrimaryCtxRetain(&context, device);
	if (!error)
		error = cuCtxSetCurrent(context);
	is_ready = !error;
	return error;
}

/* A call of the driver's in the context of this thread's device. */
#define FORWARD(call)                            \
	do {                                     \
		int error_ = make_ready();       \
		return keep(error_ ? error_ : (call)); \
	} while (0)

int cudaRuntimeGetVersion(int *version)
{
	*version = RUNTIME_VERSION;
	return SUCCESS;
}

int cudaDriverGetVersion(int *version)
{
	*version = RUNTIME_VERSION; /* an older driver than the runtime would be refused */
	return SUCCESS;
}

int cudaGetDeviceCount(int *count)
{
	return keep(cuInit(0)) ? last_error : keep(cuDeviceGetCount(count));
}

int cudaGetDevice(int *ordinal)
{
	*ordinal = device;
	return SUCCESS;
}

int cudaSetDevice(int ordinal)
{
	int count = 0;

	if (is_ready && ordinal == device)
		return SUCCESS;
	cudaGetDeviceCount(&count);
	if (ordinal < 0 || ordinal >= count)
		return keep(INVALID_DEVICE);
	device = ordinal;
	is_ready = 0;
	return keep(make_ready());
}

/* struct cudaDeviceProp of CUDA 13, what PyTorch reads of it. */
static void put(char *properties, size_t offset, int value)
{
	memcpy(properties + offset, &value, sizeof(value));
}

int cudaGetDeviceProperties(char *properties, int ordinal)
{
	char bus_id[32];
	unsigned domain, bus, slot;
	size_t total, shared = 49152, shared_optin = 232448;

	memset(properties, 0, 1008);
	if (keep(cuInit(0)) || keep(cuDeviceGetName(properties, 256, ordinal)) ||
	    keep(cuDeviceGetUuid_v2((unsigned char *)properties + 256, ordinal)) ||
	    keep(cuDeviceTotalMem_v2(&total, ordinal)) || keep(cuDeviceGetPCIBusId(bus_id, sizeof(bus_id), ordinal)))
		return last_error;
	memcpy(properties + 288, &total, sizeof(total));
	memcpy(properties + 296, &shared, sizeof(shared));
	put(properties, 304, 65536);  /* regsPerBlock */
	put(properties, 308, 32);     /* warpSize */
	put(properties, 320, 1024);   /* maxThreadsPerBlock */
	for (int i = 0; i < 3; i++) {
		put(properties, 324 + 4 * i, i < 2 ? 1024 : 64);
		put(properties, 336 + 4 * i, i ? 65535 : 0x7fffffff);
	}
	put(properties, 360, 9);      /* major */
	put(properties, 384, 132);    /* multiProcessorCount */
	put(properties, 604, 2048);   /* maxThreadsPerMultiProcessor */
	memcpy(properties + 624, &shared_optin, sizeof(shared_optin)); /* sharedMemPerMultiprocessor */
	put(properties, 632, 65536);  /* regsPerMultiprocessor */
	memcpy(properties + 672, &shared_optin, sizeof(shared_optin)); /* sharedMemPerBlockOptin */
	if (sscanf(bus_id, "%x:%x:%x", &domain, &bus, &slot) == 3) {
		put(properties, 568, (int)bus);
		put(properties, 572, (int)slot);
		put(properties, 576, (int)domain);
	}
	return SUCCESS;
}

int cudaDeviceGetAttribute(int *value, int attribute, int ordinal)
{
	static const int KNOWN[][2] = {
		{1, 1024},   {2, 1024}, {3, 1024}, {4, 64},    {5, 0x7fffffff}, {6, 65535}, {7, 65535}, {8, 49152},
		{10, 32},    {12, 65536}, {16, 132}, {39, 2048}, {75, 9},	 {76, 0},   {81, 232448}, {82, 65536},
		{97, 232448}, {106, 32},
	};

	(void)ordinal;
	*value = 0;
	for (size_t i = 0; i < sizeof(KNOWN) / sizeof(*KNOWN); i++)
		if (KNOWN[i][0] == attribute)
			*value = KNOWN[i][1];
	return SUCCESS;
}

int cudaDeviceGetPCIBusId(char *out, int size, int ordinal)
{
	return keep(cuDeviceGetPCIBusId(out, size, ordinal));
}

int cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	*least = 0;
	*greatest = -5;
	return SUCCESS;
}

int cudaDeviceCanAccessPeer(int *can, int from, int to)
{
	(void)from, (void)to;
	*can = 0;
	return SUCCESS;
}

int cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
	FORWARD(cuMemGetInfo_v2(free_bytes, total_bytes));
}

int cudaMalloc(uint64_t *out, size_t bytes)
{
	FORWARD(cuMemAlloc_v2(out, bytes));
}

int cudaFree(uint64_t address)
{
	if (!address)
		return SUCCESS;
	FORWARD(cuMemFree_v2(address));
}

int cudaHostAlloc(void **out, size_t bytes, unsigned flags)
{
	FORWARD(cuMemHostAlloc(out, bytes, flags));
}

int cudaFreeHost(void *address)
{
	FORWARD(cuMemFreeHost(address));
}

static int copy(uintptr_t to, uintptr_t from, size_t bytes, int kind, void *stream)
{
	if (kind == HOST_TO_DEVICE)
		FORWARD(cuMemcpyHtoDAsync_v2(to, (const void *)from, bytes, stream));
	if (kind == DEVICE_TO_HOST) {
		memset((void *)to, 0, bytes); /* what the device would have computed */
		FORWARD(cuMemcpyDtoHAsync_v2((void *)to, from, bytes, stream));
	}
	if (kind == DEVICE_TO_DEVICE)
		FORWARD(cuMemcpyDtoDAsync_v2(to, from, bytes, stream));
	return keep(INVALID_VALUE);
}

int cudaMemcpyAsync(uintptr_t to, uintptr_t from, size_t bytes, int kind, void *stream)
{
	return copy(to, from, bytes, kind, stream);
}

int cudaMemcpy(uintptr_t to, uintptr_t from, size_t bytes, int kind)
{
	int error = copy(to, from, bytes, kind, NULL);

	return error ? error : keep(cuStreamSynchronize(NULL));
}

int cudaMemsetAsync(uint64_t to, int value, size_t bytes, void *stream)
{
	FORWARD(cuMemsetD8Async(to, (unsigned char)value, bytes, stream));
}

int cudaStreamCreateWithPriority(void **out, unsigned flags, int priority)
{
	FORWARD(cuStreamCreateWithPriority(out, flags, priority));
}

int cudaStreamDestroy(void *stream)
{
	FORWARD(cuStreamDestroy_v2(stream));
}

int cudaStreamSynchronize(void *stream)
{
	FORWARD(cuStreamSynchronize(stream));
}

int cudaStreamQuery(void *stream)
{
	FORWARD(cuStreamQuery(stream));
}

int cudaStreamWaitEvent(void *stream, void *event, unsigned flags)
{
	FORWARD(cuStreamWaitEvent(stream, event, flags));
}

int cudaStreamIsCapturing(void *stream, int *status)
{
	(void)stream;
	*status = 0;
	return SUCCESS;
}

int cudaStreamGetCaptureInfo(void *stream, int *status, unsigned long long *id, void **graph, void **dependencies,
			     void **edges, size_t *count)
{
	(void)stream, (void)id, (void)graph, (void)dependencies, (void)edges, (void)count;
	*status = 0;
	return SUCCESS;
}

int cudaEventCreateWithFlags(void **out, unsigned flags)
{
	FORWARD(cuEventCreate(out, flags));
}

int cudaEventCreate(void **out)
{
	FORWARD(cuEventCreate(out, 0));
}

int cudaEventDestroy(void *event)
{
	FORWARD(cuEventDestroy_v2(event));
}

int cudaEventRecord(void *event, void *stream)
{
	FORWARD(cuEventRecord(event, stream));
}

int cudaEventRecordWithFlags(void *event, void *stream, unsigned flags)
{
	(void)flags;
	FORWARD(cuEventRecord(event, stream));
}

int cudaEventQuery(void *event)
{
	FORWARD(cuEventQuery(event));
}

int cudaEventSynchronize(void *event)
{
	FORWARD(cuEventSynchronize(event));
}

int cudaEventElapsedTime(float *milliseconds, void *begin, void *end)
{
	FORWARD(cuEventElapsedTime(milliseconds, begin, end));
}

int cudaDeviceSynchronize(void)
{
	FORWARD(cuCtxSynchronize());
}

/* Which of libcuda's entries launches go through, of all threads: probes then count them apart. */
enum entry { AS_KERNEL, AS_KERNEL_EX, AS_COOPERATIVE };
static enum entry launches_as;

void simulated_launch_as(int entry)
{
	launches_as = (enum entry)entry;
}

/* CUlaunchConfig and cudaLaunchConfig_t begin with these. */
struct launch_config {
	struct dim3 grid, block;
	unsigned shared_bytes;
	void *stream;
	void *attributes;
	unsigned attribute_count;
};

static int launch(const void *function, struct dim3 grid, struct dim3 block, void **arguments, unsigned shared_bytes,
		  void *stream)
{
	const struct launch_config config = {grid, block, shared_bytes, stream, NULL, 0};

	if (launches_as == AS_KERNEL_EX)
		FORWARD(cuLaunchKernelEx(&config, function, arguments, NULL));
	if (launches_as == AS_COOPERATIVE)
		FORWARD(cuLaunchCooperativeKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared_bytes,
						  stream, arguments));
	FORWARD(cuLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared_bytes, stream, arguments,
			       NULL));
}

int cudaLaunchKernel(const void *function, struct dim3 grid, struct dim3 block, void **arguments, size_t shared_bytes,
		     void *stream)
{
	return launch(function, grid, block, arguments, (unsigned)shared_bytes, stream);
}

/* cudaLaunchConfig_t: its shared_bytes are a size_t, and so its stream is where libcuda's is. */
int cudaLaunchKernelExC(const struct launch_config *config, const void *function, void **arguments)
{
	return launch(function, config->grid, config->block, arguments, config->shared_bytes, config->stream);
}

/* What `<<<>>>` compiles to since CUDA 13. */
int __cudaLaunchKernel(const void *kernel, struct dim3 grid, struct dim3 block, void **arguments, size_t shared_bytes,
		       void *stream)
{
	return cudaLaunchKernel(kernel, grid, block, arguments, shared_bytes, stream);
}

int __cudaGetKernel(const void **kernel, const void *host_function)
{
	*kernel = host_function;
	return SUCCESS;
}

static __thread struct {
	struct dim3 grid, block;
	size_t shared_bytes;
	void *stream;
} pushed;

unsigned __cudaPushCallConfiguration(struct dim3 grid, struct dim3 block, size_t shared_bytes, void *stream)
{
	pushed.grid = grid;
	pushed.block = block;
	pushed.shared_bytes = shared_bytes;
	pushed.stream = stream;
	return 0;
}

int __cudaPopCallConfiguration(struct dim3 *grid, struct dim3 *block, size_t *shared_bytes, void *stream)
{
	*grid = pushed.grid;
	*block = pushed.block;
	*shared_bytes = pushed.shared_bytes;
	*(void **)stream = pushed.stream;
	return SUCCESS;
}

void **__cudaRegisterFatBinary(void *binary)
{
	static void *handle;

	(void)binary;
	return &handle;
}

int cudaFuncGetAttributes(char *attributes, const void *function)
{
	(void)function;
	memset(attributes, 0, 128);
	put(attributes, 24, 1024); /* maxThreadsPerBlock */
	put(attributes, 28, 32);   /* numRegs */
	put(attributes, 36, 90);   /* binaryVersion */
	return SUCCESS;
}

int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function, int threads,
							   size_t shared_bytes, unsigned flags)
{
	(void)function, (void)threads, (void)shared_bytes, (void)flags;
	*blocks = 2;
	return SUCCESS;
}

int cudaPointerGetAttributes(char *attributes, uint64_t address)
{
	int is_device = address >> RANGE_BITS >= RANGE_BASE >> RANGE_BITS && address >> RANGE_BITS < (RANGE_BASE >> RANGE_BITS) + 8;

	memset(attributes, 0, 24);
	put(attributes, 0, is_device ? MEMORY_DEVICE : MEMORY_UNREGISTERED);
	put(attributes, 4, is_device ? (int)((address - RANGE_BASE) >> RANGE_BITS) : 0);
	memcpy(attributes + 8, &address, sizeof(address));
	return SUCCESS;
}

static int answer_zero(void)
{
	return 0;
}

int cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version, unsigned long long flags,
				     int *status)
{
	int found;

	make_ready(); /* what is found here is called without a call of the runtime before it */
	if (cuGetProcAddress_v2(symbol, function, (int)version, flags, &found))
		*function = (void *)answer_zero;
	if (status)
		*status = 0;
	return SUCCESS;
}

int cudaGetLastError(void)
{
	int error = last_error;

	last_error = SUCCESS;
	return error;
}

int cudaPeekAtLastError(void)
{
	return last_error;
}

const char *cudaGetErrorString(int error)
{
	return error == OUT_OF_MEMORY ? "out of memory" : error ? "an error of the simulation" : "no error";
}

const char *cudaGetErrorName(int error)
{
	return error == OUT_OF_MEMORY ? "cudaErrorMemoryAllocation" : error ? "cudaErrorSimulated" : "cudaSuccess";
}
