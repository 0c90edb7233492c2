// SPDX-License-Identifier: Apache-2.0
/*
 * Arrays, what graphs give out, and what another process, GPU or API made. How large an array is, is counted here level
 * by level, unlike by who watches.
 */
#include <string.h>

#include "memory_space.h"

__thread uint64_t captured_stream;

static uint64_t largest(uint64_t a, uint64_t b) { return a > b ? a : b; }

static uint64_t bytes_of_channel(uint32_t format)
{
	static const struct { uint32_t format, bytes; } KNOWN[] = {
		{1, 1}, {2, 2}, {3, 4}, {8, 1}, {9, 2}, {10, 4}, {16, 2}, {32, 4}, {0xc2, 1}, {0xc3, 2}, {0xc8, 1}, {0xcb, 2},
	};

	for (size_t i = 0; i < sizeof(KNOWN) / sizeof(*KNOWN); i++)
		if (KNOWN[i].format == format)
			return KNOWN[i].bytes;
	return 0; /* unknown to who watches, too */
}

static uint64_t bytes_of(const struct array_3d *array, unsigned levels)
{
	uint64_t width = array->width, height = array->height, depth = array->depth, elements = 0;
	int has_layers = array->flags & 5;

	if (array->flags & 0xc0)
		return 0;
	for (unsigned level = 0; level < largest(levels, 1); level++) {
		elements += largest(width, 1) * largest(height, 1) * largest(depth, 1);
		if (width <= 1 && height <= 1 && (has_layers || depth <= 1))
			break;
		width /= 2;
		height /= 2;
		depth = has_layers ? depth : depth / 2;
	}
	return elements * array->channels * bytes_of_channel(array->format);
}

BODY(cuArrayCreate_v2)(uint64_t *out, const struct array *array)
{
	struct array_3d whole = {array->width, array->height, 0, array->format, array->channels, 0, 0};

	return allocate(&arrays, out, bytes_of(&whole, 1), ARRAY);
}

BODY(cuArray3DCreate_v2)(uint64_t *out, const struct array_3d *array)
{
	return allocate(&arrays, out, bytes_of(array, 1), ARRAY);
}

BODY(cuMipmappedArrayCreate)(uint64_t *out, const struct array_3d *array, unsigned levels)
{
	return allocate(&arrays, out, bytes_of(array, levels), ARRAY);
}

BODY(cuArrayDestroy)(uint64_t array) { return release(&arrays, array); }
BODY(cuMipmappedArrayDestroy)(uint64_t array) { return release(&arrays, array); }

/* Opened twice, it is at the same address, and to be closed twice. */
BODY(cuIpcOpenMemHandle_v2)(uint64_t *out, struct shared_handle handle)
{
	static uint64_t opened[16];
	uint64_t *address = &opened[handle.words[0] % 16];
	struct item *item = item_at(&pointers, *address);

	if (item && item->kind == SHARED)
		item->holds++;
	else if (allocate(&pointers, address, 0, SHARED))
		return 1;
	*out = *address;
	return 0;
}

BODY(cuIpcCloseMemHandle)(uint64_t address) { return release(&pointers, address); }
BODY(cuMemPoolImportPointer)(uint64_t *out) { return allocate(&pointers, out, 0, SHARED); }

BODY(cuExternalMemoryGetMappedBuffer)(uint64_t *out, uint64_t memory, const struct sized *buffer)
{
	return memory ? allocate(&pointers, out, buffer->bytes, EXTERNAL) : 1;
}

BODY(cuMulticastCreate)(uint64_t *out, const struct sized *properties)
{
	return allocate(&handles, out, properties->bytes, MULTICAST);
}

static int add_node(uint64_t *out, struct node *node)
{
	*out = 0x0de;
	return allocate(&pointers, &node->address, node->bytes, GRAPH);
}

BODY(cuGraphAddMemAllocNode)(uint64_t *out, uint64_t graph, const uint64_t *before, uint64_t count, struct node *node)
{
	(void)graph, (void)before, (void)count;
	return add_node(out, node);
}

BODY(cuGraphAddNode)(uint64_t *out, uint64_t graph, const uint64_t *before, uint64_t count, struct typed_node *node)
{
	(void)graph, (void)before, (void)count;
	return node->type == 10 ? add_node(out, &node->made) : 0;
}

BODY(cuGraphAddNode_v2)(uint64_t *out, uint64_t graph, const uint64_t *before, const void *edges, uint64_t count,
			struct typed_node *node)
{
	(void)graph, (void)before, (void)edges, (void)count;
	return node->type == 10 ? add_node(out, &node->made) : 0;
}

BODY(cuDeviceGetGraphMemAttribute)(int device, int attribute, uint64_t *value)
{
	*value = (uint64_t)device * 1000 + 70 + (uint64_t)attribute;
	return 0;
}

BODY(cuDeviceGraphMemTrim)(int device) { return device < 0; }
BODY(cuMemPoolTrimTo)(uint64_t pool) { return !pool; }
BODY(cuMemPoolDestroy)(uint64_t pool) { return !pool; }

BODY(cuStreamBeginCapture_v2)(uint64_t stream)
{
	captured_stream = stream;
	return 0;
}

BODY(cuStreamEndCapture)(uint64_t stream, uint64_t *graph)
{
	(void)stream;
	captured_stream = 0;
	*graph = 0x9a9;
	return 0;
}
