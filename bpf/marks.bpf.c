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
 * The input is not trusted: every length is fixed, an unknown request is counted (MISSED_REQUEST)
 * and never made, and a process that begins requests without end fills its own share of the map
 * and no more (LOST_REQUESTS_QUOTA). Who ends or stages a request need not be who began it: the
 * share is that of the process that began it, and it is given back by whoever takes the entry out.
 */
#include "include/backend.h"
#include "include/abi.h"
#include "include/maps.h"
#include "include/arguments.h"
#include "include/stage_ids.h"

#define SLOT_ONE_OPEN \
	(1U << 24) /* in the last four bytes of stage_slot: count 16, modality 8, open 8 */
#define SLOT_ONE_END 1U
#define REQUEST_STRINGS                                                           \
	240 /* id to input_digest, the same in hotstage_request and request_state \
	     */
#define FNV_OFFSET 0x811c9dc5U
#define FNV_PRIME 0x01000193U

_Static_assert(sizeof(struct hotstage_request) - __builtin_offsetof(struct hotstage_request, id) ==
		       REQUEST_STRINGS,
	       "strings of hotstage_request");
_Static_assert(sizeof(struct request_state) - __builtin_offsetof(struct request_state, id) ==
		       REQUEST_STRINGS,
	       "strings of request_state");

static __always_inline struct request_state *request_of(__u64 request_hash)
{
	struct request_key key = {.cgroup_id = bpf_get_current_cgroup_id(),
				  .request_hash = request_hash};
	struct request_state *request = bpf_map_lookup_elem(&pipeline_state, &key);

	if (!request)
		count_loss(MISSED_REQUEST);
	return request;
}

/*
 * Where and when the request was last seen in this modality: one word, one store, so it cannot
 * tear.
 */
static __always_inline void note_modality(struct request_state *request, __u64 word, __u64 now)
{
	__u32 modality = HOTSTAGE_WORD_MODALITY(word);

	if (modality < HOTSTAGE_MODALITIES)
		*(volatile __u64 *)&request->modality_words[modality] =
			(__u64)HOTSTAGE_WORD_STAGE(word) << 56 | (now >> 8 & 0xffffffffffffULL);
	request->updated_ns = now;
}

/* The stage's slot; a stage that this program does not know is `other`. */
static __always_inline __u32 slot_of(__u64 word)
{
	__u32 stage = HOTSTAGE_WORD_STAGE(word);

	return stage < HOTSTAGE_STAGE_SLOTS ? stage : HOTSTAGE_STAGE_OTHER;
}

static __always_inline void open_slot(struct request_state *request, __u64 word, __u64 tokens,
				      __u64 now)
{
	__u32 stage = slot_of(word);
	struct stage_slot *slot = &request->stages[stage];

	if (HOTSTAGE_WORD_STAGE(word) == HOTSTAGE_NO_STAGE)
		return;
	if (!slot->open)
		slot->began_ns = now;
	if (!slot->open && !slot->count)
		slot->tokens = (__u32)tokens;
	slot->modality = HOTSTAGE_WORD_MODALITY(word);
	__sync_fetch_and_add((__u32 *)&slot->count, SLOT_ONE_OPEN);
	__sync_fetch_and_or(&request->open_mask, 1ULL << stage);
	note_modality(request, word, now);
}

static __always_inline void close_slot(struct request_state *request, __u64 word, __u64 tokens,
				       __u64 now)
{
	__u32 stage = slot_of(word);
	struct stage_slot *slot = &request->stages[stage];

	/* An end without a begin: the begin was before the attach, or came under another word. */
	if (HOTSTAGE_WORD_STAGE(word) == HOTSTAGE_NO_STAGE || !slot->open)
		return;
	if (slot->count)
		__sync_fetch_and_add(&slot->tokens, (__u32)tokens);
	else
		slot->tokens = (__u32)tokens;
	if (slot->open == 1) {
		__sync_fetch_and_add(&slot->total_ns, now - slot->began_ns);
		__sync_fetch_and_and(&request->open_mask, ~(1ULL << stage));
	}
	__sync_fetch_and_add((__u32 *)&slot->count, SLOT_ONE_END - SLOT_ONE_OPEN);
	__sync_fetch_and_or(&request->stage_mask, 1ULL << stage);
	note_modality(request, word, now);
}

/*
 * What the thread has done since it was last asked goes to the request it did it for; no launch
 * pays for that.
 */
static __always_inline void flush_work(struct thread_state *thread)
{
	struct request_key key = {.cgroup_id = bpf_get_current_cgroup_id(),
				  .request_hash = thread->request_hash};
	struct request_state *request;

	if (thread->request_hash) {
		request = bpf_map_lookup_elem(&pipeline_state, &key);
		if (request) {
			__sync_fetch_and_add(&request->launches,
					     thread->launch_total - thread->flushed_launch_total);
			__sync_fetch_and_add(&request->bytes,
					     thread->bytes_total - thread->flushed_bytes_total);
			__sync_fetch_and_add(&request->errors,
					     thread->error_total - thread->flushed_error_total);
			if (thread->stream)
				request->cuda_stream = thread->stream;
		}
	}
	thread->flushed_launch_total = thread->launch_total;
	thread->flushed_bytes_total = thread->bytes_total;
	thread->flushed_error_total = thread->error_total;
}

static __always_inline void set_thread_stage(__u64 word, __u64 request_hash, __u64 now)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	struct thread_state *thread = current_thread(pid_tgid >> 32, (__u32)pid_tgid);

	if (!thread)
		return;
	flush_work(thread);
	thread->stage = HOTSTAGE_WORD_STAGE(word);
	thread->modality = HOTSTAGE_WORD_MODALITY(word);
	thread->stage_since_ns = now;
	thread->request_hash = request_hash;
}

