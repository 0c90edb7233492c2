// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Which launches run, and how many kernels does a graph launch run? A launch on a stream that is being captured
 * becomes a node of a graph and does not run; it is a call that was made, and counted as one, and beside that as
 * captured. An executable graph that was made from a captured one replays as many kernels as were captured.
 * Of a graph that was built or changed by hand, cloned, or captured before the attach, nothing is known.
 *
 * A stream is captured from its begin to its end, whichever thread launches on it; so is a stream that waits for
 * an event while its thread captures (fork and join). Only processes with an open capture look at the stream of
 * each launch: the others compare one number.
 */
#ifndef HOTSTAGE_GRAPHS_H
#define HOTSTAGE_GRAPHS_H

#include "graphs_abi.h"
#include "inference.h"
#include "maps.h"

HOTSTAGE_ARRAY(capture_generation, __u64, 1);
HOTSTAGE_SPARSE_HASH(capturing, __u32, __u64, 1024); /* open captures of a process */
HOTSTAGE_SPARSE_HASH(captures, struct capture_key, struct capture, 1024);
HOTSTAGE_SPARSE_HASH(graphs, struct function_key, __u64, 8192); /* graphs, executable ones too: kernels */
HOTSTAGE_SPARSE_HASH(graph_work, struct call_key, struct graph_work, 4096);

#define CAPTURE_WRONG_THREAD 908 /* CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, cuda.h: it goes on */
#define CAPTURE_OF_THREAD 1	 /* CU_STREAM_LEGACY, which cannot be captured: a thread's own capture */
#define CAPTURE_PER_THREAD 2	 /* CU_STREAM_PER_THREAD */

/* Two names of the per-thread default stream, which every thread has one of. */
static __always_inline struct capture_key capture_key_of(__u64 stream, __u32 tgid, __u32 tid)
{
	struct capture_key key = {.stream = stream, .tgid = tgid};

	if (!stream || stream == CAPTURE_PER_THREAD) {
		key.stream = CAPTURE_PER_THREAD;
		key.tid = tid;
	}
	return key;
}

static __always_inline __u32 has_open_capture(struct thread_state *thread, __u32 tgid)
{
	__u32 zero = 0;
	__u64 *generation = bpf_map_lookup_elem(&capture_generation, &zero);

	if (generation && thread->capture_generation != (__u32)*generation) {
		thread->capture_generation = (__u32)*generation;
		thread->is_capturing = bpf_map_lookup_elem(&capturing, &tgid) != 0;
	}
	return thread->is_capturing;
}

static __always_inline void tell_threads_of_captures(void)
{
	__u32 zero = 0;
	__u64 *generation = bpf_map_lookup_elem(&capture_generation, &zero);

	if (generation)
		__sync_fetch_and_add(generation, 1);
}

static __always_inline void put_graph(__u64 handle, __u32 tgid, __u64 kernels)
{
	struct function_key key = {.handle = handle, .tgid = tgid};
	__u64 *known = bpf_map_lookup_elem(&graphs, &key), *held;

	if (known) {
		*known = kernels;
		return;
	}
	held = share_of(tgid, SHARE_GRAPHS);
	if (has_its_share(held, SHARE_GRAPHS) || bpf_map_update_elem(&graphs, &key, &kernels, BPF_ANY))
		count_loss(LOST_GRAPHS);
	else
		hold_one_more(held);
}

static __always_inline void drop_graph(__u64 handle, __u32 tgid)
{
	struct function_key key = {.handle = handle, .tgid = tgid};

	if (!bpf_map_delete_elem(&graphs, &key))
		free_share(tgid, SHARE_GRAPHS);
}

/* Returns 1 where it is a new one. */
static __always_inline __u32 put_capture(const struct capture_key *key, const struct capture *fresh)
{
	__u32 is_new = !bpf_map_lookup_elem(&captures, key);
	__u64 *held = share_of(key->tgid, SHARE_GRAPHS);

	if ((is_new && has_its_share(held, SHARE_GRAPHS)) ||
	    bpf_map_update_elem(&captures, key, fresh, BPF_ANY)) {
		count_loss(LOST_GRAPHS);
		return 0;
	}
	if (is_new)
		hold_one_more(held);
	return is_new;
}

static __always_inline void drop_capture(const struct capture_key *key)
{
	if (!bpf_map_delete_elem(&captures, key))
		free_share(key->tgid, SHARE_GRAPHS);
}

/* The capture that a stream is in, NULL where it is in none. One that was joined to an ended capture goes. */
static __always_inline struct capture *capture_of(const struct capture_key *key)
{
	struct capture *found = bpf_map_lookup_elem(&captures, key), *origin;
	struct capture_key of;

	if (!found || !found->is_joined)
		return found;
	of = found->origin;
	origin = bpf_map_lookup_elem(&captures, &of);
	if (origin && origin->began_ns == found->began_ns)
		return origin;
	drop_capture(key);
	return 0;
}

/* Whether the thread's call, whose stream was read at its entry, became a node of a graph. */
static __always_inline __u32 is_captured(struct thread_state *thread, __u32 tgid, __u32 tid)
{
	struct capture_key key = capture_key_of(thread->stream, tgid, tid);

	return has_open_capture(thread, tgid) && capture_of(&key);
}

