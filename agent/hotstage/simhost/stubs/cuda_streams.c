// SPDX-License-Identifier: Apache-2.0
/*
 * Simulated libcuda: streams, events, captures, waits.
 *
 * A stream is the time at which its last work is done. Work takes nominal time x the device's factor and starts when
 * the work before it on the stream is done; streams do not slow one another. Nothing is computed and no memory is
 * touched. How long each kind of work takes is said in cuda_launch.c.
 */
#define _GNU_SOURCE
#include "cuda_sim.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define STREAM_MAGIC 0x53545231u
#define EVENT_MAGIC 0x45565431u
#define HANG_POLL_NS 5000000L

struct stream {
	uint32_t magic;
	struct context *context;
	pthread_mutex_t lock;
	uint64_t ready_ns;
	struct graph *capture; /* while capturing: launches go in here */
};

struct event {
	uint32_t magic;
	struct context *context;
	uint64_t at_ns; /* when the work recorded before it is done; 0: never recorded */
};

struct stream *stream_new(struct context *context)
{
	struct stream *stream = calloc(1, sizeof(*stream));

	if (!stream)
		return NULL;
	stream->context = context;
	pthread_mutex_init(&stream->lock, NULL);
	stream->magic = STREAM_MAGIC;
	return stream;
}

static CUresult stream_of(void *handle, struct stream **stream)
{
	struct context *context;
	CUresult result = require_context(&context);

	if (result)
		return result;
	if ((uintptr_t)handle <= 2) /* NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD */
		*stream = context->default_stream;
	else
		*stream = handle;
	return (*stream)->magic == STREAM_MAGIC ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static void raise_to(uint64_t *value, uint64_t at_least)
{
	uint64_t seen = __atomic_load_n(value, __ATOMIC_RELAXED);

	while (seen < at_least &&
	       !__atomic_compare_exchange_n(value, &seen, at_least, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

CUresult stream_work(void *handle, uint64_t nominal_ns, uint32_t kernels)
{
	struct stream *stream;
	CUresult result = stream_of(handle, &stream);
	uint64_t now = now_ns(), cost;

	if (result)
		return result;
	pthread_mutex_lock(&stream->lock);
	if (stream->capture) {
		stream->capture->work_ns += nominal_ns;
		stream->capture->kernels += kernels;
	} else {
		cost = (uint64_t)((double)nominal_ns * stream->context->device->factor);
		stream->ready_ns = (stream->ready_ns > now ? stream->ready_ns : now) + cost;
		raise_to(&stream->context->ready_ns, stream->ready_ns);
		__atomic_fetch_add(&stream->context->shared->busy_ns, cost, __ATOMIC_RELAXED);
		__atomic_fetch_add(&truth->kernels, kernels, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&stream->lock);
	return CUDA_SUCCESS;
}

static int hangs(const struct context *context)
{
	return __atomic_load_n(&context->device->hang, __ATOMIC_RELAXED) != 0;
}

void device_wait(struct context *context, uint64_t until_ns)
{
	const struct timespec until = {(time_t)(until_ns / 1000000000ULL), (long)(until_ns % 1000000000ULL)};
	const struct timespec poll = {0, HANG_POLL_NS};

	if (until_ns > now_ns())
		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
			;
	while (hangs(context))
		nanosleep(&poll, NULL);
}

CUresult stream_wait(void *handle)
{
	struct stream *stream;
	CUresult result = stream_of(handle, &stream);

	if (!result)
		device_wait(stream->context, stream->ready_ns);
	return result;
}

static CUresult create_stream(struct stream **out)
{
	struct context *context;
	CUresult result = require_context(&context);

	if (result)
		return result;
	*out = stream_new(context);
	return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

BODY(cuStreamCreate)(struct stream **out, unsigned flags)
{
	(void)flags;
	MADE(cuStreamCreate);
	return create_stream(out);
}

BODY(cuStreamCreateWithPriority)(struct stream **out, unsigned flags, int priority)
{
	(void)flags, (void)priority;
	MADE(cuStreamCreateWithPriority);
	return create_stream(out);
}

BODY(cuStreamDestroy_v2)(struct stream *handle)
{
	struct stream *stream;
	CUresult result;

	MADE(cuStreamDestroy_v2);
	result = stream_of(handle, &stream);
	if (result || (uintptr_t)handle <= 2)
		return result ? result : CUDA_ERROR_INVALID_HANDLE;
	stream->magic = 0;
	pthread_mutex_destroy(&stream->lock);
	free(stream);
	return CUDA_SUCCESS;
}

BODY(cuStreamSynchronize)(void *handle)
{
	MADE(cuStreamSynchronize);
	return stream_wait(handle);
}

BODY(cuStreamSynchronize_ptsz)(void *handle)
{
	MADE(cuStreamSynchronize_ptsz);
	return stream_wait(handle);
}

BODY(cuCtxSynchronize)(void)
{
	struct context *context;
	CUresult result;

	MADE(cuCtxSynchronize);
	result = require_context(&context);
	if (!result)
		device_wait(context, __atomic_load_n(&context->ready_ns, __ATOMIC_RELAXED));
	return result;
}

BODY(cuStreamQuery)(void *handle)
{
	struct stream *stream;
	CUresult result;

	MADE(cuStreamQuery);
	result = stream_of(handle, &stream);
	if (result)
		return result;
	return stream->ready_ns > now_ns() || hangs(stream->context) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult event_of(void *handle, struct event **event)
{
	*event = handle;
	if (!initialised)
		return CUDA_ERROR_NOT_INITIALIZED;
	return handle && (*event)->magic == EVENT_MAGIC ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

BODY(cuEventCreate)(struct event **out, unsigned flags)
{
	struct context *context;
	CUresult result;

	(void)flags;
	MADE(cuEventCreate);
	result = require_context(&context);
	if (result)
		return result;
	*out = calloc(1, sizeof(**out));
	if (!*out)
		return CUDA_ERROR_OUT_OF_MEMORY;
	(*out)->magic = EVENT_MAGIC;
	(*out)->context = context;
	return CUDA_SUCCESS;
}

BODY(cuEventDestroy_v2)(void *handle)
{
	struct event *event;
	CUresult result;

	MADE(cuEventDestroy_v2);
	result = event_of(handle, &event);
	if (result)
		return result;
	event->magic = 0;
	free(event);
	return CUDA_SUCCESS;
}

static CUresult record(void *handle, void *stream_handle)
{
	struct stream *stream;
	struct event *event;
	CUresult result = event_of(handle, &event);
	uint64_t now = now_ns();

	if (!result)
		result = stream_of(stream_handle, &stream);
	if (!result)
		event->at_ns = stream->ready_ns > now ? stream->ready_ns : now;
	return result;
}

BODY(cuEventRecord)(void *event, void *stream)
{
	MADE(cuEventRecord);
	return record(event, stream);
}

BODY(cuEventRecord_ptsz)(void *event, void *stream)
{
	MADE(cuEventRecord_ptsz);
	return record(event, stream);
}

BODY(cuEventQuery)(void *handle)
{
	struct event *event;
	CUresult result;

	MADE(cuEventQuery);
	result = event_of(handle, &event);
	if (result)
		return result;
	return event->at_ns > now_ns() || hangs(event->context) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

BODY(cuEventSynchronize)(void *handle)
{
	struct event *event;
	CUresult result;

	MADE(cuEventSynchronize);
	result = event_of(handle, &event);
	if (!result)
		device_wait(event->context, event->at_ns);
	return result;
}

BODY(cuEventElapsedTime)(float *milliseconds, void *start, void *end)
{
	struct event *first, *last;
	CUresult result;

	MADE(cuEventElapsedTime);
	result = event_of(start, &first);
	if (!result)
		result = event_of(end, &last);
	if (result)
		return result;
	if (!first->at_ns || !last->at_ns)
		return CUDA_ERROR_INVALID_HANDLE;
	if (last->at_ns > now_ns())
		return CUDA_ERROR_NOT_READY;
	*milliseconds = (float)((double)(int64_t)(last->at_ns - first->at_ns) / 1e6);
	return CUDA_SUCCESS;
}

static CUresult wait_event(void *stream_handle, void *handle)
{
	struct stream *stream;
	struct event *event;
	CUresult result = event_of(handle, &event);

	if (!result)
		result = stream_of(stream_handle, &stream);
	if (!result)
		raise_to(&stream->ready_ns, event->at_ns);
	return result;
}

BODY(cuStreamWaitEvent)(void *stream, void *event, unsigned flags)
{
	(void)flags;
	MADE(cuStreamWaitEvent);
	return wait_event(stream, event);
}

BODY(cuStreamWaitEvent_ptsz)(void *stream, void *event, unsigned flags)
{
	(void)flags;
	MADE(cuStreamWaitEvent_ptsz);
	return wait_event(stream, event);
}

BODY(cuStreamBeginCapture_v2)(void *handle, int mode)
{
	struct stream *stream;
	CUresult result;

	(void)mode;
	MADE(cuStreamBeginCapture_v2);
	result = stream_of(handle, &stream);
	if (result)
		return result;
	if (stream->capture)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	stream->capture = calloc(1, sizeof(*stream->capture));
	if (!stream->capture)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stream->capture->magic = GRAPH_MAGIC;
	return CUDA_SUCCESS;
}

BODY(cuStreamEndCapture)(void *handle, struct graph **graph)
{
	struct stream *stream;
	CUresult result;

	MADE(cuStreamEndCapture);
	result = stream_of(handle, &stream);
	if (result)
		return result;
	if (!stream->capture)
		return CUDA_ERROR_INVALID_VALUE;
	*graph = stream->capture;
	stream->capture = NULL;
	return CUDA_SUCCESS;
}
