// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * What does the server say about its own work: which stage is a thread in, which stages has a
 * request open, since when?
 *
 * One program for each function that the marks library exports
 * (agent/hotstage_marks/include/hotstage_marks.h), all on entry. Thread stage: threads[tid], keys
 * the counters of calls.bpf.c. Request spans: pipeline_state[(cgroup, hash of the id)], by several
 * threads at once and without a lock: words by single stores, sums by atomic adds. A finished
 * request goes into `events` and out of the map. Any kernel with uprobes and ring buffers and
 * atomics that return what was there (>= 5.12).
 *
 * A batch is work of one thread for many requests: the thread's sums from its begin to its end and
 * the list of its members go into `events`, and user space splits them. Nothing is done per launch.
 *
 * The input is not trusted: every length is fixed, an unknown request is counted (MISSED_REQUEST)
 * and never made, and a process that begins requests without end fills its own share of the map
 * and no more (LOST_REQUESTS_QUOTA). Who ends or stages a request need not be who began it: the
 * share is that of the process that began it, and it is given back by whoever takes the entry out.
 */
#include "include/backend.h"
#include "include/abi.h"
#include "include/maps.h"
#include "include/levels.h"
#include "include/arguments.h"
#include "include/stage_ids.h"
#include "include/stage_slots.h"
#include "include/request_table.h"
#include "include/thread_work.h"

/* hotstage_mark_stage_begin(word, request_hash, tokens) */
SEC("uprobe")
int mark_stage_begin(struct pt_regs *ctx)
{
	__u64 word = known_word(PT_REGS_PARM1(ctx)), request_hash = PT_REGS_PARM2(ctx),
	      now = bpf_ktime_get_ns(), pid_tgid = bpf_get_current_pid_tgid();
	__u32 tid = (__u32)pid_tgid, queued_us = 0;
	struct thread_state *thread = current_thread(pid_tgid >> 32, tid);
	struct request_state *request;

	note_mark();
	if (thread) {
		set_thread_stage(thread, tid, word, request_hash, now);
		if (thread->run_delay_ns == UNKNOWN_NS)
			queued_us = HOTSTAGE_UNKNOWN_US;
	}
	if (!request_hash)
		return 0;
	request = request_of(request_hash);
	if (request)
		open_slot(request, word, PT_REGS_PARM3(ctx), now, queued_us, 0);
	return 0;
}

/* hotstage_mark_stage_end(word, request_hash, restored_word, tokens) */
SEC("uprobe")
int mark_stage_end(struct pt_regs *ctx)
{
	__u64 word = known_word(PT_REGS_PARM1(ctx)), request_hash = PT_REGS_PARM2(ctx),
	      restored = known_word(PT_REGS_PARM3(ctx));
	__u64 now = bpf_ktime_get_ns(), pid_tgid = bpf_get_current_pid_tgid();
	__u32 tid = (__u32)pid_tgid;
	struct thread_state *thread = current_thread(pid_tgid >> 32, tid);
	struct request_state *request;

	note_mark();
	if (thread)
		set_thread_stage(thread, tid, restored,
				 resumed_request(thread, restored, request_hash), now);
	if (!request_hash)
		return 0;
	request = request_of(request_hash);
	if (request)
		close_slot(request, word, PT_REGS_PARM4(ctx), now);
	return 0;
}

/* hotstage_mark_span_begin(word, request_hash, tokens) */
SEC("uprobe")
int mark_span_begin(struct pt_regs *ctx)
{
	struct request_state *request = request_of(PT_REGS_PARM2(ctx));

	note_mark();
	if (request)
		open_slot(request, known_word(PT_REGS_PARM1(ctx)), PT_REGS_PARM3(ctx),
			  bpf_ktime_get_ns(), HOTSTAGE_UNKNOWN_US, HOTSTAGE_UNKNOWN_US);
	return 0;
}

/* hotstage_mark_span_end(word, request_hash, tokens) */
SEC("uprobe")
int mark_span_end(struct pt_regs *ctx)
{
	struct request_state *request = request_of(PT_REGS_PARM2(ctx));

	note_mark();
	if (request)
		close_slot(request, known_word(PT_REGS_PARM1(ctx)), PT_REGS_PARM3(ctx),
			   bpf_ktime_get_ns());
	return 0;
}

