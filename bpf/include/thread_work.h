// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * What has a thread done since its last mark, and for whom? Its launches, bytes, errors and waits go
 * to the request or the batch that it worked for when its stage changes; no launch pays for that.
 */
#ifndef HOTSTAGE_THREAD_WORK_H
#define HOTSTAGE_THREAD_WORK_H

#include "stage_slots.h"
#include "stream_users.h"

#define UNKNOWN_NS (~0ULL)

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
	slot = slot_at(request, place);
	if (!slot)
		return;
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

HOTSTAGE_PART __u32 set_thread_stage(struct thread_state *thread, __u32 tid, __u64 word, __u64 request_hash,
				     __u64 now)
{
	if (!thread)
		return 0;
	if (thread->stage != HOTSTAGE_NO_STAGE && thread->source == SOURCE_NVTX)
		thread->nvtx_total += thread->launch_total - thread->flushed_launch_total;
	flush_work(thread, tid);
	credit_stream_so_far(thread, now);
	thread->stage = HOTSTAGE_WORD_STAGE(word);
	thread->modality = HOTSTAGE_WORD_MODALITY(word);
	thread->source = thread->stage == HOTSTAGE_NO_STAGE ? SOURCE_NONE
			 : HOTSTAGE_WORD_SOURCE(word) == SOURCE_NVTX ? SOURCE_NVTX
								     : SOURCE_MARK;
	thread->stage_since_ns = now;
	thread->launches_since_mark = 0;
	thread->request_hash = request_hash;
	return 0;
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

#endif
