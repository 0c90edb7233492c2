// SPDX-License-Identifier: Apache-2.0
/*
 * Simulated libcuda: memory. One address range a device, first fit, blocks of 512 bytes: what is free but cut into
 * pieces cannot be had in one piece, so fragmentation is true. The device counts pages of 2 MiB, as the driver maps them:
 * one in which anything is allocated is used. The addresses are never read or written.
 */
#include "cuda_sim.h"

#include <stdlib.h>

#define GRANULE 512ULL
#define PAGE_BYTES (2ULL << 20)
#define RANGE_BASE 0x700000000000ULL
#define RANGE_STEP 0x10000000000ULL

struct block { /* in order of address; neighbours that are free are one block */
	struct block *next, *previous;
	uint64_t address, bytes;
	int is_free;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block *ranges[SIM_DEVICES];

static struct block *range_of(const struct context *context)
{
	struct block **range = &ranges[context->ordinal];

	if (*range)
		return *range;
	*range = calloc(1, sizeof(**range));
	if (!*range)
		return NULL;
	(*range)->address = RANGE_BASE + (uint64_t)context->ordinal * RANGE_STEP;
	(*range)->bytes = (context->device->total_bytes - context->device->reserved_bytes) / GRANULE * GRANULE;
	(*range)->is_free = 1;
	return *range;
}

static void publish(struct context *context)
{
	const struct block *first = ranges[context->ordinal];
	uint64_t used = 0, largest = 0, held = 0, counted_to = 0, size = 0;

	for (const struct block *block = first; block; block = block->next) {
		uint64_t begin = (block->address - first->address) / PAGE_BYTES;
		uint64_t end = (block->address - first->address + block->bytes + PAGE_BYTES - 1) / PAGE_BYTES;

		size += block->bytes;
		if (block->is_free) {
			largest = block->bytes > largest ? block->bytes : largest;
			continue;
		}
		used += block->bytes;
		held += end - (begin < counted_to ? counted_to : begin);
		counted_to = end;
	}
	held *= PAGE_BYTES;
	context->shared->used_bytes = used;
	context->shared->held_bytes = held < size ? held : size;
	context->shared->largest_free_bytes = largest;
	if (used > context->shared->peak_bytes)
		context->shared->peak_bytes = used;
}

/* Cuts the block so that it is `bytes` long; without memory for the rest it stays longer. */
static void split(struct block *block, uint64_t bytes)
{
	struct block *rest = block->bytes > bytes ? malloc(sizeof(*rest)) : NULL;

	if (!rest)
		return;
	*rest = (struct block){block->next, block, block->address + bytes, block->bytes - bytes, 1};
	if (rest->next)
		rest->next->previous = rest;
	block->next = rest;
	block->bytes = bytes;
}

CUresult memory_allocate(uint64_t *out, size_t bytes)
{
	struct context *context;
	struct block *block;
	CUresult result = require_context(&context);

	if (result)
		return result;
	if (!out || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	bytes = (bytes + GRANULE - 1) / GRANULE * GRANULE;
	pthread_mutex_lock(&lock);
	for (block = range_of(context); block && (!block->is_free || block->bytes < bytes); block = block->next)
		;
	if (block) {
		split(block, bytes);
		block->is_free = 0;
		*out = block->address;
		publish(context);
	} else {
		context->shared->failed_allocations++;
		result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

static void join_next(struct block *block)
{
	struct block *next = block->next;

	block->bytes += next->bytes;
	block->next = next->next;
	if (block->next)
		block->next->previous = block;
	free(next);
}

/* Of whichever device: the address says it, not the current context. */
CUresult memory_release(uint64_t address)
{
	struct context *context;
	struct block *block;
	CUresult result = require_context(&context);

	if (result || !address)
		return result;
	context = address < RANGE_BASE ? NULL : primary_context((CUdevice)((address - RANGE_BASE) / RANGE_STEP));
	if (!context)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	for (block = range_of(context); block && block->address != address; block = block->next)
		;
	if (block && !block->is_free) {
		block->is_free = 1;
		if (block->next && block->next->is_free)
			join_next(block);
		if (block->previous && block->previous->is_free)
			join_next(block->previous);
		publish(context);
	} else {
		result = CUDA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

BODY(cuMemGetInfo_v2)(size_t *free_bytes, size_t *total_bytes)
{
	struct context *context;
	uint64_t used = 0;
	CUresult result;

	MADE(cuMemGetInfo_v2);
	result = require_context(&context);
	if (result)
		return result;
	for (int i = 0; i < SIM_PROCESSES; i++)
		if (page->processes[i].pid && page->processes[i].device == context->shared->device)
			used += page->processes[i].held_bytes;
	*total_bytes = context->device->total_bytes - context->device->reserved_bytes;
	*free_bytes = *total_bytes > used ? *total_bytes - used : 0;
	return CUDA_SUCCESS;
}

BODY(cuMemAlloc_v2)(CUdeviceptr *out, size_t bytes)
{
	MADE(cuMemAlloc_v2);
	return memory_allocate(out, bytes);
}

BODY(cuMemAllocPitch_v2)(CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned element_bytes)
{
	(void)element_bytes;
	MADE(cuMemAllocPitch_v2);
	*pitch = (width + GRANULE - 1) / GRANULE * GRANULE;
	return memory_allocate(out, *pitch * height);
}

BODY(cuMemAllocManaged)(CUdeviceptr *out, size_t bytes, unsigned flags)
{
	(void)flags;
	MADE(cuMemAllocManaged);
	return memory_allocate(out, bytes);
}

BODY(cuMemAllocAsync)(CUdeviceptr *out, size_t bytes, void *stream)
{
	(void)stream;
	MADE(cuMemAllocAsync);
	return memory_allocate(out, bytes);
}

BODY(cuMemAllocAsync_ptsz)(CUdeviceptr *out, size_t bytes, void *stream)
{
	(void)stream;
	MADE(cuMemAllocAsync_ptsz);
	return memory_allocate(out, bytes);
}

BODY(cuMemAllocFromPoolAsync)(CUdeviceptr *out, size_t bytes, void *pool, void *stream)
{
	(void)pool, (void)stream;
	MADE(cuMemAllocFromPoolAsync);
	return memory_allocate(out, bytes);
}

BODY(cuMemFree_v2)(CUdeviceptr address)
{
	MADE(cuMemFree_v2);
	return memory_release(address);
}

BODY(cuMemFreeAsync)(CUdeviceptr address, void *stream)
{
	(void)stream;
	MADE(cuMemFreeAsync);
	return memory_release(address);
}

BODY(cuMemFreeAsync_ptsz)(CUdeviceptr address, void *stream)
{
	(void)stream;
	MADE(cuMemFreeAsync_ptsz);
	return memory_release(address);
}

static CUresult allocate_host(void **out, size_t bytes)
{
	if (!initialised)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!out || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	*out = malloc(bytes);
	return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

BODY(cuMemHostAlloc)(void **out, size_t bytes, unsigned flags)
{
	(void)flags;
	MADE(cuMemHostAlloc);
	return allocate_host(out, bytes);
}

BODY(cuMemAllocHost_v2)(void **out, size_t bytes)
{
	MADE(cuMemAllocHost_v2);
	return allocate_host(out, bytes);
}

BODY(cuMemFreeHost)(void *address)
{
	MADE(cuMemFreeHost);
	if (!initialised)
		return CUDA_ERROR_NOT_INITIALIZED;
	free(address);
	return CUDA_SUCCESS;
}
