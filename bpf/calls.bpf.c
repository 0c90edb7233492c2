// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Which calls does each process make, how often, how long, in which stage, and in which call does
 * each thread sit now?
 *
 * Key: (tgid, call, stage, modality, device). The attach cookie is the call's id in the catalogue;
 * call_specs says where its size and stream are. Launches are probed on entry only: one trap, two
 * hash look-ups. All other calls are timed, in three shapes from one pair of workers:
 * `timed_session` (both sides, kernel >= 6.13), `timed_enter` and `timed_exit` as uprobe.multi
 * (>= 6.6) or perf-event links (>= 5.15). This is the model file: read it first.
 *
 * A call in flight is kept in its thread's state with its stack pointer (include/call_stack.h), so
 * that counts stay exact and nothing looks stuck for long that is not.
 */
#include "include/backend.h"
#include "include/abi.h"
#include "include/maps.h"
#include "include/levels.h"
#include "include/arguments.h"
#include "include/call_counts.h"
#include "include/call_stack.h"
#include "include/call_effects.h"
#include "include/call_events.h"
#include "include/layers.h"
#include "include/runtime_calls.h"
#include "include/stream_users.h"

#define CALL_OUT_OF_MEMORY 2    /* CUDA_ERROR_OUT_OF_MEMORY, cuda.h */

/*
 * A stream in a register costs nothing; one in memory is read at the first launch after a mark, at
 * every HOTSTAGE_STREAM_EVERY-th, and where a rule goes by it.
 */
static __always_inline __u32 is_stream_due(struct thread_state *thread,
					   const struct call_spec *spec)
{
	if (!spec->stream_argument)
		return 0;
	if (spec->stream_argument <= HOTSTAGE_REGISTER_ARGUMENTS)
		return 1;
	return !(thread->launches_since_mark++ % HOTSTAGE_STREAM_EVERY) ||
	       (thread->rule_flags & HOTSTAGE_RULES_BY_STREAM);
}

static __always_inline void count_launch(struct pt_regs *ctx)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid(), cookie = bpf_get_attach_cookie(ctx);
	__u32 tgid = pid_tgid >> 32, call = (__u16)cookie;
	struct thread_state *thread = current_thread(tgid, (__u32)pid_tgid);
	struct call_spec *spec = bpf_map_lookup_elem(&call_specs, &call);
	struct call_key key;
	struct call_stat *stat;

	if (thread && spec) {
		thread->launch_total++;
		if (thread->stage == HOTSTAGE_NO_STAGE)
			keep_rules_fresh(thread, tgid, (__u32)pid_tgid);
		if (is_stream_due(thread, spec)) {
			thread->stream = stream_of(ctx, spec->stream_argument);
			launch_on(thread, thread->stream);
		}
		if (thread->stage == HOTSTAGE_NO_STAGE) {
			thread->step_launches++;
			note_head(ctx, thread, spec);
			infer_launch(thread, function_of(ctx, spec), tgid, (__u32)pid_tgid);
		} else if (spec->function_argument & HOTSTAGE_FUNCTION_LEARNS) {
			learn_launch(thread, function_of(ctx, spec), tgid);
		}
		if (is_sample_due(thread))
			sample_launch(thread, tgid, function_of(ctx, spec), 0);
	}
	key = key_of(thread, tgid, cookie);
	stat = stat_of(&key, 0);
	if (stat)
		__sync_fetch_and_add(&stat->count, 1);
	if (thread && spec && (has_open_capture(thread, tgid) || launches_graph(spec)))
		note_graph_work(&key, (__u32)pid_tgid, stream_of(ctx, spec->stream_argument),
				launches_graph(spec) ? PT_REGS_PARM1(ctx) : 0);
}

