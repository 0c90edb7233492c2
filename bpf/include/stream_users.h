// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Which modalities work on a stream? A thread's launches since it was last asked go to the stream that it
 * launched on: at its marks, when it is seen to launch on another stream, and, without a mark, at its
 * waits. No launch on the same stream pays for it; with its stream in memory, a change is seen at the next
 * look (is_stream_due).
 */
#ifndef HOTSTAGE_STREAM_USERS_H
#define HOTSTAGE_STREAM_USERS_H

#include "maps.h"
#include "conflict_abi.h"

HOTSTAGE_SPARSE_HASH(stream_users, struct function_key, struct stream_user, 4096);
HOTSTAGE_ARRAY(stream_user_zero, struct stream_user, 1); /* never written: 192 bytes of the stack */

/* A process may have its share of streams here; NULL and counted beyond it. */
static __always_inline struct stream_user *stream_user_of(__u32 tgid, __u64 stream)
{
	struct function_key key = {.handle = stream, .tgid = tgid};
	struct stream_user *user = bpf_map_lookup_elem(&stream_users, &key), *none;
	__u32 zero = 0;
	__u64 *held;

	if (user)
		return user;
	held = share_of(tgid, SHARE_STREAM_USERS);
	none = bpf_map_lookup_elem(&stream_user_zero, &zero);
	if (!none || has_its_share(held, SHARE_STREAM_USERS) ||
	    bpf_map_update_elem(&stream_users, &key, none, BPF_NOEXIST))
		count_loss(LOST_STREAM_USERS);
	else
		hold_one_more(held);
	return bpf_map_lookup_elem(&stream_users, &key);
}

/* `launches` more on the stream that the thread launches on, of what it works on now. */
HOTSTAGE_PART __u32 credit_stream(struct thread_state *thread, __u64 launches, __u64 now)
{
	struct stream_user *user;
	__u8 stage, modality;

	if (!thread)
		return 0;
	stage = thread->stage;
	modality = thread->modality;
	thread->streamed_launch_total += launches;
	if (stage == HOTSTAGE_NO_STAGE) {
		stage = thread->inferred_stage;
		modality = thread->inferred_modality;
	}
	user = stream_user_of(thread->tgid, thread->launch_stream);
	if (!user)
		return 0;
	if (modality >= HOTSTAGE_MODALITIES)
		modality = HOTSTAGE_MODALITIES - 1;
	__sync_fetch_and_add(&user->launches[modality], launches);
	if (!user->first_ns[modality])
		__sync_val_compare_and_swap(&user->first_ns[modality], 0, now);
	user->last_ns[modality] = now;
	if (stage < 64 && !(user->stage_masks[modality] >> stage & 1))
		__sync_fetch_and_or(&user->stage_masks[modality], 1ULL << stage);
	return 0;
}

/* All that it has launched since the last time. */
static __always_inline void credit_stream_so_far(struct thread_state *thread, __u64 now)
{
	__u64 launches = thread->launch_total - thread->streamed_launch_total;

	if (launches)
		credit_stream(thread, launches, now);
}

/* A launch, counted in `launch_total` already, is on `stream`. */
static __always_inline void launch_on(struct thread_state *thread, __u64 stream)
{
	__u64 launches;

	if (thread->launch_stream == stream)
		return;
	launches = thread->launch_total - thread->streamed_launch_total - 1;
	if (launches)
		credit_stream(thread, launches, bpf_ktime_get_ns());
	thread->launch_stream = stream;
}

#endif
