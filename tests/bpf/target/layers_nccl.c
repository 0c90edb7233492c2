// SPDX-License-Identifier: Apache-2.0
/*
 * NCCL's front: communicators are numbers that name rank and size, and a collective waits for a stream of the driver.
 * Within a group what is made stands there at the group's end, as of NCCL's splits.
 */
#include "layers.h"

#include <stdlib.h>

#define AWAITED 32
#define NO_COLOUR -1

static uint64_t last = 0xc0;
static __thread unsigned depth, waiting;
static __thread struct {
	uint64_t *at, communicator;
} awaited[AWAITED];

static uint64_t rank_of(uint64_t communicator) { return communicator & 0xff; }
static uint64_t size_of(uint64_t communicator) { return communicator >> 8 & 0xff; }

static int make(uint64_t *out, uint64_t rank, uint64_t size)
{
	uint64_t made = ++last << 16 | size << 8 | rank;

	*out = depth ? 0 : made;
	if (depth && waiting < AWAITED) {
		awaited[waiting].at = out;
		awaited[waiting++].communicator = made;
	}
	return 0;
}

EXPORT int ncclGroupStart(void)
{
	depth++;
	return 0;
}

EXPORT int ncclGroupEnd(void)
{
	if (!depth || --depth)
		return 0;
	while (waiting)
		waiting--, *awaited[waiting].at = awaited[waiting].communicator;
	return 0;
}

EXPORT int ncclGroupSimulateEnd(void *estimate)
{
	(void)estimate;
	depth = waiting = 0;
	return 0;
}

EXPORT int ncclCommInitRank(uint64_t *out, int ranks, struct layers_id id, int rank)
{
	uint64_t memory;

	if (!id.bytes[0] || rank >= ranks)
		return 4;
	make(out, rank, ranks);
	return cuMemAlloc_v2(&memory, 4096);
}

EXPORT int ncclCommInitAll(uint64_t *out, int devices, const int *list)
{
	(void)list;
	for (int i = 0; i < devices; i++)
		make(out + i, i, devices);
	return 0;
}

EXPORT int ncclCommSplit(uint64_t parent, int color, int key, uint64_t *out, void *config)
{
	(void)key, (void)config;
	*out = 0;
	if (!parent)
		return 4;
	return color == NO_COLOUR ? 0 : make(out, rank_of(parent) / 2, size_of(parent) / 2);
}

EXPORT int ncclCommInitRankScalable(uint64_t *out, int ranks, int rank, int ids, struct layers_id *id, void *config)
{
	(void)ids, (void)id, (void)config;
	return make(out, rank, ranks);
}

static int by_rank(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

EXPORT int ncclCommShrink(uint64_t parent, int *left_out, int count, uint64_t *out, void *config, int flags)
{
	uint64_t below = 0;

	(void)config, (void)flags;
	qsort(left_out, count, sizeof(*left_out), by_rank);
	for (int i = 0; i < count; i++)
		below += left_out[i] < (int)rank_of(parent);
	return make(out, rank_of(parent) - below, size_of(parent) - count);
}

EXPORT int ncclCommGrow(uint64_t parent, int ranks, const struct layers_id *id, int rank, uint64_t *out, void *config)
{
	(void)id, (void)config;
	return make(out, parent ? rank_of(parent) : (uint64_t)rank, ranks);
}

EXPORT int ncclCommCount(uint64_t communicator, int *count)
{
	if (!communicator)
		return 4;
	*count = size_of(communicator);
	return 0;
}

EXPORT int ncclCommUserRank(uint64_t communicator, int *rank)
{
	*rank = rank_of(communicator);
	return 0;
}

EXPORT int ncclCommCuDevice(uint64_t communicator, int *device)
{
	*device = rank_of(communicator) + 1;
	return 0;
}

EXPORT int ncclCommDestroy(uint64_t communicator) { return communicator ? 0 : 4; }

EXPORT int ncclAllReduce(const void *from, void *to, size_t count, int type, int operation, uint64_t communicator,
			 uint64_t stream)
{
	(void)from, (void)to, (void)count, (void)type, (void)operation;
	if (!communicator)
		return 4;
	cuStreamSynchronize(stream);
	return stream == 7 ? 7 : 0; /* ncclInProgress */
}

EXPORT int ncclReduce(const void *from, void *to, size_t count, int type, int operation, int root, uint64_t communicator,
		      uint64_t stream)
{
	(void)from, (void)to, (void)count, (void)type, (void)operation, (void)root, (void)stream;
	return communicator ? 0 : 4;
}
