// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * A call that is timed, on its way in and on its way out: its state in flight, its count, time and error, and what
 * it does besides. What remains to be done then is told to who called, since it wants a frame of its own.
 */
#ifndef HOTSTAGE_TIMED_CALLS_H
#define HOTSTAGE_TIMED_CALLS_H

#include "arguments.h"
#include "call_counts.h"
#include "call_effects.h"
#include "call_events.h"
#include "call_stack.h"
#include "layers.h"
#include "levels.h"
#include "runtime_calls.h"

/* Which calls a program is for: within the others, other calls stand. */
#define OF_DRIVER 0
#define OF_RUNTIME 1 /* and of libraries */
#define OF_COMMUNICATORS 2

static __always_inline void enter_outer(struct pt_regs *ctx, struct thread_state *thread,
					const struct call_spec *spec, __u64 pid_tgid, __u64 cookie,
					__u64 now, const __u32 whose)
{
	if (!thread->depth)
		frame_at(thread, 1)->flags = 0;
	if (whose == OF_COMMUNICATORS)
		enter_communicator(ctx, thread, spec, pid_tgid, (__u16)cookie, now);
	else
		enter_runtime(ctx, thread, spec);
}

/* A call is entered while another one is in flight; 0 where there is no room for one more. */
HOTSTAGE_PART __u32 enter_within(struct thread_state *thread, __u32 tgid, __u64 stack_pointer, __u32 is_outer)
{
	if (!thread)
		return 0;
	abandon_calls(thread, tgid, stack_pointer, 1);
	if (!push_outer(thread))
		return 0;
	if (thread->depth)
		enter_inside(thread, is_outer);
	return 1;
}

/* All that is recorded at LEVEL_COUNTS_ONLY of a call that changes no state. */
static __always_inline void count_at_entry(struct thread_state *thread, __u32 tgid, __u64 cookie)
{
	struct call_key key = key_of(thread, tgid, cookie);
	struct call_stat *stat = stat_of(&key, 1);

	if (stat)
		__sync_fetch_and_add(&stat->count, 1);
	if (thread->counted_at_entry < 255)
		thread->counted_at_entry++;
}

/* What is left to do with a call when enter_call or leave_call is done. */
#define CALL_IS_COUNTED 0 /* entered: its return is of no interest */
#define CALL_IS_DONE 1
#define CALL_UNMAPS_MORE 2
#define CALL_ENDS_CONTEXT 3 /* left, and not yet popped, as the next ones */
#define CALL_IS_OF_COMMUNICATORS 4
#define CALL_HAS_ANSWER 5
#define CALL_IS_LAUNCH 6 /* of the runtime, which counts it */

static __always_inline __u32 enter_call(struct pt_regs *ctx, __u64 cookie, __u64 pid_tgid, __u64 now,
					const __u32 whose)
{
	__u64 stack_pointer = PT_REGS_SP(ctx);
	__u32 tgid = pid_tgid >> 32, call = (__u16)cookie;
	struct thread_state *thread = current_thread(tgid, (__u32)pid_tgid);
	struct call_spec *spec = bpf_map_lookup_elem(&call_specs, &call);

	if (!thread || !spec)
		return CALL_IS_DONE;
	if (!whose && level_of(thread, tgid) >= LEVEL_COUNTS_ONLY && !spec->effect) {
		if (thread->depth) /* what is around it made this call, and is no second one */
			frame_at(thread, thread->depth)->flags |= FRAME_HAS_WORK;
		count_at_entry(thread, tgid, cookie);
		return CALL_IS_COUNTED;
	}
	if (thread->depth && !enter_within(thread, tgid, stack_pointer, whose))
		return CALL_IS_DONE;
	if (whose) {
		enter_outer(ctx, thread, spec, pid_tgid, cookie, now, whose);
	} else {
		if (spec->kind_argument)
			thread->second_argument = driver_direction(ctx, thread, spec);
		thread->argument = argument_of(ctx, spec);
		if (spec->effect)
			enter_effect(ctx, thread, spec, tgid);
		if (spec->effect == EFFECT_MEMORY_NEW)
			look_for_conflict(thread, spec, pid_tgid, call, now);
	}
	if (spec->stream_argument)
		thread->stream = stream_of(ctx, spec->stream_argument);
	if (thread->stage == HOTSTAGE_NO_STAGE)
		keep_rules_fresh(thread, tgid, (__u32)pid_tgid);
	thread->stack_pointer = stack_pointer;
	thread->since_ns = now;
	thread->depth++;
	thread->call = call; /* last: whoever sees the call sees its time */
	return !whose && has_rest(thread, spec) ? CALL_UNMAPS_MORE : CALL_IS_DONE;
}

/* FFmpeg says by this that a stream is at its end: AVERROR_EOF, error.h */
#define CALL_AT_END (-0x20464f45)

/* What a call of the runtime or of a library answered: 0 where it succeeded. */
HOTSTAGE_PART __u32 outer_result(const struct call_spec *spec, __u64 answer)
{
	__s32 result = (__s32)answer;

	if (!spec)
		return 0;
	if (spec->answer == ANSWER_AMOUNT)
		result = result > 0 ? 0 : result;
	else if (spec->answer)
		result = spec->answer == ANSWER_POINTER && answer ? HOTSTAGE_FAILED : 0;
	if (spec->no_error && (result == spec->no_error || result == CALL_AT_END))
		return 0;
	return (__u32)result;
}