/* hotstage_mark_tokens(request_hash, word, tokens): output tokens so far */
SEC("uprobe")
int mark_tokens(struct pt_regs *ctx)
{
	struct request_state *request = request_of(PT_REGS_PARM1(ctx));
	__u32 tokens = tokens_of(PT_REGS_PARM3(ctx));
	__u64 now = bpf_ktime_get_ns();

	note_mark();
	if (!request)
		return 0;
	/* Whoever says the same again, or less, has made no token. */
	if (tokens > request->last_tokens) {
		if (!request->first_token_ns) {
			request->first_tokens = tokens;
			request->first_token_ns = now;
		}
		request->last_tokens = tokens;
		request->last_token_ns = now;
	}
	request->output_tokens = tokens;
	note_modality(request, known_word(PT_REGS_PARM2(ctx)), now);
	return 0;
}

/* hotstage_mark_embedding(request_hash, word, data, dims | dtype << 32) */
SEC("uprobe")
int mark_embedding(struct pt_regs *ctx)
{
	struct request_state *request = request_of(PT_REGS_PARM1(ctx));
	__u64 word = known_word(PT_REGS_PARM2(ctx)), shape = PT_REGS_PARM4(ctx);

	note_mark();
	if (!request)
		return 0;
	request->embedding_address = PT_REGS_PARM3(ctx);
	request->embedding_dims = (__u32)shape;
	request->embedding_dtype = (__u8)(shape >> 32);
	request->embedding_stage = HOTSTAGE_WORD_STAGE(word);
	note_modality(request, word, bpf_ktime_get_ns());
	return 0;
}

/*
 * hotstage_mark_stage_name(stage, const char name[32]). The first name of an id holds: whoever renames
 * without end has no more names than ids.
 */
SEC("uprobe")
int mark_stage_name(struct pt_regs *ctx)
{
	struct stage_name_key key = {.tgid = bpf_get_current_pid_tgid() >> 32,
				     .stage = (__u32)PT_REGS_PARM1(ctx)};
	struct stage_name name = {};

	note_mark();
	if (key.stage < HOTSTAGE_OWN_STAGE || key.stage > HOTSTAGE_OWN_LAST ||
	    bpf_map_lookup_elem(&stage_names, &key))
		return 0;
	if (bpf_probe_read_user(&name, sizeof(name), (void *)PT_REGS_PARM2(ctx)))
		count_loss(UNREADABLE_ARGUMENTS);
	else if (bpf_map_update_elem(&stage_names, &key, &name, BPF_ANY))
		count_loss(LOST_STAGE_NAMES);
	return 0;
}

/* hotstage_mark_batch_begin(batch_id, word): `word` is the stage of most of its work */
SEC("uprobe")
int mark_batch_begin(struct pt_regs *ctx)
{
	__u64 now = bpf_ktime_get_ns(), pid_tgid = bpf_get_current_pid_tgid();
	__u32 tid = (__u32)pid_tgid;
	struct thread_state *thread = current_thread(pid_tgid >> 32, tid);
	struct batch_state batch = {.batch_id = PT_REGS_PARM1(ctx),
				    .began_ns = now,
				    .word = known_word(PT_REGS_PARM2(ctx))};

	note_mark();
	if (!thread)
		return 0;
	batch.outer_request_hash = thread->request_hash;
	set_thread_stage(thread, tid, batch.word, 0, now);
	thread->in_batch = 0;
	if (bpf_map_update_elem(&batches, &tid, &batch, BPF_ANY))
		count_loss(LOST_BATCHES);
	else
		thread->in_batch = batch_flag(batch.word);
	return 0;
}

/*
 * hotstage_mark_batch_end(const struct hotstage_batch *batch, restored_word). The first call of several
 * ends the batch; the others tell of more members of the same work.
 */