/* hotstage_mark_stage_begin(word, request_hash, tokens) */
SEC("uprobe")
int mark_stage_begin(struct pt_regs *ctx)
{
	__u64 word = PT_REGS_PARM1(ctx), request_hash = PT_REGS_PARM2(ctx),
	      now = bpf_ktime_get_ns();
	struct request_state *request;

	set_thread_stage(word, request_hash, now);
	if (!request_hash)
		return 0;
	request = request_of(request_hash);
	if (request)
		open_slot(request, word, PT_REGS_PARM3(ctx), now);
	return 0;
}

/* hotstage_mark_stage_end(word, request_hash, restored_word, tokens) */
SEC("uprobe")
int mark_stage_end(struct pt_regs *ctx)
{
	__u64 word = PT_REGS_PARM1(ctx), request_hash = PT_REGS_PARM2(ctx),
	      restored = PT_REGS_PARM3(ctx);
	__u64 now = bpf_ktime_get_ns();
	struct request_state *request;

	set_thread_stage(restored,
			 HOTSTAGE_WORD_STAGE(restored) == HOTSTAGE_NO_STAGE ? 0 : request_hash,
			 now);
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

	if (request)
		open_slot(request, PT_REGS_PARM1(ctx), PT_REGS_PARM3(ctx), bpf_ktime_get_ns());
	return 0;
}

/* hotstage_mark_span_end(word, request_hash, tokens) */
SEC("uprobe")
int mark_span_end(struct pt_regs *ctx)
{
	struct request_state *request = request_of(PT_REGS_PARM2(ctx));

	if (request)
		close_slot(request, PT_REGS_PARM1(ctx), PT_REGS_PARM3(ctx), bpf_ktime_get_ns());
	return 0;
}

/* hotstage_mark_tokens(request_hash, word, tokens): output tokens so far */
SEC("uprobe")
int mark_tokens(struct pt_regs *ctx)
{
	struct request_state *request = request_of(PT_REGS_PARM1(ctx));

	if (!request)
		return 0;
	request->output_tokens = (__u32)PT_REGS_PARM3(ctx);
	note_modality(request, PT_REGS_PARM2(ctx), bpf_ktime_get_ns());
	return 0;
}

static __always_inline __u32 model_id_of(const char *model)
{
	__u32 hash = FNV_OFFSET;

	if (!model[0])
		return 0;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < sizeof(((struct request_state *)0)->model); i++) {
		if (!model[i])
			break;
		hash = (hash ^ (__u8)model[i]) * FNV_PRIME;
	}
	return hash;
}

/*
 * Counts one more request in the process's share. Who is to be charged: the process, 0 where it
 * cannot be counted (an honest process must not pay for a full map), HOTSTAGE_REQUEST_TAKEN where
 * it has its share already.
 */
static __always_inline __u64 take_share(__u32 tgid)
{
	__u32 zero = 0;
	__u64 none = 0, *held = bpf_map_lookup_elem(&request_counts, &tgid);
	struct hotstage_settings *limits = bpf_map_lookup_elem(&settings, &zero);

	if (!limits)
		return 0;
	if (!held) {
		bpf_map_update_elem(&request_counts, &tgid, &none, BPF_NOEXIST);
		held = bpf_map_lookup_elem(&request_counts, &tgid);
	}
	if (!held) {
		count_loss(LOST_QUOTAS);
		return 0;
	}
	if (__sync_fetch_and_add(held, 1) < limits->requests_per_process)
		return tgid;
	__sync_fetch_and_add(held, -1);
	count_loss(LOST_REQUESTS_QUOTA);
	return HOTSTAGE_REQUEST_TAKEN;
}

static __always_inline void give_share_back(__u64 charged)
{
	__u32 tgid = (__u32)charged;
	__u64 *held = bpf_map_lookup_elem(&request_counts, &tgid); /* nobody is 0 */

	if (held)
		__sync_fetch_and_add(held, -1);
}

/*
 * Takes the entry out for the first who asks, and only then: so what it is charged is given back
 * once, and what another process begins under the same key meanwhile stays.
 */
static __always_inline __u32 take_out(struct request_state *request, struct request_key *key)
{
	__u64 charged = __sync_lock_test_and_set(&request->quota_tgid, HOTSTAGE_REQUEST_TAKEN);

	if (charged == HOTSTAGE_REQUEST_TAKEN)
		return 0;
	bpf_map_delete_elem(&pipeline_state, key);
	give_share_back(charged);
	return 1;
}

/* A fresh entry, charged to the process that we are in; NULL (counted) when there is no room. */
static __always_inline struct request_state *take_in(struct request_key *key, __u32 tgid)
{
	__u64 charged = take_share(tgid);
	__u32 zero = 0;
	struct request_state *blank = bpf_map_lookup_elem(&request_zero, &zero), *request;

	if (!blank || charged == HOTSTAGE_REQUEST_TAKEN)
		return 0;
	if (bpf_map_update_elem(&pipeline_state, key, blank, BPF_NOEXIST)) {
		count_loss(LOST_REQUESTS);
		give_share_back(charged);
		return 0;
	}
	request = bpf_map_lookup_elem(&pipeline_state, key);
	/* Taken out again already: whoever did that found nobody to give the share back to. */
	if (!request || __sync_val_compare_and_swap(&request->quota_tgid, 0, charged)) {
		give_share_back(charged);
		return 0;
	}
	return request;
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

	if (!request) {
		count_loss(MISSED_REQUEST);
		return 0;
	}
	if (thread && thread->request_hash == key.request_hash)
		flush_work(thread);
	request->output_tokens = (__u32)PT_REGS_PARM3(ctx);
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
