// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/* Slow and failed calls, told one by one. */
#ifndef HOTSTAGE_CALL_EVENTS_H
#define HOTSTAGE_CALL_EVENTS_H

#include "call_counts.h"
#include "maps.h"
#include "names.h"

/*
 * Slow and failed calls are rare things, told one by one, at most one in event_gap_ns by each
 * thread.
 */
static __always_inline __u32 is_call_told(const struct thread_state *thread, const struct returned_call *call)
{
	__u32 zero = 0;
	struct hotstage_settings *limits = bpf_map_lookup_elem(&settings, &zero);

	return limits && (call->result || (limits->slow_call_ns && call->duration_ns >= limits->slow_call_ns)) &&
	       call->now - thread->event_ns >= limits->event_gap_ns;
}

static __always_inline void tell_call(struct pt_regs *ctx, struct thread_state *thread,
				      const struct returned_call *call)
{
	struct call_event *event;

	if (!is_call_told(thread, call))
		return;
	thread->event_ns = call->now;
	tell_stack(ctx, thread, call);
	event = bpf_ringbuf_reserve(&events, sizeof(struct call_event), 0);
	if (!event) {
		count_loss(LOST_EVENTS_RING);
		return;
	}
	event->kind = call->result ? EVENT_CALL_ERROR : EVENT_CALL_SLOW;
	event->tgid = call->key.tgid;
	event->tid = call->tid;
	event->result = call->result;
	event->ended_ns = call->now;
	event->duration_ns = call->duration_ns;
	event->bytes = call->bytes;
	event->stream = thread->stream;
	event->request_hash = thread->request_hash;
	event->call = call->key.call;
	event->stage = call->key.stage;
	event->modality = call->key.modality;
	event->device = call->key.device;
	event->pad[0] = event->pad[1] = event->pad[2] = 0;
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

#endif
