// SPDX-License-Identifier: Apache-2.0
/* What the parts of the simulated libcuda share: types, truth counters, device, stream and memory internals. */
#ifndef HOTSTAGE_SIMHOST_CUDA_SIM_H
#define HOTSTAGE_SIMHOST_CUDA_SIM_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_functions.h"
#include "page.h"

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;

/* Pinned by CUDA's interface. */
enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NOT_INITIALIZED = 3,
	CUDA_ERROR_DEINITIALIZED = 4,
	CUDA_ERROR_INVALID_DEVICE = 101,
	CUDA_ERROR_INVALID_CONTEXT = 201,
	CUDA_ERROR_INVALID_HANDLE = 400,
	CUDA_ERROR_NOT_FOUND = 500,
	CUDA_ERROR_NOT_READY = 600,
	CUDA_ERROR_NOT_SUPPORTED = 801,
	CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
};

enum cuda_function {
#define X(name) FUNCTION_##name,
	CUDA_FUNCTIONS(X)
#undef X
		FUNCTION_COUNT
};

/* The file of truth: how often each function was entered, counted by its own body, whoever watches. */
struct truth_entry {
	char name[48];
	uint64_t made;
	uint64_t reserved;
};

/* Launches by function, device, and what the thread said it worked for; simhost/truth.py says the same. */
enum truth_launch { TRUTH_KERNEL, TRUTH_KERNEL_EX, TRUTH_COOPERATIVE, TRUTH_GRAPH, TRUTH_LAUNCHES };
#define TRUTH_STAGES 65 /* the last one: none */
#define TRUTH_MODALITIES 6
#define TRUTH_NO_WORD ((TRUTH_STAGES - 1u) | (TRUTH_MODALITIES - 1u) << 8)

struct truth_file {
	char magic[8]; /* "HSTRUTH2" */
	uint32_t pid;
	uint32_t count;
	uint64_t started_ns;
	uint64_t kernels; /* that ran: launched, or replayed by a graph */
	uint64_t reserved[4];
	struct truth_entry entries[FUNCTION_COUNT];
	uint64_t launches[TRUTH_LAUNCHES][SIM_DEVICES][TRUTH_STAGES][TRUTH_MODALITIES];
};

extern struct truth_file *truth;
void truth_launch(enum truth_launch function);

/* The body behind the exported entry point of the same name; its first act is to be counted. */
#define BODY(name) __attribute__((visibility("hidden"), used)) CUresult sim_##name
#define MADE(name) __atomic_fetch_add(&truth->entries[FUNCTION_##name].made, 1, __ATOMIC_RELAXED)

struct stream;

#define GRAPH_MAGIC 0x47524631u

struct graph { /* captured, or instantiated: work that is given in one go */
	uint32_t magic;
	uint32_t kernels;
	uint64_t work_ns;
};

struct context {
	uint32_t magic;
	CUdevice ordinal;	    /* as this process sees it */
	struct sim_device *device;  /* in the shared page */
	struct sim_process *shared; /* this process on this device */
	struct stream *default_stream;
	uint64_t ready_ns; /* when the last work given so far is done */
};

extern struct sim_page *page;
extern int initialised;

uint64_t now_ns(void);
CUresult device_at(CUdevice ordinal, struct sim_device **device); /* of the visible ones */
CUresult require_context(struct context **context);
struct context *primary_context(CUdevice ordinal); /* NULL until somebody has asked for it */

struct stream *stream_new(struct context *context);
/* Work of so many ns at full speed, queued on the stream (NULL: the context's default), or captured. */
CUresult stream_work(void *handle, uint64_t nominal_ns, uint32_t kernels);
CUresult stream_wait(void *handle); /* until the stream is idle; never while the device hangs */
CUresult memory_allocate(uint64_t *address, size_t bytes); /* first fit on the current context's device */
CUresult memory_release(uint64_t address);
void device_wait(struct context *context, uint64_t until_ns);

#endif
