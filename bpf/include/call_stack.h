// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Which calls is a thread in? The innermost one is in its state, those around it in its frames. A
 * call that is entered while the stack has been unwound past another one proves that the other will
 * never return (longjmp, exception, exit): it is popped and counted as abandoned.
 */
#ifndef HOTSTAGE_CALL_STACK_H
#define HOTSTAGE_CALL_STACK_H

#include "arguments.h"
#include "call_counts.h"

/*
 * Whose a call is that its link keeps the start of: the thread's that entered it. Whoever forks inside a call
 * has its child return from it, too, with a copy of what the link keeps, and the call was made once. So the
 * thread's id is laid over the start's high bits: to another thread it is no time within HOTSTAGE_SEAL_NS.
 */
#define HOTSTAGE_SEAL_SHIFT 42
#define HOTSTAGE_SEAL_NS (1ULL << (HOTSTAGE_SEAL_SHIFT - 1)) /* 36 minutes */

static __always_inline __u64 sealed(__u64 since_ns, __u64 pid_tgid)
{
	return since_ns ^ (__u64)(__u32)pid_tgid << HOTSTAGE_SEAL_SHIFT;
}

#ifndef HOTSTAGE_NO_KERNEL_FUNCTIONS
extern __u64 *bpf_session_cookie(void) __ksym __weak;
extern _Bool bpf_session_is_return(void) __ksym __weak;

/* A call is entered: for its return, should its thread's state not have it then. */
static __always_inline void keep_start(__u64 pid_tgid, __u64 now)
{
	*bpf_session_cookie() = sealed(now, pid_tgid);
}
#endif

/* The start of a call that its thread's state does not have, of this thread; 0 where the link keeps none. */
static __always_inline __u64 start_by_link(__u64 pid_tgid, __u64 now)
{
#ifdef HOTSTAGE_NO_KERNEL_FUNCTIONS
	(void)pid_tgid, (void)now;
	return 0;
#else
	__u64 since_ns = sealed(*bpf_session_cookie(), pid_tgid);

	return now - since_ns > HOTSTAGE_SEAL_NS ? 0 : since_ns;
#endif
}

/* The innermost call has left. What was around it is in flight again. */
static __always_inline void pop_call(struct thread_state *thread)
{
	struct call_frame *outer;
	__u32 depth = thread->depth - 1;

	thread->depth = depth;
	if (!depth) {
		thread->call = 0;
		return;
	}
	outer = &thread->frames[(depth - 1) & (HOTSTAGE_OUTER_FRAMES - 1)];
	thread->since_ns = outer->since_ns;
	thread->stack_pointer = outer->stack_pointer;
	thread->argument = outer->argument;
	thread->second_argument = outer->second_argument;
	thread->third_argument = outer->third_argument;
	thread->ordinal = outer->ordinal;
	thread->call = outer->call;
}

/*
 * Take calls off that can no longer return: the stack below `stack_pointer` is in use again or, at
 * an entry, their return address is gone. A call at the same stack pointer whose return address is
 * in place has jumped to this one (a tail call). At a return the kernel has already written over
 * the return address of the call that returns.
 */
HOTSTAGE_PART __u32 abandon_calls(struct thread_state *thread, __u32 tgid, __u64 stack_pointer, __u32 at_entry)
{
	if (!thread)
		return 0;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i <= HOTSTAGE_OUTER_FRAMES; i++) {
		struct call_key key;
		struct call_stat *stat;

		if (!thread->depth)
			return 0;
		if (thread->stack_pointer >= stack_pointer &&
		    !(at_entry && !awaits_return(thread->stack_pointer)))
			return 0;
		key = key_of(thread, tgid, thread->call);
		stat = stat_of(&key, 1);
		if (stat) {
			__sync_fetch_and_add(&stat->count, 1);
			__sync_fetch_and_add(&stat->abandoned, 1);
		}
		count_loss(STALE_FRAMES);
		pop_call(thread);
	}
	return 0;
}

/*
 * Keep the call in flight aside, because another one begins inside it. Returns 0 when there is no
 * room.
 */
static __always_inline __u32 push_outer(struct thread_state *thread)
{
	__u32 depth = thread->depth;
	struct call_frame *outer;

	if (!depth)
		return 1;
	if (depth > HOTSTAGE_OUTER_FRAMES) {
		count_loss(LOST_FRAMES);
		return 0;
	}
	outer = &thread->frames[(depth - 1) & (HOTSTAGE_OUTER_FRAMES - 1)];
	outer->since_ns = thread->since_ns;
	outer->stack_pointer = thread->stack_pointer;
	outer->argument = thread->argument;
	outer->second_argument = thread->second_argument;
	outer->third_argument = thread->third_argument;
	outer->ordinal = thread->ordinal;
	outer->call = thread->call;
	return 1;
}

#endif
