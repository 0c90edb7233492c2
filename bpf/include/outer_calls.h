// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Calls of the runtime and of libraries, on their way out: others have stood inside them.
 */
#ifndef HOTSTAGE_OUTER_CALLS_H
#define HOTSTAGE_OUTER_CALLS_H

#include "timed_calls.h"

/*
 * It finds thread and call again, so that the verifier follows its loops once, not for each way through
 * leave_call.
 */
HOTSTAGE_PART __u32 finish_communicators(__u64 cookie, __s32 result)
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

/*
 * What follows the return of some has a frame of its own, too, and finds thread and call again, so that the verifier
 * need not go through it once for each way there.
 */
HOTSTAGE_WORKER __u32 leave_outer_call(struct pt_regs *ctx, __u64 cookie, __u64 pid_tgid)
{
	return leave_call(ctx, cookie, pid_tgid, OF_RUNTIME);
}

HOTSTAGE_PART __u32 take_answer(__u64 cookie)
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
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	__u32 tgid = pid_tgid >> 32, tid = (__u32)pid_tgid, call = (__u16)cookie;
	struct thread_state *thread = bpf_map_lookup_elem(&threads, &tid);
	struct call_spec *spec = bpf_map_lookup_elem(&call_specs, &call);
	struct returned_call returned = {.now = bpf_ktime_get_ns(), .tid = tid};

	if (!thread || !spec)
		return 0;
	count_runtime_launch(thread, spec, tgid, tid);
	returned.key = key_of(thread, tgid, cookie);
	returned.result = (__s32)PT_REGS_RC(ctx);
	returned.duration_ns = returned.now - thread->since_ns;
	count_outer_return(&returned, thread);
	thread->error_total += returned.result != 0;
	tell_call(ctx, thread, &returned);
	pop_call(thread);
	return 0;
}

static __always_inline void leave_outer(struct pt_regs *ctx, __u64 pid_tgid)
{
	__u64 cookie = bpf_get_attach_cookie(ctx);
	__u32 left = leave_outer_call(ctx, cookie, pid_tgid);

	if (left == CALL_HAS_ANSWER)
		take_answer(cookie);
	else if (left == CALL_IS_LAUNCH)
		leave_runtime_launch(ctx, cookie);
}

HOTSTAGE_WORKER __u32 leave_communicator_call(struct pt_regs *ctx, __u64 cookie, __u64 pid_tgid)
{
	return leave_call(ctx, cookie, pid_tgid, OF_COMMUNICATORS);
}

static __always_inline void leave_communicators(struct pt_regs *ctx, __u64 pid_tgid)
{
	__u64 cookie = bpf_get_attach_cookie(ctx);

	if (leave_communicator_call(ctx, cookie, pid_tgid) == CALL_IS_OF_COMMUNICATORS)
		finish_communicators(cookie, (__s32)PT_REGS_RC(ctx));
}

#endif
