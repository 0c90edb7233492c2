// SPDX-License-Identifier: Apache-2.0
/*
 * Simulated libnccl.so.2: communicators and collectives by their real names, each `pnccl` name at the same address, each
 * entry point beginning with `push %rbp`, as the real ones do. A collective is a kernel on the caller's stream that
 * takes as long as its bytes need on a link; ranks do not wait for each other.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int ncclResult_t;

int cuLaunchKernel(const void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
		   void **);

enum { NCCL_SUCCESS = 0, NCCL_UNHANDLED_CUDA_ERROR = 1, NCCL_SYSTEM_ERROR = 2, NCCL_INVALID_ARGUMENT = 4 };

#define COMMUNICATOR_MAGIC 0x4e43434cu
#define BYTES_PER_BLOCK 200000 /* a block takes a microsecond: 200 GB/s */
#define TYPES 12

typedef struct {
	char internal[128];
} ncclUniqueId;

struct communicator {
	uint32_t magic;
	int rank;
	int ranks;
};

static const uint8_t TYPE_BYTES[TYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1}; /* ncclDataType_t */

#if defined(__x86_64__)
#define ENTRY_BODY(name) "\tpush %rbp\n\tmov %rsp, %rbp\n\tpop %rbp\n\tjmp sim_" name "\n"
#else
#define ENTRY_BODY(name) "\tnop\n\tb sim_" name "\n"
#endif
#define ENTRY(name)                                                                                            \
	__asm__(".text\n\t.p2align 4\n\t.globl p" #name "\n\t.type p" #name ", %function\n\t.weak " #name      \
		"\n\t.type " #name ", %function\np" #name ":\n" #name ":\n" ENTRY_BODY(#name) "\t.size p" #name \
		", .-p" #name "\n\t.size " #name ", .-" #name "\n");
#define COLLECTIVE(name) \
	ENTRY(name)      \
	__attribute__((visibility("hidden"), used)) ncclResult_t sim_##name

static ncclResult_t work(const struct communicator *communicator, size_t count, int type, void *stream)
{
	uint64_t blocks;

	if (!communicator || communicator->magic != COMMUNICATOR_MAGIC || type < 0 || type >= TYPES)
		return NCCL_INVALID_ARGUMENT;
	blocks = 1 + count * TYPE_BYTES[type] / BYTES_PER_BLOCK;
	if (cuLaunchKernel(TYPE_BYTES, (unsigned)blocks, 1, 1, 256, 1, 1, 0, stream, NULL, NULL))
		return NCCL_UNHANDLED_CUDA_ERROR;
	return NCCL_SUCCESS;
}

COLLECTIVE(ncclGetVersion)(int *version)
{
	*version = 23203;
	return NCCL_SUCCESS;
}

COLLECTIVE(ncclGetUniqueId)(ncclUniqueId *id)
{
	memset(id, 0, sizeof(*id));
	strcpy(id->internal, "simulated");
	return NCCL_SUCCESS;
}

COLLECTIVE(ncclCommInitRank)(struct communicator **out, int ranks, ncclUniqueId id, int rank)
{
	struct communicator *made;

	(void)id;
	if (!out || ranks < 1 || rank < 0 || rank >= ranks)
		return NCCL_INVALID_ARGUMENT;
	made = calloc(1, sizeof(*made));
	if (!made)
		return NCCL_SYSTEM_ERROR;
	*made = (struct communicator){COMMUNICATOR_MAGIC, rank, ranks};
	*out = made;
	return NCCL_SUCCESS;
}

COLLECTIVE(ncclCommCount)(const struct communicator *communicator, int *count)
{
	*count = communicator->ranks;
	return NCCL_SUCCESS;
}

COLLECTIVE(ncclCommUserRank)(const struct communicator *communicator, int *rank)
{
	*rank = communicator->rank;
	return NCCL_SUCCESS;
}

COLLECTIVE(ncclCommGetAsyncError)(const struct communicator *communicator, ncclResult_t *result)
{
	(void)communicator;
	*result = NCCL_SUCCESS;
	return NCCL_SUCCESS;
}

COLLECTIVE(ncclCommDestroy)(struct communicator *communicator)
{
	if (!communicator || communicator->magic != COMMUNICATOR_MAGIC)
		return NCCL_INVALID_ARGUMENT;
	communicator->magic = 0;
	free(communicator);
	return NCCL_SUCCESS;
}

COLLECTIVE(ncclGroupStart)(void) { return NCCL_SUCCESS; }
COLLECTIVE(ncclGroupEnd)(void) { return NCCL_SUCCESS; }

COLLECTIVE(ncclAllReduce)(const void *from, void *to, size_t count, int type, int operation,
			  struct communicator *communicator, void *stream)
{
	(void)from, (void)to, (void)operation;
	return work(communicator, count, type, stream);
}

COLLECTIVE(ncclReduceScatter)(const void *from, void *to, size_t count, int type, int operation,
			      struct communicator *communicator, void *stream)
{
	(void)from, (void)to, (void)operation;
	return work(communicator, count, type, stream);
}

COLLECTIVE(ncclBroadcast)(const void *from, void *to, size_t count, int type, int root,
			  struct communicator *communicator, void *stream)
{
	(void)from, (void)to, (void)root;
	return work(communicator, count, type, stream);
}

COLLECTIVE(ncclReduce)(const void *from, void *to, size_t count, int type, int operation, int root,
		       struct communicator *communicator, void *stream)
{
	(void)from, (void)to, (void)operation, (void)root;
	return work(communicator, count, type, stream);
}

COLLECTIVE(ncclAllGather)(const void *from, void *to, size_t count, int type, struct communicator *communicator,
			  void *stream)
{
	(void)from, (void)to;
	return work(communicator, count, type, stream);
}

COLLECTIVE(ncclSend)(const void *from, size_t count, int type, int peer, struct communicator *communicator,
		     void *stream)
{
	(void)from, (void)peer;
	return work(communicator, count, type, stream);
}

COLLECTIVE(ncclRecv)(void *to, size_t count, int type, int peer, struct communicator *communicator, void *stream)
{
	(void)to, (void)peer;
	return work(communicator, count, type, stream);
}
