// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Which layer counts a call that another one stands inside? cudaMalloc calls cuMemAlloc_v2, and one
 * allocation was made. The driver counts it where it is seen; then the runtime tells only the error that
 * never got there. Where no driver is seen in the process, the runtime counts.
 *
 * Probes are put into files, not into processes, so nobody can be told beforehand which layer counts in
 * which process: it is judged at each return, by what the thread did inside the call. The calls of the
 * runtime and of libraries (NCCL, cuDNN) have programs of their own for that (outer_…); the driver's pay
 * only where they are called from within another one.
 */
#ifndef HOTSTAGE_LAYERS_H
#define HOTSTAGE_LAYERS_H

#include "maps.h"

/* call_frame.flags, of the call at its depth. */
#define FRAME_HAS_WORK 1    /* the driver was called from within it */
#define FRAME_HAS_ERROR 2   /* and a call made from within it failed */
#define FRAME_HAS_RUNTIME 4 /* another call of the runtime was made from within it */
#define FRAME_IS_SUMMED 8   /* a call around it gives its time to its thread's waits */

/* Processes whose driver was seen at work inside their runtime: there the runtime does not count. */
HOTSTAGE_SPARSE_HASH(drivers_seen, __u32, __u64, 4096);

/* Of the call that is, or would be, the thread's `depth`-th from the outside. */
static __always_inline struct call_frame *frame_at(struct thread_state *thread, __u32 depth)
{
	return &thread->frames[(depth - 1) & (HOTSTAGE_OUTER_FRAMES - 1)];
}

/* A call is entered inside another one, which `thread` still describes as the innermost. */
static __always_inline void enter_inside(struct thread_state *thread, __u32 is_outer)
{
	__u32 depth = thread->depth, around = thread->call, is_summed;
	struct call_frame *outer = frame_at(thread, depth);
	struct call_spec *spec = bpf_map_lookup_elem(&call_specs, &around);

	is_summed = (spec && spec->wait) || (depth > 1 && (outer->flags & FRAME_IS_SUMMED));
	if (!is_outer)
		outer->flags |= FRAME_HAS_WORK;
	if (depth < HOTSTAGE_OUTER_FRAMES)
		frame_at(thread, depth + 1)->flags = is_summed ? FRAME_IS_SUMMED : 0;
}

static __always_inline __u32 flags_of(struct thread_state *thread)
{
	if (thread->depth > HOTSTAGE_OUTER_FRAMES)
		return FRAME_HAS_WORK | FRAME_HAS_ERROR | FRAME_IS_SUMMED; /* too deep: nothing is known */
	return frame_at(thread, thread->depth)->flags;
}

/* Of calls within calls the outermost wait counts: its time holds theirs. */
static __always_inline void add_call_wait(struct thread_state *thread, const struct call_spec *spec,
				     __u64 duration)
{
	if (thread->depth == 1 || !(flags_of(thread) & FRAME_IS_SUMMED))
		thread->wait_ns[spec->wait & (HOTSTAGE_WAITS - 1)] += duration;
}

/* What the call around this one, if any, is to know of it. */
static __always_inline void tell_outer(struct thread_state *thread, __u32 flags)
{
	if (thread->depth > 1)
		frame_at(thread, thread->depth - 1)->flags |= flags;
}

/* Launches of the thread that the driver counted, modulo 2^32. */
static __always_inline __u32 driver_launches(const struct thread_state *thread)
{
	return (__u32)thread->launch_total - thread->runtime_launches;
}

#define RUNTIME_TELLS_ERROR 1 /* of a process whose driver counts */
#define RUNTIME_COUNTS 2      /* no driver of its process was seen */

/*
 * Whether a call of the runtime is the runtime's own to count, at its return: 0, or one of the above. What
 * launches of the driver answered is not known, since they have no return probe: the driver is taken to have
 * said it.
 */
HOTSTAGE_PART __u32 belongs_to_runtime(struct thread_state *thread, __u32 tgid, __s32 result)
{
	__u64 one = 1, *seen = bpf_map_lookup_elem(&drivers_seen, &tgid);
	__u32 flags, has_launched;

	if (!thread)
		return 0;
	flags = flags_of(thread);
	has_launched = thread->ordinal != driver_launches(thread);
	tell_outer(thread, FRAME_HAS_RUNTIME | (result ? FRAME_HAS_ERROR : 0));
	if (has_launched || (flags & FRAME_HAS_WORK)) {
		tell_outer(thread, FRAME_HAS_WORK);
		if (!seen && bpf_map_update_elem(&drivers_seen, &tgid, &one, BPF_ANY))
			count_loss(LOST_COMMUNICATORS);
		return result && !has_launched && !(flags & FRAME_HAS_ERROR) ? RUNTIME_TELLS_ERROR : 0;
	}
	if (flags & (result ? FRAME_HAS_ERROR : FRAME_HAS_RUNTIME))
		return 0;
	if (seen)
		return result ? RUNTIME_TELLS_ERROR : 0;
	return RUNTIME_COUNTS;
}

#endif