static __always_inline void begin_capture(struct thread_state *thread, const struct call_spec *spec, __u32 tgid,
					  __u32 tid, __u64 now)
{
	struct capture_key key = capture_key_of(thread->argument, tgid, tid);
	struct capture_key own = {.stream = CAPTURE_OF_THREAD, .tgid = tgid, .tid = tid};
	struct function_key of = {.handle = thread->second_argument, .tgid = tgid};
	struct capture fresh = {.origin = key, .began_ns = now, .tid = tid, .is_unknown = spec->detail};
	__u64 one = 1, *open, *kernels;

	if (spec->device_argument) { /* into a graph that is there already */
		kernels = bpf_map_lookup_elem(&graphs, &of);
		fresh.kernels = kernels ? *kernels : 0;
		fresh.is_unknown = !kernels;
	}
	if (put_capture(&key, &fresh)) {
		open = bpf_map_lookup_elem(&capturing, &tgid);
		if (open)
			__sync_fetch_and_add(open, 1);
		else if (bpf_map_update_elem(&capturing, &tgid, &one, BPF_ANY))
			count_loss(LOST_GRAPHS);
	}
	fresh.is_joined = 1;
	put_capture(&own, &fresh);
	tell_threads_of_captures();
}

/* A stream waits for an event while its thread captures: taken to be one of the captured work. */
static __always_inline void join_capture(struct thread_state *thread, __u32 tgid, __u32 tid)
{
	struct capture_key key = capture_key_of(thread->argument, tgid, tid);
	struct capture_key own = {.stream = CAPTURE_OF_THREAD, .tgid = tgid, .tid = tid};
	struct capture *mine, joined;

	if (!has_open_capture(thread, tgid) || capture_of(&key))
		return;
	mine = bpf_map_lookup_elem(&captures, &own);
	if (!mine)
		return;
	joined = *mine;
	put_capture(&key, &joined);
}

static __always_inline void end_capture(struct thread_state *thread, __u32 tgid, __u32 tid, __s32 result)
{
	struct capture_key key = capture_key_of(thread->argument, tgid, tid);
	struct capture_key own = {.stream = CAPTURE_OF_THREAD, .tgid = tgid};
	struct capture *ended = bpf_map_lookup_elem(&captures, &key);
	__u64 graph = 0, *open;

	if (result == CAPTURE_WRONG_THREAD)
		return;
	if (!result && bpf_probe_read_user(&graph, sizeof(graph), (void *)thread->second_argument))
		count_loss(UNREADABLE_ARGUMENTS);
	if (!ended || ended->is_unknown)
		drop_graph(graph, tgid);
	else if (graph)
		put_graph(graph, tgid, ended->kernels);
	if (!ended)
		return;
	own.tid = ended->tid;
	drop_capture(&key);
	drop_capture(&own);
	open = bpf_map_lookup_elem(&capturing, &tgid);
	if (open && *open > 1)
		__sync_fetch_and_add(open, -1);
	else
		bpf_map_delete_elem(&capturing, &tgid);
	tell_threads_of_captures();
}

static __always_inline void instantiate_graph(struct thread_state *thread, __u32 tgid)
{
	struct function_key of = {.handle = thread->second_argument, .tgid = tgid};
	__u64 executable = 0, *kernels = bpf_map_lookup_elem(&graphs, &of);

	if (bpf_probe_read_user(&executable, sizeof(executable), (void *)thread->argument))
		count_loss(UNREADABLE_ARGUMENTS);
	else if (kernels)
		put_graph(executable, tgid, *kernels);
	else
		drop_graph(executable, tgid); /* what was another graph's handle before */
}

HOTSTAGE_PART __u32 leave_graph(struct thread_state *thread, const struct call_spec *spec, __u64 pid_tgid, __u64 now,
				__s32 result)
{
	__u32 tgid = pid_tgid >> 32, tid = (__u32)pid_tgid;

	if (!thread || !spec)
		return 0;
	if (spec->effect == EFFECT_CAPTURE_END)
		end_capture(thread, tgid, tid, result);
	else if (result)
		return 0;
	else if (spec->effect == EFFECT_CAPTURE_BEGIN)
		begin_capture(thread, spec, tgid, tid, now);
	else if (spec->effect == EFFECT_CAPTURE_JOIN)
		join_capture(thread, tgid, tid);
	else if (spec->detail == GRAPH_INSTANTIATED)
		instantiate_graph(thread, tgid);
	return 0;
}

static __always_inline __u32 launches_graph(const struct call_spec *spec)
{
	return (spec->function_argument & ~HOTSTAGE_FUNCTION_LEARNS) == HOTSTAGE_FUNCTION_IS_GRAPH;
}

/* A launch of a process that captures, or a graph's. `graph` 0: of a function. */
static __always_inline void note_graph_work(const struct call_key *key, __u32 tid, __u64 stream, __u64 graph)
{
	struct capture_key on = capture_key_of(stream, key->tgid, tid);
	struct function_key of = {.handle = graph, .tgid = key->tgid};
	struct capture *capture = capture_of(&on);
	struct graph_work none = {}, *work;
	__u64 *kernels = 0;

	if (!capture && !graph)
		return;
	if (graph)
		kernels = bpf_map_lookup_elem(&graphs, &of);
	work = bpf_map_lookup_elem(&graph_work, key);
	if (!work) {
		bpf_map_update_elem(&graph_work, key, &none, BPF_NOEXIST);
		work = bpf_map_lookup_elem(&graph_work, key);
	}
	if (!work)
		count_loss(LOST_GRAPHS);
	if (capture) {
		if (work)
			__sync_fetch_and_add(&work->captured, 1);
		if (!graph)
			__sync_fetch_and_add(&capture->kernels, 1);
		else if (kernels)
			__sync_fetch_and_add(&capture->kernels, *kernels);
		else
			capture->is_unknown = 1;
	} else if (work) {
		if (kernels)
			__sync_fetch_and_add(&work->kernels, *kernels);
		else
			__sync_fetch_and_add(&work->unknown, 1);
	}
}

#endif
