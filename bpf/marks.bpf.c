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
#include "include/arguments.h"
#include "include/stage_ids.h"

#define SLOT_ONE_OPEN \
	(1U << 24) /* in the last four bytes of stage_slot: count 16, modality 8, open 8 */
#define SLOT_ONE_END 1U
#define SLOT_OPEN_MAX 192 /* more begins without an end are one of these; room for all CPUs at once */
#define REQUEST_STRINGS                                                           \
	240 /* id to input_digest, the same in hotstage_request and request_state \
	     */
#define FIRST_OWN_SLOT (HOTSTAGE_STAGE_SLOTS - HOTSTAGE_OWN_SLOTS)
#define UNKNOWN_NS (~0ULL)
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
 * Where and when the request was last seen in this modality, and first: one word each, one store,
 * so it cannot tear.
 */
static __always_inline void note_modality(struct request_state *request, __u64 word, __u64 now)
{
	__u32 modality = HOTSTAGE_WORD_MODALITY(word);
	__u64 seen = (__u64)HOTSTAGE_WORD_STAGE(word) << 56 | (now >> 8 & 0xffffffffffffULL);

	if (modality < HOTSTAGE_MODALITIES) {
		*(volatile __u64 *)&request->modality_words[modality] = seen;
		if (!request->modality_first_words[modality])
			__sync_val_compare_and_swap(&request->modality_first_words[modality], 0,
						    seen);
	}
	request->updated_ns = now;
}

/*
 * The slot of a stage that the server made up. They fill in order, so whoever loses the exchange
 * lost this place and looks at the next. HOTSTAGE_STAGE_SLOTS: it has none, and none was lost to it.
 */
static __always_inline __u32 own_slot_of(struct request_state *request, __u32 stage, __u32 may_claim)
{
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < HOTSTAGE_OWN_SLOTS; i++) {
		__u64 held = *(volatile __u64 *)&request->own_stages;
		__u32 shift = i * 8;

		if (!(held >> shift & 0xff)) {
			if (!may_claim)
				return HOTSTAGE_STAGE_SLOTS;
			__sync_val_compare_and_swap(&request->own_stages, held,
						    held | (__u64)stage << shift);
			held = *(volatile __u64 *)&request->own_stages;
		}
		if ((held >> shift & 0xff) == stage)
			return FIRST_OWN_SLOT + i;
	}
	if (may_claim)
		count_loss(LOST_OWN_STAGES);
	return HOTSTAGE_STAGE_OTHER;
}

/* The stage's slot; a stage that this program does not know is `other`. */
static __always_inline __u32 slot_of(struct request_state *request, __u64 word, __u32 may_claim)
{
	__u32 stage = HOTSTAGE_WORD_STAGE(word);

	if (stage < FIRST_OWN_SLOT)
		return stage;
	if (stage < HOTSTAGE_OWN_STAGE || stage > HOTSTAGE_OWN_LAST)
		return HOTSTAGE_STAGE_OTHER;
	return own_slot_of(request, stage, may_claim);
}

/* Who marks may say anything: a stage that there is none of is `other`, such a modality is unknown. */
static __always_inline __u64 known_word(__u64 word)
{
	__u64 stage = HOTSTAGE_WORD_STAGE(word), modality = HOTSTAGE_WORD_MODALITY(word);

	if (stage >= FIRST_OWN_SLOT && stage != HOTSTAGE_NO_STAGE &&
	    (stage < HOTSTAGE_OWN_STAGE || stage > HOTSTAGE_OWN_LAST))
		stage = HOTSTAGE_STAGE_OTHER;
	if (modality >= HOTSTAGE_MODALITIES)
		modality = HOTSTAGE_MODALITIES - 1;
	return (word & ~0xffffULL) | modality << 8 | stage;
}

/* The bit in the masks of what went into this slot. */
static __always_inline __u64 mask_of(__u32 slot, __u64 word)
{
	__u32 bit = slot < FIRST_OWN_SLOT ? slot : HOTSTAGE_WORD_STAGE(word);

	return 1ULL << (bit & 63);
}

/* A number of tokens that cannot be one is no number. */
static __always_inline __u32 tokens_of(__u64 tokens)
{
	if (tokens <= 0xffffffff)
		return (__u32)tokens;
	count_loss(REFUSED_TOKENS);
	return 0;
}

#ifndef HOTSTAGE_NO_BTF
struct sched_info {
	unsigned long long run_delay;
} __attribute__((preserve_access_index));
struct task_struct {
	struct sched_info sched_info;
} __attribute__((preserve_access_index));
#endif

/* How long our task has waited for a CPU so far; UNKNOWN_NS where the kernel does not tell. */
static __always_inline __u64 run_delay(void)
{
	__u64 delay_ns = UNKNOWN_NS;

#ifndef HOTSTAGE_NO_BTF
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();

	if (bpf_core_field_exists(task->sched_info.run_delay) &&
	    bpf_probe_read_kernel(&delay_ns, sizeof(delay_ns), &task->sched_info.run_delay))
		return UNKNOWN_NS;
#endif
	return delay_ns;
}

