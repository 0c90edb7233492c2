// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * What is allocated now, and its sums. An entry of `allocations` goes with its free; all of a process's
 * go, by user space, with the process.
 *
 * Sums are many writers' and have no lock. Whoever takes an entry out of `allocations` takes it off the
 * sums, so that each is taken off once; a row of the sums exists before the first entry that counts in it.
 */
#ifndef HOTSTAGE_LEDGER_MAPS_H
#define HOTSTAGE_LEDGER_MAPS_H

#include "maps.h"
#include "ledger_abi.h"

HOTSTAGE_SPARSE_HASH(allocations, struct allocation_key, struct allocation, 131072);
HOTSTAGE_SPARSE_HASH(memory_sums, struct memory_key, struct memory_sum, 8192);
HOTSTAGE_ARRAY(memory_zero, struct memory_sum, 1); /* never written: 144 bytes of the stack */
HOTSTAGE_SPARSE_HASH(memory_stages, struct memory_stage_key, struct memory_stage, 16384);
HOTSTAGE_SPARSE_HASH(memory_pools, struct function_key, struct memory_pool, 4096);
HOTSTAGE_SPARSE_HASH(primary_contexts, struct device_key, struct primary_context, 4096);

/* A highest value that more than this many writers raise at the same moment is the one of some of them. */
#define LEDGER_RAISES 8

static __always_inline __u32 space_of(__u32 kind)
{
	switch (kind) {
	case MEMORY_PHYSICAL:
	case MEMORY_IMPORTED:
	case MEMORY_MULTICAST:
		return SPACE_HANDLES;
	case MEMORY_MAPPED:
		return SPACE_MAPPINGS;
	case MEMORY_RESERVED:
		return SPACE_RESERVATIONS;
	case MEMORY_ARRAY:
		return SPACE_ARRAYS;
	}
	return SPACE_POINTERS;
}

/* What may have several owners, and goes with the last. */
static __always_inline __u32 is_held(__u32 kind)
{
	return kind == MEMORY_PHYSICAL || kind == MEMORY_IMPORTED || kind == MEMORY_SHARED ||
	       kind == MEMORY_MULTICAST;
}

/* What takes room on a GPU (managed memory may). A mapping is counted by the physical memory behind it. */
static __always_inline __u32 is_for_gpus(__u32 kind)
{
	return kind == MEMORY_PHYSICAL || kind == MEMORY_ARRAY ||
	       (kind >= MEMORY_DEVICE && kind <= MEMORY_POOL);
}

static __always_inline void raise_to(__u64 *high, __u64 value)
{
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < LEDGER_RAISES; i++) {
		__u64 seen = *(volatile __u64 *)high;

		if (seen >= value || __sync_val_compare_and_swap(high, seen, value) == seen)
			return;
	}
}

/* Made where there is none; NULL where memory_sums is full. */
static __always_inline struct memory_sum *memory_sum_of(__u32 tgid, __u8 kind, __u8 device)
{
	struct memory_key key = {.tgid = tgid, .kind = kind, .device = device};
	struct memory_sum *sum = bpf_map_lookup_elem(&memory_sums, &key), *none;
	__u32 zero = 0;

	if (sum)
		return sum;
	none = bpf_map_lookup_elem(&memory_zero, &zero);
	if (none)
		bpf_map_update_elem(&memory_sums, &key, none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&memory_sums, &key);
}

/*
 * The same by stage. A process may have HOTSTAGE_MEMORY_STAGES of them, counted in `live_count` of its own
 * row of the sums.
 */
static __always_inline struct memory_stage *memory_stage_of(const struct memory_stage_key *key)
{
	struct memory_stage *row = bpf_map_lookup_elem(&memory_stages, key), none = {};
	struct memory_sum *process;

	if (row)
		return row;
	process = memory_sum_of(key->tgid, MEMORY_NONE, HOTSTAGE_NO_DEVICE);
	if (!process || process->live_count >= HOTSTAGE_MEMORY_STAGES)
		return 0;
	if (!bpf_map_update_elem(&memory_stages, key, &none, BPF_NOEXIST))
		__sync_fetch_and_add(&process->live_count, 1);
	return bpf_map_lookup_elem(&memory_stages, key);
}

/* The row that an allocation counts in; NULL where it counts in none. */
static __always_inline struct memory_stage *stage_row_for(struct allocation *made, __u32 tgid)
{
	struct memory_stage_key key = {
		.tgid = tgid,
		.device = made->device,
		.stage = made->stage,
		.modality = made->modality,
	};
	struct memory_stage *row;

	if (!is_for_gpus(made->kind))
		return 0;
	row = memory_stage_of(&key);
	if (row)
		made->flags |= ALLOCATION_IS_STAGED;
	else
		count_loss(LOST_ALLOCATIONS);
	return row;
}