/* A call of the runtime or of a library: others will stand inside it. */
static __always_inline void enter_outer(struct pt_regs *ctx, struct thread_state *thread,
					const struct call_spec *spec, __u64 pid_tgid, __u64 cookie,
					__u64 now)
{
	if (!thread->depth)
		frame_at(thread, 1)->flags = 0;
	if (is_of_communicator(spec->effect))
		enter_communicator(ctx, thread, spec, pid_tgid >> 32, (__u32)pid_tgid,
				   (__u16)cookie, now);
	else
		enter_runtime(ctx, thread, spec);
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

static __always_inline __u32 enter_call(struct pt_regs *ctx, __u64 cookie, __u64 now,
					const __u32 is_outer)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid(), stack_pointer = PT_REGS_SP(ctx);
	__u32 tgid = pid_tgid >> 32, call = (__u16)cookie;
	struct thread_state *thread = current_thread(tgid, (__u32)pid_tgid);
	struct call_spec *spec = bpf_map_lookup_elem(&call_specs, &call);

	if (!thread || !spec)
		return CALL_IS_DONE;
	if (!is_outer && level_of(thread, tgid) >= LEVEL_COUNTS_ONLY && !spec->effect) {
		if (thread->depth) /* what is around it made this call, and is no second one */
			frame_at(thread, thread->depth)->flags |= FRAME_HAS_WORK;
		count_at_entry(thread, tgid, cookie);
		return CALL_IS_COUNTED;
	}
	if (thread->depth) {
		abandon_calls(thread, tgid, stack_pointer, 1);
		if (!push_outer(thread))
			return CALL_IS_DONE;
		if (thread->depth)
			enter_inside(thread, is_outer);
	}
	if (is_outer) {
		enter_outer(ctx, thread, spec, pid_tgid, cookie, now);
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
	return !is_outer && has_rest(thread, spec) ? CALL_UNMAPS_MORE : CALL_IS_DONE;
}

/* FFmpeg says by this that a stream is at its end: AVERROR_EOF, error.h */
#define CALL_AT_END (-0x20464f45)

/*
 * A call has returned. `since_ns` is its start where the link keeps it for us (session), else 0:
 * then the thread's state must have it, or the call began before the attach and belongs to no
 * epoch.
 */
static __always_inline __u32 leave_call(struct pt_regs *ctx, __u64 cookie, __u64 since_ns,
					const __u32 is_outer)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid(), now = bpf_ktime_get_ns(), bytes = 0;
	__u64 stack_pointer = PT_REGS_SP(ctx) - HOTSTAGE_RETURN_SHIFT;
	__u32 tgid = pid_tgid >> 32, tid = (__u32)pid_tgid, call = (__u16)cookie, is_ours = 0, step, whose;
	__s32 result = (__s32)PT_REGS_RC(ctx);
	struct thread_state *thread = bpf_map_lookup_elem(&threads, &tid);
	struct call_spec *spec = bpf_map_lookup_elem(&call_specs, &call);
	struct call_key key;
	struct call_stat *stat;

	if (!spec)
		return CALL_IS_DONE;
	if (thread && thread->tgid != tgid)
		thread = 0; /* a dead thread's, whose id a child has that was forked inside the call */
	key = key_of(thread, tgid, cookie);
	if (thread && thread->depth) {
		if (thread->stack_pointer < stack_pointer)
			abandon_calls(thread, tgid, stack_pointer, 0);
		is_ours = thread->depth && thread->stack_pointer == stack_pointer &&
			  thread->call == call;
	}
	if (is_ours) {
		since_ns = thread->since_ns;
		if (is_outer && spec->function_argument)
			; /* a launch's argument is its function */
		else if (!spec->effect || is_of_memory(spec->effect) ||
			 (is_outer && spec->effect == EFFECT_COMMUNICATOR_USE))
			bytes = thread->argument;
		if (spec->kind_argument)
			key.direction = (__u8)thread->second_argument;
	} else if (now - since_ns > HOTSTAGE_SEAL_NS) {
		since_ns = 0;
	}
	if (!since_ns) {
		if (thread && thread->counted_at_entry)
			thread->counted_at_entry--;
		else
			count_loss(UNMATCHED_RETURNS);
		return CALL_IS_DONE;
	}
	if (is_outer && spec->answer == ANSWER_AMOUNT)
		result = result > 0 ? 0 : result;
	else if (is_outer && spec->answer)
		result = spec->answer == ANSWER_POINTER && PT_REGS_RC(ctx) ? HOTSTAGE_FAILED : 0;
	if (is_outer && spec->no_error && (result == spec->no_error || result == CALL_AT_END))
		result = 0;
	if (is_outer && key.layer == HOTSTAGE_LAYER_RUNTIME) {
		if (!is_ours)
			return CALL_IS_DONE;
		whose = belongs_to_runtime(thread, tgid, result);
		if (whose == RUNTIME_COUNTS && spec->function_argument)
			return CALL_IS_LAUNCH;
		if (!whose) {
			add_call_wait(thread, spec, now - since_ns);
			if (has_answer(spec, result))
				return CALL_HAS_ANSWER;
			pop_call(thread);
			return CALL_IS_DONE;
		}
	}

	stat = stat_of(&key, 1);
	if (stat) {
		__sync_fetch_and_add(&stat->count, 1);
		if (thread && thread->level >= LEVEL_TAILS_ONLY)
			__sync_fetch_and_add(&stat->total_ns, now - since_ns);
		else
			add_duration(stat, now - since_ns);
		if (result) {
			__sync_fetch_and_add(&stat->errors, 1);
			if (result == CALL_OUT_OF_MEMORY)
				__sync_fetch_and_add(&stat->errors_oom, 1);
		} else if (bytes) {
			__sync_fetch_and_add(&stat->bytes, bytes);
		}
	}
	if (!is_ours)
		return CALL_IS_DONE;
	add_call_wait(thread, spec, now - since_ns);
	if (result && is_outer)
		thread->error_total += !(flags_of(thread) & FRAME_HAS_ERROR);
	else if (result)
		thread->error_total++;
	else if (!spec->effect || is_allocating(spec->effect))
		thread->bytes_total += bytes;
	if (result)
		tell_outer(thread, FRAME_HAS_ERROR);
	if (!is_outer)
		leave_effect(thread, spec, tgid, tid, now, result);
	step = key.direction ? step_of(key.direction, spec->stream_argument) : spec->step;
	if (step && thread->stage == HOTSTAGE_NO_STAGE) {
		if (step >= STEP_WAIT)
			credit_stream_so_far(thread, now);
		note_step(thread, step, bytes, tgid, tid);
	}
	tell_call(ctx, thread, &key, tid, now, now - since_ns, bytes, result);
	if (!is_outer && is_context_end(spec, result))
		return CALL_ENDS_CONTEXT;
	if (is_outer && has_answer(spec, result))
		return CALL_HAS_ANSWER;
	if (is_outer && is_of_communicator(spec->effect))
		return CALL_IS_OF_COMMUNICATORS;
	pop_call(thread);
	return CALL_IS_DONE;
}