/* `queued_us`: what its wait for a CPU begins with; `others_us`: the other waits. */
static __always_inline void open_slot(struct request_state *request, __u64 word, __u64 tokens,
				      __u64 now, __u32 queued_us, __u32 others_us)
{
	struct stage_slot *slot;
	__u32 place;

	if (HOTSTAGE_WORD_STAGE(word) == HOTSTAGE_NO_STAGE)
		return;
	place = slot_of(request, word, 1);
	if (place >= HOTSTAGE_STAGE_SLOTS)
		return;
	slot = &request->stages[place];
	if (!slot->open)
		slot->began_ns = now;
	if (!slot->open && !slot->count) {
		slot->tokens = tokens_of(tokens);
		slot->run_queue_us = queued_us;
		slot->sync_us = slot->copy_us = slot->alloc_us = others_us;
	}
	if (place == HOTSTAGE_STAGE_LORA_APPLY) {
		request->lora_rank = HOTSTAGE_WORD_LORA_RANK(word);
		request->lora_module = HOTSTAGE_WORD_LORA_MODULE(word);
	}
	slot->modality = HOTSTAGE_WORD_MODALITY(word);
	if (slot->open < SLOT_OPEN_MAX)
		__sync_fetch_and_add((__u32 *)&slot->count, SLOT_ONE_OPEN);
	__sync_fetch_and_or(&request->open_mask, mask_of(place, word));
	note_modality(request, word, now);
}

static __always_inline void close_slot(struct request_state *request, __u64 word, __u64 tokens,
				       __u64 now)
{
	__u32 place = slot_of(request, word, 0);
	struct stage_slot *slot;

	if (HOTSTAGE_WORD_STAGE(word) == HOTSTAGE_NO_STAGE || place >= HOTSTAGE_STAGE_SLOTS)
		return;
	/* An end without a begin: the begin was before the attach, or came under another word. */
	slot = &request->stages[place];
	if (!slot->open)
		return;
	if (slot->count)
		__sync_fetch_and_add(&slot->tokens, tokens_of(tokens));
	else
		slot->tokens = tokens_of(tokens);
	if (slot->open == 1) {
		__sync_fetch_and_add(&slot->total_ns, now - slot->began_ns);
		__sync_fetch_and_and(&request->open_mask, ~mask_of(place, word));
	}
	/* The 65,536th end begins the count anew, and must not reach the modality beside it. */
	__sync_fetch_and_add((__u32 *)&slot->count,
			     (slot->count == 0xffff ? -0xffffU : SLOT_ONE_END) - SLOT_ONE_OPEN);
	__sync_fetch_and_or(&request->stage_mask, mask_of(place, word));
	note_modality(request, word, now);
}

/* A sum of microseconds that stays at its end; one that nobody has added to yet begins here. */
static __always_inline void add_wait(__u32 *sum, __u64 wait_ns)
{
	__u64 before = *(volatile __u32 *)sum, wait_us = (wait_ns + 500) / 1000;

	if (before == HOTSTAGE_UNKNOWN_US)
		before = *sum = 0;
	if (before + wait_us >= HOTSTAGE_UNKNOWN_US)
		*sum = HOTSTAGE_UNKNOWN_US - 1;
	else if (wait_us)
		__sync_fetch_and_add(sum, (__u32)wait_us);
}

/* The context that the thread works in has served this stage. */
static __always_inline void bind_context(struct request_state *request,
					 const struct thread_state *thread, __u64 mask)
{
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < HOTSTAGE_CONTEXTS; i++) {
		struct request_context *bound = &request->contexts[i];

		if (!bound->context)
			__sync_val_compare_and_swap(&bound->context, 0, thread->context);
		if (*(volatile __u64 *)&bound->context == thread->context) {
			bound->device = thread->device;
			__sync_fetch_and_or(&bound->stage_mask, mask);
			return;
		}
	}
	count_loss(LOST_REQUEST_CONTEXTS);
}

/* What a thread has done between two of its marks. */
struct work_done {
	__u64 launches;
	__u64 bytes;
	__u64 run_queue_ns; /* UNKNOWN_NS where the kernel does not tell */
	__u32 errors;
	__u32 pad;
};

/* Its waits lie in the thread itself. */
static __always_inline void credit_request(struct request_state *request,
					   const struct thread_state *thread,
					   const struct work_done *done)
{
	__u64 word = thread->stage;
	struct stage_slot *slot;
	__u32 place;

	__sync_fetch_and_add(&request->launches, done->launches);
	__sync_fetch_and_add(&request->bytes, done->bytes);
	__sync_fetch_and_add(&request->errors, done->errors);
	if (thread->stream)
		request->cuda_stream = thread->stream;
	if (thread->stage == HOTSTAGE_NO_STAGE)
		return;
	place = slot_of(request, word, 0);
	if (place >= HOTSTAGE_STAGE_SLOTS)
		return;
	slot = &request->stages[place];
	if (done->run_queue_ns != UNKNOWN_NS)
		add_wait(&slot->run_queue_us, done->run_queue_ns);
	add_wait(&slot->sync_us, thread->wait_ns[WAIT_SYNC]);
	add_wait(&slot->copy_us, thread->wait_ns[WAIT_COPY]);
	add_wait(&slot->alloc_us, thread->wait_ns[WAIT_ALLOC]);
	if (thread->context && (done->launches || done->bytes || thread->wait_ns[WAIT_SYNC]))
		bind_context(request, thread, mask_of(place, word));
}

