// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * How often was which call made, how long did it take? The sums of a key (tgid, call, stage, modality,
 * device), made at its first call, and its histogram.
 */
#ifndef HOTSTAGE_CALL_COUNTS_H
#define HOTSTAGE_CALL_COUNTS_H

#include "maps.h"
#include "histogram.h"
#include "levels.h"

static __always_inline struct call_key key_of(const struct thread_state *thread, __u32 tgid,
					      __u64 cookie)
{
	struct call_key key = {
		.tgid = tgid,
		.call = (__u16)cookie,
		.stage = HOTSTAGE_NO_STAGE,
		.modality = HOTSTAGE_MODALITIES - 1,
		.device = HOTSTAGE_NO_DEVICE,
		.layer = (__u8)(cookie >> 16),
	};

	if (thread) {
		key.stage = thread->stage;
		key.modality = thread->modality;
		key.device = thread->device;
		if (key.stage == HOTSTAGE_NO_STAGE) {
			key.stage = thread->inferred_stage;
			key.modality = thread->inferred_modality;
		}
	}
	return key;
}

/* The first call of a key: the sums are made, where there is room and the process has not its share yet. */
HOTSTAGE_PART __u32 begin_stat(const struct call_key *of, __u32 is_timed)
{
	struct call_stat fresh = {};
	struct call_key key;
	__u64 *held;

	if (!of)
		return 0;
	key = *of;
	held = share_of(key.tgid, SHARE_CALL_STATS);
	if (has_its_share(held, SHARE_CALL_STATS))
		return 0;
	/* The second half of a process's keys has none, so that it does not take all. */
	if (is_timed && ((held && *held > share_limit(SHARE_CALL_STATS) / 2) ||
			 bpf_map_pop_elem(&free_histograms, &fresh.histogram_slot))) {
		fresh.histogram_slot = 0;
		count_loss(LOST_HISTOGRAMS);
	}
	/* Another CPU may have been first: then its entry holds, and our histogram goes back. */
	if (!bpf_map_update_elem(&call_stats, &key, &fresh, BPF_NOEXIST))
		hold_one_more(held);
	else if (fresh.histogram_slot)
		bpf_map_push_elem(&free_histograms, &fresh.histogram_slot, BPF_ANY);
	return 0;
}

/*
 * The sums of a key, made at its first call. NULL when call_stats, or the process's share of it, is
 * full: the call is lost, and counted as that.
 */
static __always_inline struct call_stat *stat_of(struct call_key *key, __u32 is_timed)
{
	struct call_stat *stat = bpf_map_lookup_elem(&call_stats, key);

	if (stat)
		return stat;
	begin_stat(key, is_timed);
	stat = bpf_map_lookup_elem(&call_stats, key);
	if (!stat)
		count_loss(LOST_CALL_KEYS);
	return stat;
}

static __always_inline void add_duration(struct call_stat *stat, __u64 duration)
{
	__u32 row = stat->histogram_slot, slot;
	struct call_histogram *histogram;

	__sync_fetch_and_add(&stat->total_ns, duration);
	if (!row)
		return;
	histogram = bpf_map_lookup_elem(&call_histograms, &row);
	slot = histogram_slot_of(duration);
	if (histogram && slot < HOTSTAGE_HISTOGRAM_SLOTS)
		__sync_fetch_and_add(&histogram->counts[slot], 1);
}

/* A call that has returned. */
struct returned_call {
	struct call_key key;
	__u64 now;
	__u64 duration_ns;
	__u64 bytes;
	__s32 result; /* 0: success */
	__u32 tid;
};

#define CALL_OUT_OF_MEMORY 2 /* CUDA_ERROR_OUT_OF_MEMORY, cuda.h */

/* Its thread, where that is known, says how much of its time is kept. */
static __always_inline void count_return(struct call_key *key, const struct returned_call *call,
					 const struct thread_state *thread)
{
	struct call_stat *stat = stat_of(key, 1);

	if (!stat)
		return;
	__sync_fetch_and_add(&stat->count, 1);
	if (thread && thread->level >= LEVEL_TAILS_ONLY)
		__sync_fetch_and_add(&stat->total_ns, call->duration_ns);
	else
		add_duration(stat, call->duration_ns);
	if (call->result) {
		__sync_fetch_and_add(&stat->errors, 1);
		if (call->result == CALL_OUT_OF_MEMORY)
			__sync_fetch_and_add(&stat->errors_oom, 1);
	} else if (call->bytes) {
		__sync_fetch_and_add(&stat->bytes, call->bytes);
	}
}

HOTSTAGE_PART __u32 count_outer_return(const struct returned_call *call, const struct thread_state *thread)
{
	struct call_key key;

	if (!call)
		return 0;
	key = call->key;
	count_return(&key, call, thread);
	return 0;
}

#endif