/*
 * A function that is handed to bpf_for_each_map_elem stands on the frame of who hands it over, and before 6.13
 * both have 512 bytes together. So a timed call has a frame of its own, which is gone when what goes through
 * all allocations begins; that finds thread and call again. bcc cannot hand a function over: ledger_notes.h.
 */
HOTSTAGE_WORKER __u32 enter_timed(struct pt_regs *ctx, __u64 cookie, __u64 now)
{
	return enter_call(ctx, cookie, now, 0);
}

HOTSTAGE_WORKER __u32 leave_timed(struct pt_regs *ctx, __u64 cookie, __u64 since_ns)
{
	return leave_call(ctx, cookie, since_ns, 0);
}

HOTSTAGE_WORKER __u32 go_through_allocations(__u64 cookie, __u32 left)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	__u32 tid = (__u32)pid_tgid, call = (__u16)cookie;
	struct thread_state *thread = bpf_map_lookup_elem(&threads, &tid);
	struct call_spec *spec = bpf_map_lookup_elem(&call_specs, &call);

	if (!thread || !spec)
		return 0;
#ifndef HOTSTAGE_BCC
	if (left == CALL_UNMAPS_MORE) {
		unmap_rest(thread, pid_tgid >> 32);
		return 0;
	}
#endif
	end_context(thread, pid_tgid >> 32, spec->detail);
	pop_call(thread);
	return 0;
}

/*
 * It finds thread and call again, so that the verifier follows its loops once, not for each way through
 * leave_call.
 */
HOTSTAGE_WORKER __u32 finish_communicators(__u64 cookie, __s32 result)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	__u32 tid = (__u32)pid_tgid, call = (__u16)cookie;
	struct thread_state *thread = bpf_map_lookup_elem(&threads, &tid);
	struct call_spec *spec = bpf_map_lookup_elem(&call_specs, &call);

	if (!thread || !spec)
		return 0;
	if (result == spec->no_error)
		result = 0;
	leave_communicator(thread, spec, pid_tgid >> 32, tid, bpf_ktime_get_ns(), result);
	pop_call(thread);
	return 0;
}

static __always_inline __u32 enter_and_finish(struct pt_regs *ctx, __u64 now)
{
	__u64 cookie = bpf_get_attach_cookie(ctx);
	__u32 left = enter_timed(ctx, cookie, now);

	if (left == CALL_UNMAPS_MORE)
		go_through_allocations(cookie, left);
	return left;
}

static __always_inline void leave_and_finish(struct pt_regs *ctx, __u64 since_ns)
{
	__u64 cookie = bpf_get_attach_cookie(ctx);
	__u32 left = leave_timed(ctx, cookie, since_ns);

	if (left == CALL_ENDS_CONTEXT)
		go_through_allocations(cookie, left);
}

/*
 * The calls of the runtime and of libraries. What follows the return of some has a frame of its own, too, and finds
 * thread and call again, so that the verifier need not go through it once for each way there.
 */