static __always_inline void credit_batch(struct batch_state *batch,
					 const struct thread_state *thread,
					 const struct work_done *done)
{
	batch->work.launches += done->launches;
	batch->work.bytes += done->bytes;
	batch->work.errors += done->errors;
	if (done->run_queue_ns == UNKNOWN_NS)
		batch->work.run_queue_ns = UNKNOWN_NS;
	else if (batch->work.run_queue_ns != UNKNOWN_NS)
		batch->work.run_queue_ns += done->run_queue_ns;
	batch->work.sync_ns += thread->wait_ns[WAIT_SYNC];
	batch->work.copy_ns += thread->wait_ns[WAIT_COPY];
	batch->work.alloc_ns += thread->wait_ns[WAIT_ALLOC];
}

/*
 * What the thread has done since it was last asked goes to the request or the batch that it did it
 * for; no launch pays for that.
 */
static __always_inline void flush_work(struct thread_state *thread, __u32 tid)
{
	struct request_key key = {.cgroup_id = bpf_get_current_cgroup_id(),
				  .request_hash = thread->request_hash};
	struct work_done done = {
		.launches = thread->launch_total - thread->flushed_launch_total,
		.bytes = thread->bytes_total - thread->flushed_bytes_total,
		.errors = thread->error_total - thread->flushed_error_total,
		.run_queue_ns = run_delay(),
	};
	__u64 delayed_ns = done.run_queue_ns;
	struct request_state *request;
	struct batch_state *batch;

	if (delayed_ns != UNKNOWN_NS) /* at its first mark a thread has no earlier one */
		done.run_queue_ns = thread->stage_since_ns ? delayed_ns - thread->run_delay_ns : 0;
	if (thread->request_hash) {
		request = bpf_map_lookup_elem(&pipeline_state, &key);
		if (request)
			credit_request(request, thread, &done);
	} else if (thread->in_batch) {
		batch = bpf_map_lookup_elem(&batches, &tid);
		if (batch)
			credit_batch(batch, thread, &done);
	}
	thread->run_delay_ns = delayed_ns;
	thread->wait_ns[WAIT_SYNC] = thread->wait_ns[WAIT_COPY] = thread->wait_ns[WAIT_ALLOC] = 0;
	thread->flushed_launch_total = thread->launch_total;
	thread->flushed_bytes_total = thread->bytes_total;
	thread->flushed_error_total = thread->error_total;
}

static __always_inline void set_thread_stage(struct thread_state *thread, __u32 tid, __u64 word,
					     __u64 request_hash, __u64 now)
{
	if (thread->stage != HOTSTAGE_NO_STAGE && thread->source == SOURCE_NVTX)
		thread->nvtx_total += thread->launch_total - thread->flushed_launch_total;
	flush_work(thread, tid);
	thread->stage = HOTSTAGE_WORD_STAGE(word);
	thread->modality = HOTSTAGE_WORD_MODALITY(word);
	thread->source = thread->stage == HOTSTAGE_NO_STAGE ? SOURCE_NONE
			 : HOTSTAGE_WORD_SOURCE(word) == SOURCE_NVTX ? SOURCE_NVTX
								     : SOURCE_MARK;
	thread->stage_since_ns = now;
	thread->launches_since_mark = 0;
	thread->request_hash = request_hash;
}

static __always_inline __u8 batch_flag(__u64 word)
{
	return HOTSTAGE_WORD_STAGE(word) % 128 + 1;
}

/*
 * Whom the thread works for after the end of a stage: the same request, as stages nest, but nobody
 * by name where it is back in its batch or in no stage.
 */
static __always_inline __u64 resumed_request(const struct thread_state *thread, __u64 restored,
					     __u64 request_hash)
{
	if (HOTSTAGE_WORD_STAGE(restored) == HOTSTAGE_NO_STAGE ||
	    (thread->in_batch && thread->in_batch == batch_flag(restored)))
		return 0;
	return request_hash;
}

/* hotstage_mark_stage_begin(word, request_hash, tokens) */
SEC("uprobe")
int mark_stage_begin(struct pt_regs *ctx)
{
	__u64 word = known_word(PT_REGS_PARM1(ctx)), request_hash = PT_REGS_PARM2(ctx),
	      now = bpf_ktime_get_ns(), pid_tgid = bpf_get_current_pid_tgid();
	__u32 tid = (__u32)pid_tgid, queued_us = 0;
	struct thread_state *thread = current_thread(pid_tgid >> 32, tid);
	struct request_state *request;

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
