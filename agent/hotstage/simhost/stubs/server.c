// SPDX-License-Identifier: Apache-2.0
/*
 * The simulated server's GPU code: ordinary calls to libcuda by its exported names, the way an engine makes them.
 *
 * Python calls it through ctypes, which releases the interpreter's lock, so that a wait blocks one thread only. Every
 * function returns a CUresult. One pinned buffer a thread, and one stream on each device; freed with the process.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "page.h"
#include "server_kernels.h"

typedef int CUresult;
typedef struct context *CUcontext;
typedef struct stream *CUstream;
typedef struct event *CUevent;
typedef struct graph *CUgraph;
typedef uint64_t CUdeviceptr;
typedef const void *CUfunction;

struct launch_config { /* CUlaunchConfig */
	unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
	CUstream stream;
	void *attributes;
	unsigned attribute_count;
};

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
CUresult cuLaunchKernelEx(const struct launch_config *, CUfunction, void **, void **);
CUresult cuLaunchCooperativeKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
				   CUstream, void **);
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
#define MAX_GPUS 2
#define TRY(call)                           \
	do {                                \
		CUresult result_ = (call);  \
		if (result_)                \
			return result_;     \
	} while (0)

/* One stage's work on the GPU, as gpu.py lays it out. */
struct stage_work {
	uint32_t stage, modality;
	uint64_t device_ns;    /* how long the device takes in all, at full speed */
	uint32_t launches;     /* in so many kernels */
	uint32_t copies;       /* and so many copies to the device before them */
	uint64_t input_bytes;  /* in all copies */
	uint64_t device_bytes; /* allocated for the time of the stage */
};

/* libcuda's: what this thread works for. Whoever watches never reads it. */
extern __thread uint32_t sim_truth_word;
#define NO_WORD (64u | 5u << 8)

static CUcontext contexts[MAX_GPUS];
static uint32_t gpus;
static struct {
	const char *name;
	CUfunction function;
} kernels[NAMES];
static CUgraph decode_graph;
static CUdeviceptr weights;

static __thread struct lane {
	CUstream stream;
	CUevent done;
} lanes[MAX_GPUS];
static __thread uint32_t current; /* index of the thread's context */
static CUstream shared;		  /* of the last GPU, for all threads while it is_shared */
static int is_shared;
static __thread void *pinned;

static CUresult load_kernel(void *module, const char *name)
{
	for (int i = 0; i < NAMES; i++) {
		if (!kernels[i].name) {
			kernels[i].name = name;
			return cuModuleGetFunction(&kernels[i].function, module, name);
		}
		if (!strcmp(kernels[i].name, name))
			return 0;
	}
	return 2; /* out of memory: NAMES is too small */
}

static CUresult load_kernels(void)
{
	void *module;

	TRY(cuModuleLoadData(&module, "simulated"));
	for (size_t i = 0; i < sizeof(PROGRAMS) / sizeof(*PROGRAMS); i++) {
		if (PROGRAMS[i].first)
			TRY(load_kernel(module, PROGRAMS[i].first));
		for (int k = 0; k < LAYER_KERNELS && PROGRAMS[i].layer[k]; k++)
			TRY(load_kernel(module, PROGRAMS[i].layer[k]));
	}
	for (int k = 0; k < LAYER_KERNELS; k++)
		TRY(load_kernel(module, GRAPH_LAYER[k]));
	return 0;
}

static CUfunction function_of(const char *name)
{
	for (int i = 0; i < NAMES && kernels[i].name; i++)
		if (!strcmp(kernels[i].name, name))
			return kernels[i].function;
	return NULL;
}

static const struct kernel_program *program_of(uint32_t stage)
{
	for (size_t i = 0; i < sizeof(PROGRAMS) / sizeof(*PROGRAMS); i++)
		if (PROGRAMS[i].stage == stage)
			return &PROGRAMS[i];
	return NULL;
}