SEC("uprobe")
int mark_batch_end(struct pt_regs *ctx)
{
	__u64 now = bpf_ktime_get_ns(), pid_tgid = bpf_get_current_pid_tgid(), batch_id = 0;
	__u64 address = PT_REGS_PARM1(ctx), restored = known_word(PT_REGS_PARM2(ctx)),
	      request_hash = 0;
	__u32 tid = (__u32)pid_tgid, is_ours;
	struct thread_state *thread = bpf_map_lookup_elem(&threads, &tid);
	struct batch_state *batch = bpf_map_lookup_elem(&batches, &tid);
	struct batch_event *event;

	note_mark();
	if (bpf_probe_read_user(&batch_id, sizeof(batch_id),
				(void *)(address + __builtin_offsetof(struct hotstage_batch,
								      batch_id))))
		count_loss(UNREADABLE_ARGUMENTS);
	if (!thread || thread->tgid != pid_tgid >> 32) { /* or a dead one's, whose id is ours now */
		count_loss(UNMATCHED_BATCHES);
		return 0;
	}
	is_ours = batch && batch->batch_id == batch_id;
	if (thread->in_batch || !is_ours) {
		if (is_ours && HOTSTAGE_WORD_STAGE(restored) != HOTSTAGE_NO_STAGE)
			request_hash = batch->outer_request_hash;
		set_thread_stage(thread, tid, restored, request_hash, now);
		thread->in_batch = 0;
	}
	if (!is_ours) {
		count_loss(UNMATCHED_BATCHES);
		return 0;
	}
	event = bpf_ringbuf_reserve(&events, sizeof(struct batch_event), 0);
	if (!event) {
		count_loss(LOST_EVENTS_RING);
		return 0;
	}
	event->kind = EVENT_BATCH;
	event->tgid = pid_tgid >> 32;
	event->tid = tid;
	event->device = thread->device;
	event->began_ns = batch->began_ns;
	event->ended_ns = now;
	event->cgroup_id = bpf_get_current_cgroup_id();
	event->context = thread->context;
	event->work = batch->work;
	if (bpf_probe_read_user(&event->batch, sizeof(struct hotstage_batch), (void *)address)) {
		count_loss(UNREADABLE_ARGUMENTS);
		bpf_ringbuf_discard(event, BPF_RB_NO_WAKEUP);
	} else {
		event->batch.word = batch->word; /* under which its calls were counted */
		bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	}
	return 0;
}

/* hotstage_mark_request_begin(const struct hotstage_request *record, request_hash) */
SEC("uprobe")
int mark_request_begin(struct pt_regs *ctx)
{
	struct request_key key = {.cgroup_id = bpf_get_current_cgroup_id(),
				  .request_hash = PT_REGS_PARM2(ctx)};
	__u64 strings = PT_REGS_PARM1(ctx) + __builtin_offsetof(struct hotstage_request, id);
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct request_state *request = bpf_map_lookup_elem(&pipeline_state, &key);

	note_mark();
	if (request) {
		count_loss(REUSED_REQUEST);
		take_out(request, &key);
	}
	request = take_in(&key, tgid);
	if (!request)
		return 0;
	if (bpf_probe_read_user(request->id, REQUEST_STRINGS, (void *)strings))
		count_loss(UNREADABLE_ARGUMENTS);
	request->tgid = tgid;
	request->model_id = model_id_of(request->model);
	request->updated_ns = bpf_ktime_get_ns();
	request->started_ns =
		request->updated_ns; /* last: until now the entry is being filled in */
	return 0;
}

/* hotstage_mark_request_end(request_hash, outcome, output_tokens) */
SEC("uprobe")
int mark_request_end(struct pt_regs *ctx)
{
	struct request_key key = {.cgroup_id = bpf_get_current_cgroup_id(),
				  .request_hash = PT_REGS_PARM1(ctx)};
	struct request_state *request = bpf_map_lookup_elem(&pipeline_state, &key);
	struct request_event *event;
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	__u32 tid = (__u32)pid_tgid;
	struct thread_state *thread = bpf_map_lookup_elem(&threads, &tid);

	note_mark();
	if (!request) {
		count_loss(MISSED_REQUEST);
		return 0;
	}
	if (thread && thread->request_hash == key.request_hash)
		flush_work(thread, tid);
	request->output_tokens = tokens_of(PT_REGS_PARM3(ctx));
	event = bpf_ringbuf_reserve(&events, sizeof(struct request_event), 0);
	if (!event) {
		count_loss(LOST_EVENTS_RING);
		take_out(request, &key);
		return 0;
	}
	event->kind = EVENT_REQUEST_FINISHED;
	event->outcome = (__u32)PT_REGS_PARM2(ctx);
	event->ended_ns = bpf_ktime_get_ns();
	event->key.cgroup_id = key.cgroup_id;
	event->key.request_hash = key.request_hash;
	bpf_probe_read_kernel(&event->state, sizeof(struct request_state), request);
	/* Two ends at once: the one that takes the entry out tells of it. */
	if (take_out(request, &key))
		bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	else
		bpf_ringbuf_discard(event, BPF_RB_NO_WAKEUP);
	return 0;
}
