// SPDX-License-Identifier: Apache-2.0
/* Simulated libcuda: contexts, the thread's stack of them, modules and functions. */
#define _GNU_SOURCE
#include "cuda_sim.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONTEXT_MAGIC 0x43545831u
#define STACK_DEPTH 16

static pthread_mutex_t setup_lock = PTHREAD_MUTEX_INITIALIZER;
static struct context contexts[SIM_DEVICES];
static __thread struct context *stack[STACK_DEPTH];
static __thread int stack_top; /* stack[stack_top] is current */

static struct context *current_context(void)
{
	return stack[stack_top];
}

CUresult require_context(struct context **context)
{
	if (!initialised)
		return CUDA_ERROR_NOT_INITIALIZED;
	*context = current_context();
	return *context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult push(struct context *context)
{
	if (!initialised)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!context || context->magic != CONTEXT_MAGIC || stack_top + 1 >= STACK_DEPTH)
		return CUDA_ERROR_INVALID_CONTEXT;
	stack[++stack_top] = context;
	return CUDA_SUCCESS;
}

/* A slot of the page for this process on the device; a full page gives a private one, which NVML does not see. */
static struct sim_process *claim_slot(uint32_t device)
{
	static struct sim_process unseen[SIM_DEVICES];
	uint32_t pid = (uint32_t)getpid();

	for (int i = 0; i < SIM_PROCESSES; i++) {
		struct sim_process *slot = &page->processes[i];
		uint32_t nobody = 0;

		if (__atomic_compare_exchange_n(&slot->pid, &nobody, pid, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
			slot->device = device;
			return slot;
		}
	}
	return &unseen[device];
}

/* The device's primary context, made when first asked for. */
static CUresult primary(struct context **out, CUdevice ordinal)
{
	struct sim_device *device;
	struct context *context;
	CUresult result = device_at(ordinal, &device);

	if (result)
		return result;
	context = &contexts[ordinal];
	pthread_mutex_lock(&setup_lock);
	if (!context->magic) {
		context->ordinal = ordinal;
		context->device = device;
		context->shared = claim_slot((uint32_t)(device - page->devices));
		context->default_stream = stream_new(context);
		context->magic = CONTEXT_MAGIC;
	}
	pthread_mutex_unlock(&setup_lock);
	*out = context;
	return CUDA_SUCCESS;
}

struct context *primary_context(CUdevice ordinal)
{
	return ordinal >= 0 && ordinal < SIM_DEVICES && contexts[ordinal].magic ? &contexts[ordinal] : NULL;
}

BODY(cuDevicePrimaryCtxRetain)(struct context **out, CUdevice ordinal)
{
	MADE(cuDevicePrimaryCtxRetain);
	return primary(out, ordinal);
}

/* A further context of the device; it becomes current, as the driver's does. */
BODY(cuCtxCreate_v2)(struct context **out, unsigned flags, CUdevice ordinal)
{
	struct context *model, *context;
	CUresult result;

	(void)flags;
	MADE(cuCtxCreate_v2);
	result = primary(&model, ordinal);
	if (result)
		return result;
	context = malloc(sizeof(*context));
	if (!context)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*context = *model;
	context->default_stream = stream_new(context);
	*out = context;
	return push(context);
}

BODY(cuDevicePrimaryCtxRelease_v2)(CUdevice ordinal)
{
	struct sim_device *unused;

	MADE(cuDevicePrimaryCtxRelease_v2);
	return device_at(ordinal, &unused); /* the context lives as long as the process, as a cached one would */
}

BODY(cuDevicePrimaryCtxGetState)(CUdevice ordinal, unsigned *flags, int *active)
{
	struct sim_device *unused;
	CUresult result;

	MADE(cuDevicePrimaryCtxGetState);
	result = device_at(ordinal, &unused);
	if (result)
		return result;
	*flags = 0;
	*active = primary_context(ordinal) != NULL;
	return CUDA_SUCCESS;
}

BODY(cuCtxSetCurrent)(struct context *context)
{
	MADE(cuCtxSetCurrent);
	if (!initialised)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (context && context->magic != CONTEXT_MAGIC)
		return CUDA_ERROR_INVALID_CONTEXT;
	stack[stack_top] = context;
	return CUDA_SUCCESS;
}

BODY(cuCtxGetCurrent)(struct context **context)
{
	MADE(cuCtxGetCurrent);
	if (!initialised)
		return CUDA_ERROR_NOT_INITIALIZED;
	*context = current_context();
	return CUDA_SUCCESS;
}

BODY(cuCtxGetDevice)(CUdevice *ordinal)
{
	struct context *context;
	CUresult result;

	MADE(cuCtxGetDevice);
	result = require_context(&context);
	if (!result)
		*ordinal = context->ordinal;
	return result;
}

BODY(cuCtxPushCurrent_v2)(struct context *context)
{
	MADE(cuCtxPushCurrent_v2);
	return push(context);
}

BODY(cuCtxPopCurrent_v2)(struct context **context)
{
	struct context *top;
	CUresult result;

	MADE(cuCtxPopCurrent_v2);
	result = require_context(&top);
	if (result)
		return result;
	stack[stack_top] = NULL;
	if (stack_top)
		stack_top--;
	if (context)
		*context = top;
	return CUDA_SUCCESS;
}

BODY(cuModuleLoadData)(void **module, const void *image)
{
	MADE(cuModuleLoadData);
	if (!initialised)
		return CUDA_ERROR_NOT_INITIALIZED;
	*module = (void *)image;
	return CUDA_SUCCESS;
}

BODY(cuModuleGetFunction)(const char **function, void *module, const char *name)
{
	(void)module;
	MADE(cuModuleGetFunction);
	*function = strdup(name); /* a function is its name; it lives as long as the process */
	return *function ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
