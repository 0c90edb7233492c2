// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * What was allocated, where and how large, for whom: read at the return, from what the call wrote. Handles of what
 * was made elsewhere are among it, and addresses that nodes of graphs give out.
 */
#ifndef HOTSTAGE_LEDGER_NEW_H
#define HOTSTAGE_LEDGER_NEW_H

#include "arguments.h"
#include "graphs.h"
#include "ledger_maps.h"

#define MEMORY_PROPERTIES_LOCATION 8 /* offsetof(CUmemAllocationProp, location), cuda.h */
#define MEMORY_LOCATION_DEVICE 1     /* CU_MEM_LOCATION_TYPE_DEVICE, cuda.h */
#define MEMORY_RESULT_OUT_OF_MEMORY 2 /* CUDA_ERROR_OUT_OF_MEMORY, cuda.h */

/* CUDA_ARRAY3D_DESCRIPTOR, cuda.h: what is mapped into these later is memory of its own. */
#define ARRAY_FLAGS 32
#define ARRAY_IS_SPARSE 0x40
#define ARRAY_IS_MAPPED_LATER 0x80

/* CUgraphNodeParams and CUDA_MEM_ALLOC_NODE_PARAMS, cuda.h */
#define NODE_ALLOCATES 10  /* CU_GRAPH_NODE_TYPE_MEM_ALLOC */
#define NODE_ADDRESS 8	   /* dptr stands behind bytesize */
#define NODE_BARE_BYTES 104 /* offsetof(CUDA_MEM_ALLOC_NODE_PARAMS, bytesize); more: behind a type */

static __always_inline void name_owner(struct allocation *made, const struct thread_state *thread)
{
	made->context = thread->context;
	made->stage = thread->stage;
	made->modality = thread->modality;
	if (made->stage == HOTSTAGE_NO_STAGE) {
		made->stage = thread->inferred_stage;
		made->modality = thread->inferred_modality;
	}
}

/* What cuMemCreate made is of the device that its properties name, whichever is current. */
static __always_inline __u8 device_of_properties(__u64 properties)
{
	__u32 location[2] = {}; /* type, id */

	if (bpf_probe_read_user(location, sizeof(location),
				(void *)(properties + MEMORY_PROPERTIES_LOCATION))) {
		count_loss(UNREADABLE_ARGUMENTS);
		return HOTSTAGE_NO_DEVICE;
	}
	return location[0] == MEMORY_LOCATION_DEVICE && location[1] < HOTSTAGE_NO_DEVICE ?
		       location[1] :
		       HOTSTAGE_NO_DEVICE;
}

/*
 * A node of a graph: its parameters say what it is, and later where it will be. `argument` is their size already, or
 * something else of a node that allocates nothing.
 */
static __always_inline void enter_node(struct pt_regs *ctx, struct thread_state *thread,
				       const struct call_spec *spec)
{
	__u64 parameters = register_argument(ctx, spec->factor_argument);
	__u32 type = NODE_ALLOCATES;

	thread->second_argument = parameters + spec->type_argument + NODE_ADDRESS;
	if (spec->type_argument > NODE_BARE_BYTES &&
	    bpf_probe_read_user(&type, sizeof(type), (void *)parameters))
		count_loss(UNREADABLE_ARGUMENTS);
	if (type != NODE_ALLOCATES)
		thread->argument = thread->second_argument = 0;
}

/* An array without a size is one of a format that is not known, or one without memory of its own. */
static __always_inline __u32 is_array_unsized(const struct thread_state *thread, const struct call_spec *spec)
{
	__u32 flags = 0;

	if (thread->argument || !spec->bytes_argument)
		return 0;
	if (spec->bytes_argument == HOTSTAGE_BYTES_IN_ARRAY)
		return 1;
	if (bpf_probe_read_user(&flags, sizeof(flags), (void *)(thread->third_argument + ARRAY_FLAGS)))
		count_loss(UNREADABLE_ARGUMENTS);
	return !(flags & (ARRAY_IS_SPARSE | ARRAY_IS_MAPPED_LATER));
}

/* Where and how large, from what the call wrote; 0 where it cannot be read. */
static __always_inline __u32 read_new(struct thread_state *thread, const struct call_spec *spec, __u32 tid,
				      struct allocation_key *key, struct allocation *made)
{
	__u32 kind = spec->detail;
	__u64 pitch = 0;

	made->kind = kind;
	made->bytes = thread->argument;
	made->device = kind == MEMORY_HOST || kind == MEMORY_RESERVED || kind == MEMORY_MULTICAST ?
			       HOTSTAGE_NO_DEVICE :
			       thread->device;
	made->handle = is_held(kind);
	if (kind == MEMORY_GRAPH && !thread->second_argument)
		return 0;
	if (bpf_probe_read_user(&key->address, sizeof(key->address), (void *)thread->second_argument)) {
		count_loss(UNREADABLE_ARGUMENTS);
		return 0;
	}
	if (kind == MEMORY_PITCHED) {
		if (bpf_probe_read_user(&pitch, sizeof(pitch), (void *)thread->third_argument))
			count_loss(UNREADABLE_ARGUMENTS);
		else
			made->bytes = pitch * thread->ordinal;
	}
	if (kind == MEMORY_PHYSICAL)
		made->device = device_of_properties(thread->third_argument);
	if (kind == MEMORY_ARRAY && is_array_unsized(thread, spec))
		made->flags = ALLOCATION_IS_UNSIZED;
	if (kind == MEMORY_POOL && is_captured(thread, key->tgid, tid))
		made->kind = MEMORY_GRAPH;
	return key->address != 0;
}

/* Another owner: of a handle or an address that is known, or of memory that was made elsewhere. */
static __always_inline __u32 read_held(const struct thread_state *thread, __u32 kind,
				       struct allocation_key *key, struct allocation *made)
{
	struct allocation *known;

	if (bpf_probe_read_user(&key->address, sizeof(key->address), (void *)thread->second_argument)) {
		count_loss(UNREADABLE_ARGUMENTS);
		return 0;
	}
	known = bpf_map_lookup_elem(&allocations, key);
	if (known && is_held(known->kind)) {
		__sync_fetch_and_add(&known->handle, 1);
		return 0;
	}
	made->kind = kind;
	made->flags = ALLOCATION_IS_UNSIZED;
	made->device = thread->device;
	made->handle = 1;
	return 1;
}

/* An allocation failed: what it asked for, and when, for whoever knows how much was free. */
static __always_inline void note_failure(const struct thread_state *thread, __u32 tgid, __u32 kind,
					 __u64 now)
{
	__u8 device = kind == MEMORY_PHYSICAL ? device_of_properties(thread->third_argument) :
						thread->device;
	struct memory_sum *sum = memory_sum_of(tgid, kind, device);

	if (!sum)
		return;
	__sync_fetch_and_add(&sum->failed_count, 1);
	sum->failed_bytes = thread->argument;
	sum->failed_ns = now;
}

#endif
