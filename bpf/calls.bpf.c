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
#include "include/timed_calls.h"
#include "include/outer_calls.h"

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

/*
 * A function that is handed to bpf_for_each_map_elem stands on the frame of who hands it over, and before 6.13
 * both have 512 bytes together. So a timed call has a frame of its own, which is gone when what goes through
 * all allocations begins; that finds thread and call again. bcc cannot hand a function over: ledger_notes.h.
 */
HOTSTAGE_WORKER __u32 enter_timed(struct pt_regs *ctx, __u64 cookie, __u64 pid_tgid, __u64 now)
{
	return enter_call(ctx, cookie, pid_tgid, now, OF_DRIVER);
}

HOTSTAGE_WORKER __u32 leave_timed(struct pt_regs *ctx, __u64 cookie, __u64 pid_tgid)
{
	return leave_call(ctx, cookie, pid_tgid, OF_DRIVER);
}

HOTSTAGE_PART __u32 go_through_allocations(__u64 cookie, __u32 left)
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

static __always_inline __u32 enter_and_finish(struct pt_regs *ctx, __u64 pid_tgid, __u64 now)
{
	__u64 cookie = bpf_get_attach_cookie(ctx);
	__u32 left = enter_timed(ctx, cookie, pid_tgid, now);

	if (left == CALL_UNMAPS_MORE)
		go_through_allocations(cookie, left);
	return left;
}

static __always_inline void leave_and_finish(struct pt_regs *ctx, __u64 pid_tgid)
{
	__u64 cookie = bpf_get_attach_cookie(ctx);
	__u32 left = leave_timed(ctx, cookie, pid_tgid);

	if (left == CALL_ENDS_CONTEXT)
		go_through_allocations(cookie, left);
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
	enter_and_finish(ctx, bpf_get_current_pid_tgid(), bpf_ktime_get_ns());
	return 0;
}

SEC("uprobe")
int timed_exit(struct pt_regs *ctx)
{
	leave_and_finish(ctx, bpf_get_current_pid_tgid());
	return 0;
}

SEC("uprobe")
int outer_enter(struct pt_regs *ctx)
{
	enter_call(ctx, bpf_get_attach_cookie(ctx), bpf_get_current_pid_tgid(), bpf_ktime_get_ns(), OF_RUNTIME);
	return 0;
}

SEC("uprobe")
int outer_exit(struct pt_regs *ctx)
{
	leave_outer(ctx, bpf_get_current_pid_tgid());
	return 0;
}

SEC("uprobe")
int communicator_enter(struct pt_regs *ctx)
{
	enter_call(ctx, bpf_get_attach_cookie(ctx), bpf_get_current_pid_tgid(), bpf_ktime_get_ns(), OF_COMMUNICATORS);
	return 0;
}

SEC("uprobe")
int communicator_exit(struct pt_regs *ctx)
{
	leave_communicators(ctx, bpf_get_current_pid_tgid());
	return 0;
}

/*
 * Run by user space, attached to nothing: a thread that ended in a group has left this entry, which goes with its
 * place in its process's share. Arguments: tid, index.
 */
SEC("raw_tp")
int drop_pending(struct bpf_raw_tracepoint_args *ctx)
{
	settle_pending((__u32)ctx->args[0], (__u32)ctx->args[1], 0, 0, 0);
	return 0;
}

#ifndef HOTSTAGE_NO_KERNEL_FUNCTIONS
SEC("uprobe")
int timed_session(struct pt_regs *ctx)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid(), now;

	if (bpf_session_is_return()) {
		leave_and_finish(ctx, pid_tgid);
	} else {
		now = bpf_ktime_get_ns();
		keep_start(pid_tgid, now);
		if (enter_and_finish(ctx, pid_tgid, now) == CALL_IS_COUNTED)
			return 1; /* no trap at the return */
	}
	return 0;
}

SEC("uprobe")
int outer_session(struct pt_regs *ctx)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid(), now;

	if (bpf_session_is_return()) {
		leave_outer(ctx, pid_tgid);
	} else {
		now = bpf_ktime_get_ns();
		keep_start(pid_tgid, now);
		enter_call(ctx, bpf_get_attach_cookie(ctx), pid_tgid, now, OF_RUNTIME);
	}
	return 0;
}

SEC("uprobe")
int communicator_session(struct pt_regs *ctx)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid(), now;

	if (bpf_session_is_return()) {
		leave_communicators(ctx, pid_tgid);
	} else {
		now = bpf_ktime_get_ns();
		keep_start(pid_tgid, now);
		enter_call(ctx, bpf_get_attach_cookie(ctx), pid_tgid, now, OF_COMMUNICATORS);
	}
	return 0;
}
#endif
