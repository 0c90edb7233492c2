// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Contexts, and what ends with them: pointers and arrays that nobody freed.
 */
#ifndef HOTSTAGE_LEDGER_ENDS_H
#define HOTSTAGE_LEDGER_ENDS_H

#include "ledger_maps.h"
#include "ledger_notes.h"

/*
 * A primary context is held once more; the first hold makes it. A process that had made other calls before
 * the first one that was seen had a context already.
 */
static __always_inline void hold_primary(__u32 tgid, __u32 ordinal, __u64 context)
{
	struct device_key key = {.tgid = tgid, .ordinal = ordinal};
	struct primary_context *known = bpf_map_lookup_elem(&primary_contexts, &key);
	struct primary_context fresh = {.context = context, .holds = 1};
	__u64 *kinds;

	if (known && known->context == context) {
		__sync_fetch_and_add(&known->holds, 1);
		return;
	}
	kinds = share_of(tgid, SHARE_CALL_STATS);
	fresh.kinds_before = kinds ? *kinds : ~0ULL;
	if (!known && !hold_share(tgid, SHARE_PRIMARIES)) {
		count_loss(LOST_CONTEXTS);
	} else if (bpf_map_update_elem(&primary_contexts, &key, &fresh, BPF_ANY)) {
		count_loss(LOST_CONTEXTS);
		if (!known)
			free_share(tgid, SHARE_PRIMARIES);
	}
}

/* A context is about to be destroyed: from here on its handle may be another one's. */
HOTSTAGE_PART __u32 drop_context(__u64 context, __u32 tgid)
{
	struct context_key key = {.tgid = tgid, .context = context};

	if (!bpf_map_delete_elem(&contexts, &key))
		free_share(tgid, SHARE_CONTEXTS);
	return 0;
}

#ifndef HOTSTAGE_BCC /* ledger_notes.h */
/*
 * What ends with a context: pointers and arrays. Physical memory and addresses are the process's. Allocated later:
 * another context's.
 */
static long end_with_context(void *map, struct allocation_key *key, struct allocation *held,
			     struct ended_context *ended)
{
	struct allocation taken;

	(void)map;
	if (key->tgid != ended->tgid || held->since_ns > ended->until_ns ||
	    (key->space != SPACE_POINTERS && key->space != SPACE_ARRAYS))
		return 0;
	if (held->kind == MEMORY_POOL ? !ended->with_pools || held->device != ended->device :
	    ended->context	      ? held->context != ended->context :
					held->device != ended->device)
		return 0;
	if (claim_allocation(key, &taken))
		take_off(&taken, ended->tgid, 1);
	return 0;
}

#endif

/* What `is_context_end` said of a call that has returned: after everything else of it. */
static __always_inline void end_context(const struct thread_state *thread, __u32 tgid, __u32 how)
{
	struct ended_context ended = {
		.context = thread->second_argument,
		.until_ns = thread->since_ns,
		.tgid = tgid,
		.device = HOTSTAGE_NO_DEVICE,
	};
	struct device_key key = {.tgid = tgid, .ordinal = (__u32)thread->second_argument};
	struct primary_context *primary;

	if (how != CONTEXT_DESTROYED) {
		primary = bpf_map_lookup_elem(&primary_contexts, &key);
		if (how == PRIMARY_RELEASED &&
		    (!primary || __sync_fetch_and_add(&primary->holds, -1) > 1))
			return;
		ended.context = primary ? primary->context : 0;
		ended.device = key.ordinal;
		ended.with_pools = how == PRIMARY_RESET;
		if (!bpf_map_delete_elem(&primary_contexts, &key))
			free_share(tgid, SHARE_PRIMARIES);
	}
#ifdef HOTSTAGE_BCC
	note_end(&ended);
#else
	bpf_for_each_map_elem(&allocations, end_with_context, &ended, 0);
#endif
}

#endif
