// SPDX-License-Identifier: Apache-2.0
/* NCCL's front: communicators are numbers, and a collective waits for a stream of the driver. */
#include "layers.h"

static uint64_t last = 0xc0000;

EXPORT int ncclCommInitRank(uint64_t *out, int ranks, struct layers_id id, int rank)
{
	uint64_t memory;

	*out = last += 16;
	return cuMemAlloc_v2(&memory, 4096) + (id.bytes[0] && rank < ranks ? 0 : 4);
}

EXPORT int ncclCommInitAll(uint64_t *out, int devices, const int *list)
{
	(void)list;
	for (int i = 0; i < devices; i++)
		out[i] = last += 16;
	return 0;
}

EXPORT int ncclCommSplit(uint64_t parent, int color, int key, uint64_t *out, void *config)
{
	(void)color, (void)key, (void)config;
	*out = last += 16;
	return parent ? 0 : 4;
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
