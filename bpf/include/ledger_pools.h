// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * What pools, and the memory of graphs, say of themselves where their process asks them; forgotten once it is not
 * true any more.
 */
#ifndef HOTSTAGE_LEDGER_POOLS_H
#define HOTSTAGE_LEDGER_POOLS_H

#include "ledger_maps.h"

/* CUmemPool_attribute, cuda.h */
#define POOL_RESERVED 5
#define POOL_RESERVED_HIGH 6
#define POOL_USED 7
#define POOL_USED_HIGH 8

/* A device's memory of graphs has no handle of its own; CUgraphMem_attribute counts used, used at most, reserved, .. */
#define POOL_OF_GRAPHS(device) (~0ULL - (__u32)(device))
#define POOL_ATTRIBUTE_OF_GRAPHS(attribute) (((attribute) ^ 2) + POOL_RESERVED)

/* `detail` of the call says whose: a pool's, or those of a device's graphs. */
static __always_inline __u64 pool_of(const struct thread_state *thread, const struct call_spec *spec)
{
	return spec->detail == MEMORY_GRAPH ? POOL_OF_GRAPHS(thread->second_argument) :
					      thread->second_argument;
}

static __always_inline void note_pool(const struct thread_state *thread, const struct call_spec *spec, __u32 tgid,
				      __u64 now)
{
	struct function_key key = {.handle = pool_of(thread, spec), .tgid = tgid};
	struct memory_pool *pool = bpf_map_lookup_elem(&memory_pools, &key), none = {};
	__u32 attribute = thread->ordinal;
	__u64 value;

	if (spec->detail == MEMORY_GRAPH)
		attribute = POOL_ATTRIBUTE_OF_GRAPHS(attribute);
	if (attribute < POOL_RESERVED || attribute > POOL_USED_HIGH)
		return;
	if (bpf_probe_read_user(&value, sizeof(value), (void *)thread->third_argument)) {
		count_loss(UNREADABLE_ARGUMENTS);
		return;
	}
	if (!pool) {
		none.device = spec->detail == MEMORY_GRAPH ? (__u32)thread->second_argument : thread->device;
		if (hold_share(tgid, SHARE_POOLS) && bpf_map_update_elem(&memory_pools, &key, &none, BPF_NOEXIST))
			free_share(tgid, SHARE_POOLS);
		pool = bpf_map_lookup_elem(&memory_pools, &key);
	}
	if (!pool) {
		count_loss(LOST_ALLOCATIONS);
		return;
	}
	switch (attribute) {
	case POOL_RESERVED:
		pool->reserved_bytes = value;
		pool->reserved_ns = now;
		break;
	case POOL_RESERVED_HIGH:
		pool->reserved_high_bytes = value;
		break;
	case POOL_USED:
		pool->used_bytes = value;
		pool->used_ns = now;
		break;
	default:
		pool->used_high_bytes = value;
	}
}

/* It was trimmed or destroyed: what it said before is not so any more. */
static __always_inline void forget_pool(const struct thread_state *thread, const struct call_spec *spec, __u32 tgid)
{
	struct function_key key = {.handle = pool_of(thread, spec), .tgid = tgid};

	if (!bpf_map_delete_elem(&memory_pools, &key))
		free_share(tgid, SHARE_POOLS);
}

#endif
