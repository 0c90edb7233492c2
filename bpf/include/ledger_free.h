// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Frees, and who holds what is held: at their entry what they free is taken out, at their return it is off the
 * sums, or back in where they failed. Why at the entry: ledger.h.
 */
#ifndef HOTSTAGE_LEDGER_FREE_H
#define HOTSTAGE_LEDGER_FREE_H

#include "ledger_maps.h"

/* Of a free in flight, in `third_argument`: what it freed was allocated then; or one of these. */
#define FREES_NOTHING_KNOWN 0
#define FREES_A_HOLD (~0ULL) /* what is still held, by a mapping or by another owner */
#define FREES_A_NODE (~0ULL - 1) /* memory of a graph, whose address is its node's at the next launch, too */

/* One hold of a handle less; the physical memory goes with the last. */
HOTSTAGE_PART __u32 drop_hold(__u32 tgid, __u64 handle)
{
	struct allocation_key key = {.address = handle, .tgid = tgid, .space = SPACE_HANDLES};
	struct allocation *physical = bpf_map_lookup_elem(&allocations, &key), taken;

	if (physical && __sync_fetch_and_add(&physical->handle, -1) == 1 && claim_allocation(&key, &taken))
		take_off(&taken, tgid, 0);
	return 0;
}

/* What a free is about to free is the thread's from now on: its bytes, its age, and the rest packed. */
HOTSTAGE_PART __u32 enter_free(struct thread_state *thread, __u32 tgid, __u32 kind)
{
	struct allocation_key key = {.tgid = tgid, .space = space_of(kind)};
	struct allocation *found, taken;

	if (!thread)
		return 0;
	key.address = thread->second_argument;
	found = bpf_map_lookup_elem(&allocations, &key);
	thread->argument = 0;
	thread->third_argument = FREES_NOTHING_KNOWN;
	if (!found)
		return 0;
	if (found->kind == MEMORY_GRAPH) {
		thread->third_argument = FREES_A_NODE;
		return 0;
	}
	if (is_held(found->kind) && __sync_fetch_and_add(&found->handle, -1) > 1) {
		thread->third_argument = FREES_A_HOLD;
		return 0;
	}
	if (!claim_allocation(&key, &taken))
		return 0;
	thread->argument = taken.bytes;
	thread->third_argument = taken.since_ns;
	thread->ordinal = taken.stage | taken.modality << 8 | taken.device << 16 |
			  (__u32)(taken.kind | taken.flags << 4) << 24;
	return 0;
}

/*
 * A free has returned. One that failed has freed nothing: `made` is what was taken out at its entry, to
 * be put in again (1). Its context is forgotten then.
 */
static __always_inline __u32 leave_free(struct thread_state *thread, __u32 tgid, __u32 kind, __s32 result,
					struct allocation_key *key, struct allocation *made)
{
	struct allocation *physical;
	struct memory_sum *sum;

	key->address = thread->second_argument;
	if (thread->third_argument == FREES_A_HOLD) {
		physical = result ? bpf_map_lookup_elem(&allocations, key) : 0;
		if (physical)
			__sync_fetch_and_add(&physical->handle, 1);
		return 0;
	}
	if (thread->third_argument == FREES_A_NODE)
		return 0;
	if (thread->third_argument == FREES_NOTHING_KNOWN) {
		if (result || !key->address)
			return 0;
		count_loss(UNMATCHED_FREES);
		sum = memory_sum_of(tgid, kind, HOTSTAGE_NO_DEVICE);
		if (sum)
			__sync_fetch_and_add(&sum->unmatched_frees, 1);
		return 0;
	}
	made->bytes = thread->argument;
	made->since_ns = thread->third_argument;
	made->stage = thread->ordinal & 0xff;
	made->modality = thread->ordinal >> 8 & 0xff;
	made->device = thread->ordinal >> 16 & 0xff;
	made->kind = thread->ordinal >> 24 & 0xf;
	made->flags = thread->ordinal >> 28;
	made->handle = is_held(made->kind);
	if (!result)
		take_off(made, tgid, 0);
	return result != 0;
}

/* The live bytes stay as they were: only the entry had been taken out. */
static __always_inline void put_back(const struct allocation_key *key, const struct allocation *kept)
{
	if (bpf_map_update_elem(&allocations, key, kept, BPF_NOEXIST)) {
		count_loss(LOST_ALLOCATIONS);
		take_off(kept, key->tgid, 1);
	}
}

#endif