static CUresult capture_decode_step(uint32_t nodes)
{
	CUgraph captured;
	CUstream stream;

	TRY(cuStreamCreate(&stream, 0));
	TRY(cuStreamBeginCapture_v2(stream, 0));
	for (uint32_t i = 0; i < nodes; i++)
		TRY(cuLaunchKernel(function_of(kernel_of(NULL, GRAPH_LAYER, i)), 1, 1, 1, 128, 1, 1, 0, stream, NULL,
				   NULL));
	TRY(cuStreamEndCapture(stream, &captured));
	return cuGraphInstantiateWithFlags(&decode_graph, captured, 0);
}

/*
 * Opens the process's visible GPUs, as many as are asked for: identity, contexts, kernels, and on the last one weights
 * and the captured decode step. With two of them, the encoders are on the first.
 */
EXPORT CUresult gpu_open(uint32_t count, uint64_t weight_bytes, uint32_t graph_nodes)
{
	unsigned char uuid[16];
	char bus_id[32];
	int device;

	if (!count || count > MAX_GPUS)
		return 1;
	TRY(cuInit(0));
	for (gpus = 0; gpus < count; gpus++) {
		TRY(cuDeviceGet(&device, (int)gpus));
		TRY(cuDeviceGetUuid_v2(uuid, device));
		TRY(cuDeviceGetPCIBusId(bus_id, sizeof(bus_id), device));
		TRY(cuDevicePrimaryCtxRetain(&contexts[gpus], device));
	}
	TRY(cuCtxSetCurrent(contexts[gpus - 1]));
	current = gpus - 1;
	TRY(load_kernels());
	TRY(cuMemAlloc_v2(&weights, weight_bytes));
	return capture_decode_step(graph_nodes);
}

static CUresult use(uint32_t gpu)
{
	if (gpu == current)
		return 0;
	current = gpu;
	return cuCtxSetCurrent(contexts[gpu]);
}

/* Once a worker thread: a stream and an event on each device, pinned memory for its copies. */
EXPORT CUresult gpu_thread_open(void)
{
	for (uint32_t i = 0; i < gpus; i++) {
		TRY(cuCtxSetCurrent(contexts[i]));
		TRY(cuStreamCreate(&lanes[i].stream, 1));
		TRY(cuEventCreate(&lanes[i].done, 2));
	}
	current = gpus - 1;
	return cuMemHostAlloc(&pinned, PINNED_BYTES, 0);
}

static CUstream stream_here(void)
{
	return __atomic_load_n(&is_shared, __ATOMIC_ACQUIRE) && current == gpus - 1 ? shared : lanes[current].stream;
}

/* From now on every thread works on one stream of the last GPU, or again on its own. */
EXPORT CUresult gpu_share_stream(int on)
{
	if (on && !shared) {
		TRY(cuCtxSetCurrent(contexts[gpus - 1]));
		TRY(cuStreamCreate(&shared, 1));
	}
	__atomic_store_n(&is_shared, on, __ATOMIC_RELEASE);
	return 0;
}

static CUresult launch_one(enum launch_by by, CUfunction function, unsigned blocks, CUstream stream)
{
	struct launch_config config = {blocks, 1, 1, 128, 1, 1, 0, stream, NULL, 0};

	if (by == BY_KERNEL_EX)
		return cuLaunchKernelEx(&config, function, NULL, NULL);
	if (by == BY_COOPERATIVE)
		return cuLaunchCooperativeKernel(function, blocks, 1, 1, 128, 1, 1, 0, stream, NULL);
	return cuLaunchKernel(function, blocks, 1, 1, 128, 1, 1, 0, stream, NULL, NULL);
}

static CUresult launch_all(const struct kernel_program *program, uint64_t device_ns, uint32_t launches,
			   CUstream stream)
{
	uint64_t blocks_left = device_ns / BLOCK_NS;

	for (uint32_t i = 0; i < launches; i++) {
		uint64_t blocks = blocks_left / (launches - i);
		CUfunction function = function_of(kernel_of(program->first, program->layer, i));

		blocks_left -= blocks;
		TRY(launch_one(program->by, function, blocks ? (unsigned)blocks : 1, stream));
	}
	return 0;
}

