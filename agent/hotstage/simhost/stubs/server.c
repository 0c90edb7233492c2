// SPDX-License-Identifier: Apache-2.0
/*
 * The simulated server's GPU code: ordinary calls to libcuda by its exported names, the way an engine makes them.
 *
 * Python calls it through ctypes, which releases the interpreter's lock, so that a wait blocks one thread only. Every
 * function returns a CUresult. One stream and one pinned buffer a thread; freed with the process.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "page.h"

typedef int CUresult;
typedef struct context *CUcontext;
typedef struct stream *CUstream;
typedef struct event *CUevent;
typedef struct graph *CUgraph;
typedef uint64_t CUdeviceptr;
typedef const void *CUfunction;

CUresult cuInit(unsigned);
CUresult cuDeviceGet(int *, int);
CUresult cuDeviceGetUuid_v2(unsigned char *, int);
CUresult cuDeviceGetPCIBusId(char *, int, int);
CUresult cuDevicePrimaryCtxRetain(CUcontext *, int);
CUresult cuCtxSetCurrent(CUcontext);
CUresult cuModuleLoadData(void **, const void *);
CUresult cuModuleGetFunction(CUfunction *, void *, const char *);
CUresult cuStreamCreate(CUstream *, unsigned);
CUresult cuStreamSynchronize(CUstream);
CUresult cuStreamWaitEvent(CUstream, CUevent, unsigned);
CUresult cuStreamBeginCapture_v2(CUstream, int);
CUresult cuStreamEndCapture(CUstream, CUgraph *);
CUresult cuEventCreate(CUevent *, unsigned);
CUresult cuEventRecord(CUevent, CUstream);
CUresult cuEventSynchronize(CUevent);
CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
			void **, void **);
CUresult cuGraphInstantiateWithFlags(CUgraph *, CUgraph, uint64_t);
CUresult cuGraphLaunch(CUgraph, CUstream);
CUresult cuMemAlloc_v2(CUdeviceptr *, size_t);
CUresult cuMemAllocAsync(CUdeviceptr *, size_t, CUstream);
CUresult cuMemFreeAsync(CUdeviceptr, CUstream);
CUresult cuMemHostAlloc(void **, size_t, unsigned);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr, const void *, size_t, CUstream);
CUresult cuMemcpyDtoHAsync_v2(void *, CUdeviceptr, size_t, CUstream);

#define EXPORT __attribute__((visibility("default")))
#define BLOCK_NS 1000 /* as cuda_launch.c has it */
#define PINNED_BYTES (1u << 16)
#define TRY(call)                           \
	do {                                \
		CUresult result_ = (call);  \
		if (result_)                \
			return result_;     \
	} while (0)

/* One stage's work on the GPU, as gpu.py lays it out. */
struct stage_work {
	uint64_t device_ns;    /* how long the device takes in all, at full speed */
	uint32_t launches;     /* in so many kernels */
	uint32_t copies;       /* and so many copies to the device before them */
	uint64_t input_bytes;  /* in all copies */
	uint64_t device_bytes; /* allocated for the time of the stage */
};

static CUcontext context;
static CUfunction kernel;
static CUgraph decode_graph;
static CUdeviceptr weights;

static __thread CUstream stream;
static __thread CUevent done;
static __thread void *pinned;

/* Opens the process's first visible GPU: identity, context, weights, the captured decode step. */
EXPORT CUresult gpu_open(uint64_t weight_bytes, uint32_t graph_nodes)
{
	unsigned char uuid[16];
	char bus_id[32];
	CUgraph captured;
	CUstream capture;
	void *module;
	int device;

	TRY(cuInit(0));
	TRY(cuDeviceGet(&device, 0));
	TRY(cuDeviceGetUuid_v2(uuid, device));
	TRY(cuDeviceGetPCIBusId(bus_id, sizeof(bus_id), device));
	TRY(cuDevicePrimaryCtxRetain(&context, device));
	TRY(cuCtxSetCurrent(context));
	TRY(cuModuleLoadData(&module, "simulated"));
	TRY(cuModuleGetFunction(&kernel, module, "simulated_kernel"));
	TRY(cuMemAlloc_v2(&weights, weight_bytes));
	TRY(cuStreamCreate(&capture, 0));
	TRY(cuStreamBeginCapture_v2(capture, 0));
	for (uint32_t i = 0; i < graph_nodes; i++)
		TRY(cuLaunchKernel(kernel, 1, 1, 1, 128, 1, 1, 0, capture, NULL, NULL));
	TRY(cuStreamEndCapture(capture, &captured));
	return cuGraphInstantiateWithFlags(&decode_graph, captured, 0);
}

/* Once a worker thread: the context, a stream, an event, pinned memory for its copies. */
EXPORT CUresult gpu_thread_open(void)
{
	TRY(cuCtxSetCurrent(context));
	TRY(cuStreamCreate(&stream, 1));
	TRY(cuEventCreate(&done, 2));
	return cuMemHostAlloc(&pinned, PINNED_BYTES, 0);
}

static CUresult launch_all(uint64_t device_ns, uint32_t launches)
{
	uint64_t blocks_left = device_ns / BLOCK_NS;

	for (uint32_t left = launches; left; left--) {
		uint64_t blocks = blocks_left / left;

		blocks_left -= blocks;
		TRY(cuLaunchKernel(kernel, blocks ? (unsigned)blocks : 1, 1, 1, 128, 1, 1, 0, stream, NULL, NULL));
	}
	return 0;
}

/* A whole stage: allocate, copy in, launch, record, wait, free. Blocks as long as the device takes. */
EXPORT CUresult gpu_stage(const struct stage_work *work)
{
	CUdeviceptr memory;
	CUresult result;

	TRY(cuMemAllocAsync(&memory, work->device_bytes, stream));
	for (uint32_t i = 0; i < work->copies; i++)
		TRY(cuMemcpyHtoDAsync_v2(memory, pinned, work->input_bytes / work->copies, stream));
	TRY(launch_all(work->device_ns, work->launches));
	TRY(cuEventRecord(done, stream));
	result = cuEventSynchronize(done);
	TRY(cuMemFreeAsync(memory, stream));
	return result;
}

/* So many decode steps, each one graph, a few more kernels, the sampled token back, and a wait. */
EXPORT CUresult gpu_decode(uint32_t steps, uint64_t step_ns, uint32_t launches)
{
	for (uint32_t i = 0; i < steps; i++) {
		TRY(cuGraphLaunch(decode_graph, stream));
		TRY(launch_all(step_ns, launches));
		TRY(cuMemcpyDtoHAsync_v2(pinned, weights, 256, stream));
		TRY(cuStreamSynchronize(stream));
	}
	return 0;
}

EXPORT uint64_t sim_page_bytes(void)
{
	return sizeof(struct sim_page);
}