HOTSTAGE_WORKER __u32 leave_outer_call(struct pt_regs *ctx, __u64 cookie, __u64 since_ns)
{
	return leave_call(ctx, cookie, since_ns, 1);
}

HOTSTAGE_WORKER __u32 take_answer(__u64 cookie)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	__u32 tid = (__u32)pid_tgid, call = (__u16)cookie;
	struct thread_state *thread = bpf_map_lookup_elem(&threads, &tid);
	struct call_spec *spec = bpf_map_lookup_elem(&call_specs, &call);

	if (!thread || !spec)
		return 0;
	apply_answer(thread, spec, pid_tgid >> 32);
	pop_call(thread);
	return 0;
}

HOTSTAGE_WORKER __u32 leave_runtime_launch(struct pt_regs *ctx, __u64 cookie)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid(), now = bpf_ktime_get_ns();
	__u32 tgid = pid_tgid >> 32, tid = (__u32)pid_tgid, call = (__u16)cookie;
	__s32 result = (__s32)PT_REGS_RC(ctx);
	struct thread_state *thread = bpf_map_lookup_elem(&threads, &tid);
	struct call_spec *spec = bpf_map_lookup_elem(&call_specs, &call);
	struct call_key key;
	struct call_stat *stat;

	if (!thread || !spec)
		return 0;
	count_runtime_launch(thread, spec, tgid, tid);
	key = key_of(thread, tgid, cookie);
	stat = stat_of(&key, 1);
	if (stat) {
		__sync_fetch_and_add(&stat->count, 1);
		if (result)
			__sync_fetch_and_add(&stat->errors, 1);
		add_duration(stat, now - thread->since_ns);
	}
	thread->error_total += result != 0;
	tell_call(ctx, thread, &key, tid, now, now - thread->since_ns, 0, result);
	pop_call(thread);
	return 0;
}

static __always_inline void leave_outer(struct pt_regs *ctx, __u64 since_ns)
{
	__u64 cookie = bpf_get_attach_cookie(ctx);
	__u32 left = leave_outer_call(ctx, cookie, since_ns);

	if (left == CALL_IS_OF_COMMUNICATORS)
		finish_communicators(cookie, (__s32)PT_REGS_RC(ctx));
	else if (left == CALL_HAS_ANSWER)
		take_answer(cookie);
	else if (left == CALL_IS_LAUNCH)
		leave_runtime_launch(ctx, cookie);
}

SEC("uprobe")
int launch(struct pt_regs *ctx)
{
	count_launch(ctx);
	return 0;
}

/* __cudaRegisterFunction(handle, host function, device's, its name, ..) */
SEC("uprobe")
int kernel_registered(struct pt_regs *ctx)
{
	register_kernel(bpf_get_current_pid_tgid() >> 32, PT_REGS_PARM2(ctx), PT_REGS_PARM4(ctx));
	return 0;
}

SEC("uprobe")
int timed_enter(struct pt_regs *ctx)
{
	enter_and_finish(ctx, bpf_ktime_get_ns());
	return 0;
}

SEC("uprobe")
int timed_exit(struct pt_regs *ctx)
{
	leave_and_finish(ctx, 0);
	return 0;
}

SEC("uprobe")
int outer_enter(struct pt_regs *ctx)
{
	enter_call(ctx, bpf_get_attach_cookie(ctx), bpf_ktime_get_ns(), 1);
	return 0;
}

SEC("uprobe")
int outer_exit(struct pt_regs *ctx)
{
	leave_outer(ctx, 0);
	return 0;
}

#ifndef HOTSTAGE_NO_KERNEL_FUNCTIONS
extern __u64 *bpf_session_cookie(void) __ksym __weak;
extern _Bool bpf_session_is_return(void) __ksym __weak;

SEC("uprobe")
int timed_session(struct pt_regs *ctx)
{
	__u64 *since_ns = bpf_session_cookie();

	if (bpf_session_is_return()) {
		leave_and_finish(ctx, sealed(*since_ns));
	} else {
		__u64 now = bpf_ktime_get_ns();

		*since_ns = sealed(now);
		if (enter_and_finish(ctx, now) == CALL_IS_COUNTED)
			return 1; /* no trap at the return */
	}
	return 0;
}

SEC("uprobe")
int outer_session(struct pt_regs *ctx)
{
	__u64 *since_ns = bpf_session_cookie();

	if (bpf_session_is_return()) {
		leave_outer(ctx, sealed(*since_ns));
	} else {
		__u64 now = bpf_ktime_get_ns();

		*since_ns = sealed(now);
		enter_call(ctx, bpf_get_attach_cookie(ctx), now, 1);
	}
	return 0;
}
#endif
