// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Addresses and the physical memory behind them: cuMemMap and cuMemUnmap. A mapping holds its handle, so that
 * physical memory goes with its last owner or its last mapping, whichever is later.
 */
#ifndef HOTSTAGE_LEDGER_VMM_H
#define HOTSTAGE_LEDGER_VMM_H

#include "arguments.h"
#include "ledger_free.h"
#include "ledger_notes.h"

/* A mapping is gone: it is out of `allocations` already. */
static __always_inline void take_off_mapping(const struct allocation *gone, __u32 tgid)
{
	take_off(gone, tgid, 0);
	drop_hold(tgid, gone->handle);
}

#ifndef HOTSTAGE_BCC /* ledger_notes.h */
struct unmapped_range {
	__u64 from;
	__u64 end;
	__u64 found_bytes;
	__u32 tgid;
	__u32 pad;
};

static long unmap_within(void *map, struct allocation_key *key, struct allocation *held,
			 struct unmapped_range *range)
{
	struct allocation taken;

	(void)map, (void)held;
	if (key->tgid != range->tgid || key->space != SPACE_MAPPINGS || key->address < range->from ||
	    key->address >= range->end)
		return 0;
	if (claim_allocation(key, &taken)) {
		take_off_mapping(&taken, range->tgid);
		range->found_bytes += taken.bytes;
	}
	return 0;
}
#endif

/*
 * cuMemUnmap takes a range of whole mappings, mostly of one. Of several, some may be older than the attach, so
 * that nothing says where the next one begins: all entries are looked through then, by `unmap_rest`.
 */
HOTSTAGE_PART __u32 enter_unmap(struct thread_state *thread, __u32 tgid)
{
	struct allocation_key key = {.tgid = tgid, .space = SPACE_MAPPINGS};
	struct allocation taken;

	if (!thread)
		return 0;
	key.address = thread->second_argument;
	thread->third_argument = 0; /* bytes that were found mapped */
#pragma clang loop unroll(disable)
	for (__u32 at = 0; at < UNMAPPED_IN_A_ROW; at++) {
		if (thread->third_argument >= thread->argument || !claim_allocation(&key, &taken))
			break;
		take_off_mapping(&taken, tgid);
		thread->third_argument += taken.bytes;
		key.address += taken.bytes;
	}
	return 0;
}

/* Whether the call that was just entered unmaps more than was found; under bcc that is told at its return. */
static __always_inline __u32 has_rest(const struct thread_state *thread, const struct call_spec *spec)
{
#ifdef HOTSTAGE_BCC
	(void)thread, (void)spec;
	return 0;
#else
	return spec->effect == EFFECT_MEMORY_UNMAP && thread->third_argument < thread->argument;
#endif
}

#ifndef HOTSTAGE_BCC
static __always_inline void unmap_rest(struct thread_state *thread, __u32 tgid)
{
	struct unmapped_range rest = {
		.from = thread->second_argument + thread->third_argument,
		.end = thread->second_argument + thread->argument,
		.tgid = tgid,
	};

	bpf_for_each_map_elem(&allocations, unmap_within, &rest, 0);
	thread->third_argument += rest.found_bytes;
}
#endif

/* A mapping holds its handle from here on, so that a release in between does not free it. */
static __always_inline void enter_map(struct pt_regs *ctx, struct thread_state *thread,
				      const struct call_spec *spec, __u32 tgid)
{
	struct allocation_key key = {
		.address = register_argument(ctx, spec->device_argument),
		.tgid = tgid,
		.space = SPACE_HANDLES,
	};
	struct allocation *physical = bpf_map_lookup_elem(&allocations, &key);

	thread->third_argument = key.address;
	thread->ordinal = thread->device;
	if (!physical)
		return;
	__sync_fetch_and_add(&physical->handle, 1);
	thread->ordinal = physical->device;
}

static __always_inline void leave_unmap(const struct thread_state *thread, __u32 tgid, __s32 result)
{
	if (result) { /* what was there is still mapped, and not known any more */
		if (thread->third_argument)
			count_loss(LOST_ALLOCATIONS);
		return;
	}
	if (thread->third_argument < thread->argument)
		miss_mappings(thread, tgid);
}

#endif
