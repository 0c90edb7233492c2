// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Every map, shared by the counting and the marks programs, and what both need from them: the loss
 * counter and the thread's state. Sizes are defaults; user space sets those that follow the work on
 * the host before load.
 */
#ifndef HOTSTAGE_MAPS_H
#define HOTSTAGE_MAPS_H

#include "abi.h"

/* Written by user space before anything is attached. */
HOTSTAGE_ARRAY(settings, struct hotstage_settings, 1);
HOTSTAGE_ARRAY(call_specs, struct call_spec, HOTSTAGE_CALLS_MAX);

/* By thread and by count key; entries go when user space has seen the process end. */
HOTSTAGE_ARRAY(thread_blank, struct thread_state, 1); /* what a thread's state begins as */
HOTSTAGE_HASH(threads, __u32, struct thread_state, 16384);
HOTSTAGE_HASH(call_stats, struct call_key, struct call_stat, 16384);
HOTSTAGE_MAPPED_ARRAY(call_histograms, struct call_histogram, 2048);
HOTSTAGE_QUEUE(free_histograms, __u32, 2048);

HOTSTAGE_SPARSE_HASH(contexts, struct context_key, __u32, 4096);
HOTSTAGE_SPARSE_HASH(device_uuids, struct device_key, struct device_uuid, 4096);

/* What unmarked work counts as: written by user space, which rules_generation tells of. */
HOTSTAGE_SPARSE_HASH(stage_rules, struct stage_rule_key, struct stage_rule, 16384);
HOTSTAGE_SPARSE_HASH(functions, struct function_key, struct function_state, 32768);
HOTSTAGE_ARRAY(function_zero, struct function_state, 1); /* never written */
HOTSTAGE_SPARSE_HASH(function_counts, struct function_count_key, __u64, 32768);
HOTSTAGE_SPARSE_HASH(streams, struct function_key, struct stream_state, 8192);

/* Requests in flight, by the name that the seed document gave it. */
HOTSTAGE_SPARSE_HASH(pipeline_state, struct request_key, struct request_state, 8192);
HOTSTAGE_ARRAY(request_zero, struct request_state,
	       1); /* never written: 1,504 bytes do not fit on the stack */
/* How many of them each process began; an entry goes with its process. 64 bits: bcc's atomics. */
HOTSTAGE_SPARSE_HASH(request_counts, __u32, __u64, 4096);

/* The same for the maps above that follow what a process does; who has no entry here is not bounded. */
HOTSTAGE_SPARSE_HASH(process_shares, __u32, struct process_share, 4096);
HOTSTAGE_ARRAY(share_zero, struct process_share, 1); /* never written */

/* Names of stages that processes made up, and the batches that threads are in. */
HOTSTAGE_SPARSE_HASH(stage_names, struct stage_name_key, struct stage_name, 4096);
HOTSTAGE_SPARSE_HASH(batches, __u32, struct batch_state, 4096);

/* Names of NVTX ranges by their hash: what user space has decided on, and what it has not seen yet. */
HOTSTAGE_SPARSE_HASH(nvtx_decisions, __u64, __u64, 8192);
HOTSTAGE_SPARSE_HASH(nvtx_unknown, __u64, struct nvtx_name, 1024);
HOTSTAGE_SPARSE_HASH(nvtx_stacks, __u32, struct nvtx_stack, 4096);

HOTSTAGE_RING(events, 4194304);
HOTSTAGE_RING(urgent, 262144);
HOTSTAGE_MAPPED_ARRAY(losses, __u64, HOTSTAGE_LOSSES);

static __always_inline void count_losses(__u32 loss, __u64 count)
{
	__u64 *lost = bpf_map_lookup_elem(&losses, &loss);

	if (lost)
		__sync_fetch_and_add(lost, count);
}

static __always_inline void count_loss(__u32 loss)
{
	count_losses(loss, 1);
}

HOTSTAGE_PART __u32 begin_share(__u32 tgid)
{
	__u32 zero = 0;
	struct process_share *none = bpf_map_lookup_elem(&share_zero, &zero);

	if (none)
		bpf_map_update_elem(&process_shares, &tgid, none, BPF_NOEXIST);
	return 0;
}

/* How many entries of a kind the process holds; NULL where process_shares is full. */
static __always_inline __u64 *share_of(__u32 tgid, __u32 kind)
{
	struct process_share *share = bpf_map_lookup_elem(&process_shares, &tgid);

	if (!share) {
		begin_share(tgid);
		share = bpf_map_lookup_elem(&process_shares, &tgid);
	}
	if (!share)
		return 0;
	asm volatile("" : "+r"(kind)); /* nothing is reckoned with the address before it is checked */
	return &share->held[kind & (HOTSTAGE_SHARES - 1)];
}

static __always_inline __u32 share_limit(__u32 kind)
{
	__u32 zero = 0;
	struct hotstage_settings *limits = bpf_map_lookup_elem(&settings, &zero);

	return limits ? limits->shares[kind & (HOTSTAGE_SHARES - 1)] : 0;
}

/*
 * Whether one more would be beyond its share. Below 0 it is where entries have gone that were made while
 * process_shares was full.
 */
static __always_inline __u32 has_its_share(const __u64 *held, __u32 kind)
{
	return held && (__s64)*held >= (__s64)share_limit(kind);
}

static __always_inline void hold_one_more(__u64 *held)
{
	if (held)
		__sync_fetch_and_add(held, 1);
}

/* Whether the process may have one entry more of a kind, which it then holds. */
HOTSTAGE_PART __u32 hold_share(__u32 tgid, __u32 kind)
{
	__u64 *held = share_of(tgid, kind);

	if (has_its_share(held, kind))
		return 0;
	hold_one_more(held);
	return 1;
}

HOTSTAGE_PART __u32 free_share(__u32 tgid, __u32 kind)
{
	struct process_share *share = bpf_map_lookup_elem(&process_shares, &tgid);

	if (!share)
		return 0;
	asm volatile("" : "+r"(kind));
	__sync_fetch_and_add(&share->held[kind & (HOTSTAGE_SHARES - 1)], -1);
	return 0;
}

/*
 * A thread is new, or its id is that of a dead one come back in another process; nobody will know any more in
 * which calls that one died.
 */
HOTSTAGE_PART __u32 begin_thread(__u32 tgid, __u32 tid)
{
	struct thread_state *thread = bpf_map_lookup_elem(&threads, &tid), *blank;
	__u32 zero = 0;

	blank = bpf_map_lookup_elem(&thread_blank, &zero);
	if (!blank)
		return 0;
	if (thread && thread->depth)
		count_losses(LOST_FRAMES, thread->depth);
	bpf_map_update_elem(&threads, &tid, blank, BPF_ANY);
	thread = bpf_map_lookup_elem(&threads, &tid);
	if (thread)
		thread->tgid = tgid;
	else
		count_loss(LOST_THREADS);
	return 0;
}

/*
 * The state of the thread we are in. NULL when `threads` is full (counted): the call is then
 * counted without stage.
 */
static __always_inline struct thread_state *current_thread(__u32 tgid, __u32 tid)
{
	struct thread_state *thread = bpf_map_lookup_elem(&threads, &tid);

	if (thread && thread->tgid == tgid)
		return thread;
	begin_thread(tgid, tid);
	return bpf_map_lookup_elem(&threads, &tid);
}

#endif