static CUresult run_stage(const struct kernel_program *program, const struct stage_work *work)
{
	CUdeviceptr memory;
	CUstream stream;
	CUevent done;
	CUresult result;

	TRY(use(program->is_encoder ? 0 : gpus - 1));
	stream = stream_here();
	done = lanes[current].done;
	TRY(cuMemAllocAsync(&memory, work->device_bytes, stream));
	for (uint32_t i = 0; i < work->copies; i++)
		TRY(cuMemcpyHtoDAsync_v2(memory, pinned, work->input_bytes / work->copies, stream));
	TRY(launch_all(program, work->device_ns, work->launches, stream));
	TRY(cuEventRecord(done, stream));
	result = cuEventSynchronize(done);
	TRY(cuMemFreeAsync(memory, stream));
	return result;
}

/* A whole stage: allocate, copy in, launch, record, wait, free. Blocks as long as the device takes. */
EXPORT CUresult gpu_stage(const struct stage_work *work)
{
	const struct kernel_program *program = program_of(work->stage);
	CUresult result;

	if (!program)
		return 1;
	sim_truth_word = work->stage | work->modality << 8;
	result = run_stage(program, work);
	sim_truth_word = NO_WORD;
	return result;
}

static CUresult run_steps(const struct kernel_program *program, uint32_t steps, uint64_t step_ns, uint32_t launches)
{
	CUstream stream;

	TRY(use(gpus - 1));
	stream = stream_here();
	for (uint32_t i = 0; i < steps; i++) {
		TRY(cuGraphLaunch(decode_graph, stream));
		TRY(launch_all(program, step_ns, launches, stream));
		TRY(cuMemcpyDtoHAsync_v2(pinned, weights, 256, stream));
		TRY(cuStreamSynchronize(stream));
	}
	return 0;
}

/* So many decode steps, each one graph, a few more kernels, the sampled token back, and a wait. */
EXPORT CUresult gpu_decode(uint32_t stage, uint32_t modality, uint32_t steps, uint64_t step_ns, uint32_t launches)
{
	const struct kernel_program *program = program_of(stage);
	CUresult result;

	if (!program)
		return 1;
	sim_truth_word = stage | modality << 8;
	result = run_steps(program, steps, step_ns, launches);
	sim_truth_word = NO_WORD;
	return result;
}

/* Steps without a graph, as PyTorch makes them eagerly: tokens to the device, kernels, tokens back, and a wait. */
struct eager_work {
	uint32_t stage, modality, steps, launches;
	uint64_t step_ns;
	uint64_t input_bytes, output_bytes; /* of each step */
};

static CUresult run_eagerly(const struct kernel_program *program, const struct eager_work *work)
{
	CUstream stream;

	TRY(use(gpus - 1));
	stream = stream_here();
	for (uint32_t i = 0; i < work->steps; i++) {
		TRY(cuMemcpyHtoDAsync_v2(weights, pinned, work->input_bytes, stream));
		TRY(launch_all(program, work->step_ns, work->launches, stream));
		TRY(cuMemcpyDtoHAsync_v2(pinned, weights, work->output_bytes, stream));
		TRY(cuStreamSynchronize(stream));
	}
	return 0;
}

EXPORT CUresult gpu_eager(const struct eager_work *work)
{
	const struct kernel_program *program = program_of(work->stage);
	CUresult result;

	if (!program || work->input_bytes > PINNED_BYTES || work->output_bytes > PINNED_BYTES)
		return 1;
	sim_truth_word = work->stage | work->modality << 8;
	result = run_eagerly(program, work);
	sim_truth_word = NO_WORD;
	return result;
}

EXPORT uint64_t sim_page_bytes(void)
{
	return sizeof(struct sim_page);
}