/* What the call in flight was about, of which its thread has kept that. */
static __always_inline __u64 bytes_in_flight(const struct thread_state *thread, const struct call_spec *spec,
					     const __u32 whose)
{
	if (whose == OF_COMMUNICATORS)
		return spec->effect == EFFECT_COMMUNICATOR_USE ? thread->argument : 0;
	if (whose && spec->function_argument)
		return 0; /* a launch's argument is its function */
	return !spec->effect || is_of_memory(spec->effect) ? thread->argument : 0;
}

/* A call that was counted is the thread's innermost: what follows from it, and what is left to do. */
static __always_inline __u32 finish_call(struct thread_state *thread, const struct call_spec *spec,
					 const struct returned_call *call, const __u32 whose)
{
	__u32 step;

	add_call_wait(thread, spec, call->duration_ns);
	if (call->result) {
		thread->error_total += !whose || !(flags_of(thread) & FRAME_HAS_ERROR);
		tell_outer(thread, FRAME_HAS_ERROR);
	} else if (!spec->effect || is_allocating(spec->effect)) {
		thread->bytes_total += call->bytes;
	}
	if (!whose)
		leave_effect(thread, spec, (__u64)call->key.tgid << 32 | call->tid, call->now, call->result);
	step = call->key.direction ? step_of(call->key.direction, spec->stream_argument) : spec->step;
	if (step && thread->stage == HOTSTAGE_NO_STAGE) {
		if (step >= STEP_WAIT)
			credit_stream_so_far(thread, call->now);
		note_step(thread, step, call->bytes, call->key.tgid, call->tid);
	}
	if (whose == OF_DRIVER && is_context_end(spec, call->result))
		return CALL_ENDS_CONTEXT;
	if (whose == OF_RUNTIME && has_answer(spec, call->result))
		return CALL_HAS_ANSWER;
	if (whose == OF_COMMUNICATORS)
		return CALL_IS_OF_COMMUNICATORS;
	pop_call(thread);
	return CALL_IS_DONE;
}

/* The driver's calls are the ones that are made often: theirs stays in the program. */
HOTSTAGE_PART __u32 finish_outer_call(struct thread_state *thread, const struct call_spec *spec,
				      const struct returned_call *call)
{
	return thread && spec && call ? finish_call(thread, spec, call, OF_RUNTIME) : CALL_IS_DONE;
}

/*
 * A call has returned. Its start is in its thread's state, or else kept by the link (session), or it began before
 * the attach and belongs to no epoch.
 */
static __always_inline __u32 leave_call(struct pt_regs *ctx, __u64 cookie, __u64 pid_tgid,
					const __u32 whose)
{
	__u64 since_ns;
	__u64 stack_pointer = PT_REGS_SP(ctx) - HOTSTAGE_RETURN_SHIFT;
	__u32 tgid = pid_tgid >> 32, tid = (__u32)pid_tgid, call = (__u16)cookie, is_ours = 0, counts;
	struct thread_state *thread = bpf_map_lookup_elem(&threads, &tid);
	struct call_spec *spec = bpf_map_lookup_elem(&call_specs, &call);
	struct returned_call returned = {.now = bpf_ktime_get_ns(), .tid = tid};

	if (!spec)
		return CALL_IS_DONE;
	if (thread && thread->tgid != tgid)
		thread = 0; /* a dead thread's, whose id a child has that was forked inside the call */
	returned.key = key_of(thread, tgid, cookie);
	if (thread && thread->depth) {
		if (thread->stack_pointer < stack_pointer)
			abandon_calls(thread, tgid, stack_pointer, 0);
		is_ours = thread->depth && thread->stack_pointer == stack_pointer &&
			  thread->call == call;
	}
	if (is_ours) {
		since_ns = thread->since_ns;
		returned.bytes = bytes_in_flight(thread, spec, whose);
		if (spec->kind_argument)
			returned.key.direction = (__u8)thread->second_argument;
	} else {
		since_ns = start_by_link(pid_tgid, returned.now);
	}
	if (!since_ns) {
		if (thread && thread->counted_at_entry)
			thread->counted_at_entry--;
		else
			count_loss(UNMATCHED_RETURNS);
		return CALL_IS_DONE;
	}
	returned.duration_ns = returned.now - since_ns;
	returned.result = whose ? (__s32)outer_result(spec, PT_REGS_RC(ctx)) : (__s32)PT_REGS_RC(ctx);
	if (whose == OF_RUNTIME && returned.key.layer == HOTSTAGE_LAYER_RUNTIME) {
		if (!is_ours)
			return CALL_IS_DONE;
		counts = belongs_to_runtime(thread, tgid, returned.result);
		if (counts == RUNTIME_COUNTS && spec->function_argument)
			return CALL_IS_LAUNCH;
		if (!counts) {
			add_call_wait(thread, spec, returned.duration_ns);
			if (has_answer(spec, returned.result))
				return CALL_HAS_ANSWER;
			pop_call(thread);
			return CALL_IS_DONE;
		}
	}
	if (whose)
		count_outer_return(&returned, thread);
	else
		count_return(&returned.key, &returned, thread);
	if (!is_ours)
		return CALL_IS_DONE;
	tell_call(ctx, thread, &returned);
	return whose == OF_RUNTIME ? finish_outer_call(thread, spec, &returned) :
				     finish_call(thread, spec, &returned, whose);
}

#endif
