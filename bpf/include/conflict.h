// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Do visual and text tokens in flight leave room for what is being allocated? RULES b, decided where the
 * allocation is entered: what it needs is kept up to date by user space, in conflict_inputs, with its age.
 * A verdict goes to `urgent` and wakes the reader, at most one in a while for each process.
 *
 * All is keyed by the process we are in, so none can bring about a verdict on another. An allocation below
 * the limit pays for one array look-up.
 */
#ifndef HOTSTAGE_CONFLICT_H
#define HOTSTAGE_CONFLICT_H

#include "conflict_abi.h"
#include "ledger.h"

HOTSTAGE_ARRAY(conflict_limits, struct conflict_limits, 1);
HOTSTAGE_ARRAY(conflict_counts, __u64, HOTSTAGE_CONFLICT_OUTCOMES);
HOTSTAGE_SPARSE_HASH(conflict_inputs, struct device_key, struct conflict_inputs, 1024);
/* Made here for processes in conflict_inputs alone; user space takes both out with their process. */
HOTSTAGE_SPARSE_HASH(conflict_latches, __u32, struct conflict_latch, 1024);

static __always_inline __u32 is_stale(__u64 at_ns, __u64 now, const struct conflict_limits *limits)
{
	return at_ns + limits->stale_ns < now;
}

/* Bytes that tokens in flight have still to take; `*is_known` 0 where one has no known price. */
static __always_inline __u64 predicted_bytes(const struct conflict_inputs *inputs, __u32 *is_known)
{
	*is_known = !(inputs->awaited[TOKENS_VISUAL] && !inputs->bytes_per_token[TOKENS_VISUAL]) &&
		    !(inputs->awaited[TOKENS_TEXT] && !inputs->bytes_per_token[TOKENS_TEXT]);
	return inputs->awaited[TOKENS_VISUAL] * inputs->bytes_per_token[TOKENS_VISUAL] +
	       inputs->awaited[TOKENS_TEXT] * inputs->bytes_per_token[TOKENS_TEXT];
}

/* The terms in the order in which they are cheapest to explain; CONFLICT_TOLD where all are true. */
static __always_inline __u32 conflict_outcome(const struct conflict_inputs *inputs,
					      const struct conflict_limits *limits, __u64 now)
{
	__u64 predicted;
	__u32 is_known;

	if (!inputs)
		return CONFLICT_NO_INPUTS;
	if (!inputs->headroom_ns || inputs->tokens_basis == TOKENS_UNKNOWN)
		return CONFLICT_UNKNOWN;
	if (is_stale(inputs->headroom_ns, now, limits) || is_stale(inputs->tokens_ns, now, limits) ||
	    (inputs->fragmentation_basis && is_stale(inputs->fragmentation_ns, now, limits)))
		return CONFLICT_STALE;
	if (inputs->tokens[TOKENS_VISUAL] <= limits->tokens[TOKENS_VISUAL] ||
	    inputs->tokens[TOKENS_TEXT] <= limits->tokens[TOKENS_TEXT])
		return CONFLICT_FEW_TOKENS;
	if (inputs->fragmentation_basis &&
	    inputs->fragmentation_permille <= limits->fragmentation_permille)
		return CONFLICT_NOT_FRAGMENTED;
	predicted = predicted_bytes(inputs, &is_known);
	if (!is_known)
		return CONFLICT_UNKNOWN;
	return predicted > inputs->headroom_bytes ? CONFLICT_TOLD : CONFLICT_HAS_ROOM;
}

/* Whether this verdict of the process may be told; of several threads at once, one's is. */
static __always_inline __u32 takes_turn(struct conflict_latch *latch, __u64 now, __u64 gap_ns)
{
	__u64 told_ns = *(volatile __u64 *)&latch->told_ns;

	if ((!told_ns || told_ns + gap_ns <= now) &&
	    __sync_val_compare_and_swap(&latch->told_ns, told_ns, now) == told_ns)
		return 1;
	__sync_fetch_and_add(&latch->held_back, 1);
	return 0;
}

static __always_inline struct conflict_latch *latch_of(__u32 tgid)
{
	struct conflict_latch *latch = bpf_map_lookup_elem(&conflict_latches, &tgid), none = {};

	if (latch)
		return latch;
	bpf_map_update_elem(&conflict_latches, &tgid, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&conflict_latches, &tgid);
}

static __always_inline __u32 tell_conflict(const struct thread_state *thread,
					   const struct conflict_inputs *inputs,
					   const struct conflict_latch *latch, __u64 pid_tgid,
					   __u32 device, __u32 call, __u64 now)
{
	struct conflict_event *event = bpf_ringbuf_reserve(&urgent, sizeof(struct conflict_event), 0);
	__u32 is_known;

	if (!event) {
		count_loss(LOST_URGENT_RING);
		return CONFLICT_LOST;
	}
	event->kind = EVENT_TOKEN_CONFLICT;
	event->tgid = pid_tgid >> 32;
	event->tid = (__u32)pid_tgid;
	event->device = device;
	event->at_ns = now;
	event->bytes = thread->argument;
	event->request_hash = thread->request_hash;
	event->predicted_bytes = predicted_bytes(inputs, &is_known);
	event->held_back = latch->held_back;
	event->inputs = *inputs;
	event->call = call;
	event->stage = thread->stage == HOTSTAGE_NO_STAGE ? thread->inferred_stage : thread->stage;
	event->modality = thread->stage == HOTSTAGE_NO_STAGE ? thread->inferred_modality :
							       thread->modality;
	event->terms = inputs->fragmentation_basis ? CONFLICT_TERM_FRAGMENTED : 0;
	event->pad[0] = event->pad[1] = event->pad[2] = 0;
	bpf_ringbuf_submit(event, BPF_RB_FORCE_WAKEUP);
	return CONFLICT_TOLD;
}

/* An allocation is entered: `argument` is its size, `third_argument` as enter_memory leaves it. */
HOTSTAGE_PART __u32 look_for_conflict(const struct thread_state *thread, const struct call_spec *spec,
				      __u64 pid_tgid, __u32 call, __u64 now)
{
	__u32 zero = 0, outcome, tgid = pid_tgid >> 32;
	struct conflict_limits *limits = bpf_map_lookup_elem(&conflict_limits, &zero);
	struct device_key key = {.tgid = tgid};
	struct conflict_inputs *inputs;
	struct conflict_latch *latch;
	__u64 *count;

	if (!thread || !spec || !limits || !limits->allocation_bytes ||
	    thread->argument <= limits->allocation_bytes || !is_for_gpus(spec->detail))
		return 0;
	key.ordinal = spec->detail == MEMORY_PHYSICAL ? device_of_properties(thread->third_argument) :
							thread->device;
	inputs = bpf_map_lookup_elem(&conflict_inputs, &key);
	outcome = conflict_outcome(inputs, limits, now);
	if (inputs && outcome == CONFLICT_TOLD) {
		latch = latch_of(tgid);
		outcome = latch && takes_turn(latch, now, limits->gap_ns) ?
				  tell_conflict(thread, inputs, latch, pid_tgid, key.ordinal, call, now) :
				  CONFLICT_HELD_BACK;
	}
	count = bpf_map_lookup_elem(&conflict_counts, &outcome);
	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}

#endif
