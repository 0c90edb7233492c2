// SPDX-License-Identifier: Apache-2.0
/*
 * Simulated libcuda: launches, graphs, copies and fills. How long each takes is said here, when in cuda_streams.c.
 *
 * A block of a launch takes one microsecond, so the grid says how long a kernel runs.
 */
#include "cuda_sim.h"

#include <stdlib.h>

#define BLOCK_NS 1000ULL
#define COPY_START_NS 2000ULL
#define COPY_BYTES_PER_NS 20ULL /* PCIe 4.0 x16, nearly */
#define FILL_BYTES_PER_NS 1500ULL

#define MADE_LAUNCH(name, function) (MADE(name), truth_launch(function))

typedef const void *function_handle;

/* As in the driver's interface: six sizes, then shared memory and the stream. */
struct launch_config {
	unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
	void *stream;
	void *attributes;
	unsigned attribute_count;
};

static CUresult launch(function_handle function, uint64_t blocks, uint64_t threads, void *stream)
{
	if (!function || !blocks || !threads)
		return initialised ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_INITIALIZED;
	return stream_work(stream, blocks * BLOCK_NS, 1);
}

#define LAUNCH_ARGUMENTS                                                                                               \
	function_handle function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,                 \
		unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream, void **parameters
#define LAUNCH                                                                                                         \
	((void)shared_bytes, (void)parameters,                                                                         \
	 launch(function, (uint64_t)grid_x * grid_y * grid_z, (uint64_t)block_x * block_y * block_z, stream))

BODY(cuLaunchKernel)(LAUNCH_ARGUMENTS, void **extra)
{
	(void)extra;
	MADE_LAUNCH(cuLaunchKernel, TRUTH_KERNEL);
	return LAUNCH;
}

BODY(cuLaunchKernel_ptsz)(LAUNCH_ARGUMENTS, void **extra)
{
	(void)extra;
	MADE_LAUNCH(cuLaunchKernel_ptsz, TRUTH_KERNEL);
	return LAUNCH;
}

BODY(cuLaunchCooperativeKernel)(LAUNCH_ARGUMENTS)
{
	MADE_LAUNCH(cuLaunchCooperativeKernel, TRUTH_COOPERATIVE);
	return LAUNCH;
}

BODY(cuLaunchCooperativeKernel_ptsz)(LAUNCH_ARGUMENTS)
{
	MADE_LAUNCH(cuLaunchCooperativeKernel_ptsz, TRUTH_COOPERATIVE);
	return LAUNCH;
}

static CUresult launch_config(const struct launch_config *config, function_handle function)
{
	if (!config)
		return CUDA_ERROR_INVALID_VALUE;
	return launch(function, (uint64_t)config->grid_x * config->grid_y * config->grid_z,
		      (uint64_t)config->block_x * config->block_y * config->block_z, config->stream);
}

BODY(cuLaunchKernelEx)(const struct launch_config *config, function_handle function, void **parameters, void **extra)
{
	(void)parameters, (void)extra;
	MADE_LAUNCH(cuLaunchKernelEx, TRUTH_KERNEL_EX);
	return launch_config(config, function);
}

BODY(cuLaunchKernelEx_ptsz)(const struct launch_config *config, function_handle function, void **parameters,
			    void **extra)
{
	(void)parameters, (void)extra;
	MADE_LAUNCH(cuLaunchKernelEx_ptsz, TRUTH_KERNEL_EX);
	return launch_config(config, function);
}

