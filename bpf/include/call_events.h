// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/* Slow and failed calls, told one by one. */
#ifndef HOTSTAGE_CALL_EVENTS_H
#define HOTSTAGE_CALL_EVENTS_H

#include "maps.h"
#include "names.h"

/*
 * Slow and failed calls are rare things, told one by one, at most one in event_gap_ns by each
 * thread.
 */
static __always_inline void tell_call(struct pt_regs *ctx, struct thread_state *thread,
				      const struct call_key *key, __u32 tid, __u64 now,
				      __u64 duration, __u64 bytes, __s32 result)
{
	__u32 zero = 0;
	struct hotstage_settings *limits = bpf_map_lookup_elem(&settings, &zero);
	struct call_event *event;

	if (!limits || (!result && (!limits->slow_call_ns || duration < limits->slow_call_ns)))
		return;
	if (now - thread->event_ns < limits->event_gap_ns)
		return;
	thread->event_ns = now;
	tell_stack(ctx, thread, key, tid, now, duration, result);
	event = bpf_ringbuf_reserve(&events, sizeof(struct call_event), 0);
	if (!event) {
		count_loss(LOST_EVENTS_RING);
		return;
	}
	event->kind = result ? EVENT_CALL_ERROR : EVENT_CALL_SLOW;
	event->tgid = key->tgid;
	event->tid = tid;
	event->result = result;
	event->ended_ns = now;
	event->duration_ns = duration;
	event->bytes = bytes;
	event->stream = thread->stream;
	event->request_hash = thread->request_hash;
	event->call = key->call;
	event->stage = key->stage;
	event->modality = key->modality;
	event->device = key->device;
	event->pad[0] = event->pad[1] = event->pad[2] = 0;
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

#endif