static __always_inline void add_to_stage(struct memory_stage *row, __u64 bytes)
{
	raise_to(&row->high_bytes, __sync_fetch_and_add(&row->live_bytes, bytes) + bytes);
	__sync_fetch_and_add(&row->live_count, 1);
	__sync_fetch_and_add(&row->allocated_bytes, bytes);
}

static __always_inline void add_to_sum(struct memory_sum *sum, __u64 bytes)
{
	raise_to(&sum->high_bytes, __sync_fetch_and_add(&sum->live_bytes, bytes) + bytes);
	__sync_fetch_and_add(&sum->live_count, 1);
	__sync_fetch_and_add(&sum->allocated_bytes, bytes);
	__sync_fetch_and_add(&sum->allocated_count, 1);
	if (bytes && sum->last_freed_bytes == bytes)
		__sync_fetch_and_add(&sum->refilled_count, 1);
}

static __always_inline void take_off_stage(const struct allocation *freed, __u32 tgid)
{
	struct memory_stage_key key = {
		.tgid = tgid,
		.device = freed->device,
		.stage = freed->stage,
		.modality = freed->modality,
	};
	struct memory_stage *row;

	if (!(freed->flags & ALLOCATION_IS_STAGED))
		return;
	row = bpf_map_lookup_elem(&memory_stages, &key);
	if (!row)
		return;
	__sync_fetch_and_add(&row->live_bytes, -freed->bytes);
	__sync_fetch_and_add(&row->live_count, -1);
}

/* The entry is out of `allocations`, and whoever calls took it out. */
HOTSTAGE_PART __u32 take_off(const struct allocation *freed, __u32 tgid, __u32 is_implicit)
{
	struct memory_key key = {.tgid = tgid};
	struct memory_sum *sum;

	if (!freed)
		return 0;
	key.kind = freed->kind;
	key.device = freed->device;
	sum = bpf_map_lookup_elem(&memory_sums, &key);
	if (freed->flags & ALLOCATION_IS_CHARGED)
		free_share(tgid, SHARE_ALLOCATIONS);
	take_off_stage(freed, tgid);
	if (!sum)
		return 0;
	__sync_fetch_and_add(&sum->live_bytes, -freed->bytes);
	__sync_fetch_and_add(&sum->live_count, -1);
	if (freed->flags & ALLOCATION_IS_UNSIZED)
		__sync_fetch_and_add(&sum->unsized_count, -1);
	if (is_implicit) {
		__sync_fetch_and_add(&sum->implicit_bytes, freed->bytes);
		__sync_fetch_and_add(&sum->implicit_count, 1);
	} else {
		__sync_fetch_and_add(&sum->freed_bytes, freed->bytes);
		__sync_fetch_and_add(&sum->freed_count, 1);
		sum->last_freed_bytes = freed->bytes;
	}
	return 0;
}

/* Take an entry out; 0 where another CPU was first, or it never was there. */
static __always_inline __u32 claim_allocation(const struct allocation_key *key, struct allocation *taken)
{
	struct allocation *found = bpf_map_lookup_elem(&allocations, key);

	if (!found)
		return 0;
	*taken = *found;
	return !bpf_map_delete_elem(&allocations, key);
}

/*
 * Remember what was allocated. An address that is known already was given out again, so what was there is
 * free: its free was not seen. The program does not have the address yet, so nobody frees it meanwhile.
 */
static __always_inline void put_in(const struct allocation_key *key, struct allocation *made)
{
	struct memory_sum *sum = memory_sum_of(key->tgid, made->kind, made->device);
	__u64 *held = share_of(key->tgid, SHARE_ALLOCATIONS);
	struct memory_stage *row;
	struct allocation before;
	if (claim_allocation(key, &before)) {
		if (before.kind != MEMORY_GRAPH) /* which is given back with its graph, by no call of its own */
			count_loss(UNMATCHED_FREES);
		take_off(&before, key->tgid, 1);
	}
	if (!sum) {
		count_loss(LOST_ALLOCATIONS);
		return;
	}
	if (held)
		made->flags |= ALLOCATION_IS_CHARGED;
	row = stage_row_for(made, key->tgid);
	if (has_its_share(held, SHARE_ALLOCATIONS) ||
	    bpf_map_update_elem(&allocations, key, made, BPF_NOEXIST)) {
		count_loss(LOST_ALLOCATIONS);
		__sync_fetch_and_add(&sum->untracked_bytes, made->bytes);
		__sync_fetch_and_add(&sum->untracked_count, 1);
		return;
	}
	hold_one_more(held);
	if (row)
		add_to_stage(row, made->bytes);
	add_to_sum(sum, made->bytes);
	if (made->flags & ALLOCATION_IS_UNSIZED)
		__sync_fetch_and_add(&sum->unsized_count, 1);
}

#endif