static CUresult graph_of(const struct graph *graph)
{
	if (!initialised)
		return CUDA_ERROR_NOT_INITIALIZED;
	return graph && graph->magic == GRAPH_MAGIC ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult instantiate(struct graph **executable, const struct graph *graph)
{
	CUresult result = graph_of(graph);

	if (result)
		return result;
	*executable = malloc(sizeof(**executable));
	if (!*executable)
		return CUDA_ERROR_OUT_OF_MEMORY;
	**executable = *graph;
	return CUDA_SUCCESS;
}

BODY(cuGraphInstantiateWithFlags)(struct graph **executable, const struct graph *graph, uint64_t flags)
{
	(void)flags;
	MADE(cuGraphInstantiateWithFlags);
	return instantiate(executable, graph);
}

BODY(cuGraphInstantiateWithParams)(struct graph **executable, const struct graph *graph, void *parameters)
{
	(void)parameters;
	MADE(cuGraphInstantiateWithParams);
	return instantiate(executable, graph);
}

static CUresult launch_graph(const struct graph *graph, void *stream)
{
	CUresult result = graph_of(graph);

	return result ? result : stream_work(stream, graph->work_ns, graph->kernels);
}

BODY(cuGraphLaunch)(const struct graph *graph, void *stream)
{
	MADE_LAUNCH(cuGraphLaunch, TRUTH_GRAPH);
	return launch_graph(graph, stream);
}

BODY(cuGraphLaunch_ptsz)(const struct graph *graph, void *stream)
{
	MADE_LAUNCH(cuGraphLaunch_ptsz, TRUTH_GRAPH);
	return launch_graph(graph, stream);
}

static CUresult destroy_graph(struct graph *graph)
{
	CUresult result = graph_of(graph);

	if (result)
		return result;
	graph->magic = 0;
	free(graph);
	return CUDA_SUCCESS;
}

BODY(cuGraphExecDestroy)(struct graph *graph)
{
	MADE(cuGraphExecDestroy);
	return destroy_graph(graph);
}

BODY(cuGraphDestroy)(struct graph *graph)
{
	MADE(cuGraphDestroy);
	return destroy_graph(graph);
}

static CUresult copy(size_t bytes, void *stream)
{
	return stream_work(stream, COPY_START_NS + bytes / COPY_BYTES_PER_NS, 0);
}

static CUresult fill(size_t bytes, void *stream)
{
	return stream_work(stream, COPY_START_NS + bytes / FILL_BYTES_PER_NS, 0);
}

static CUresult and_wait(CUresult result)
{
	return result ? result : stream_wait(NULL);
}

#define COPY_BLOCKING(name, destination_type, source_type)                                    \
	BODY(name)(destination_type destination, source_type source, size_t bytes)            \
	{                                                                                     \
		(void)destination, (void)source;                                              \
		MADE(name);                                                                   \
		return and_wait(copy(bytes, NULL));                                           \
	}
#define COPY_QUEUED(name, destination_type, source_type)                                             \
	BODY(name)(destination_type destination, source_type source, size_t bytes, void *stream)     \
	{                                                                                            \
		(void)destination, (void)source;                                                     \
		MADE(name);                                                                          \
		return copy(bytes, stream);                                                          \
	}

COPY_BLOCKING(cuMemcpy, CUdeviceptr, CUdeviceptr)
COPY_QUEUED(cuMemcpyAsync, CUdeviceptr, CUdeviceptr)
COPY_BLOCKING(cuMemcpyHtoD_v2, CUdeviceptr, const void *)
COPY_BLOCKING(cuMemcpyDtoH_v2, void *, CUdeviceptr)
COPY_BLOCKING(cuMemcpyDtoD_v2, CUdeviceptr, CUdeviceptr)
COPY_QUEUED(cuMemcpyHtoDAsync_v2, CUdeviceptr, const void *)
COPY_QUEUED(cuMemcpyDtoHAsync_v2, void *, CUdeviceptr)
COPY_QUEUED(cuMemcpyDtoDAsync_v2, CUdeviceptr, CUdeviceptr)

BODY(cuMemcpyPeerAsync)(CUdeviceptr destination, void *destination_context, CUdeviceptr source, void *source_context,
			size_t bytes, void *stream)
{
	(void)destination, (void)destination_context, (void)source, (void)source_context;
	MADE(cuMemcpyPeerAsync);
	return copy(bytes, stream);
}

#define FILL(name, value_type, width)                                                  \
	BODY(name)(CUdeviceptr destination, value_type value, size_t elements)         \
	{                                                                              \
		(void)destination, (void)value;                                        \
		MADE(name);                                                            \
		return fill(elements * (width), NULL);                                 \
	}
#define FILL_QUEUED(name, value_type, width)                                                         \
	BODY(name)(CUdeviceptr destination, value_type value, size_t elements, void *stream)         \
	{                                                                                            \
		(void)destination, (void)value;                                                      \
		MADE(name);                                                                          \
		return fill(elements * (width), stream);                                             \
	}

FILL(cuMemsetD8_v2, unsigned char, 1)
FILL(cuMemsetD32_v2, unsigned, 4)
FILL_QUEUED(cuMemsetD8Async, unsigned char, 1)
FILL_QUEUED(cuMemsetD32Async, unsigned, 4)
