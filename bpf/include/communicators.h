// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Which communicators does a process have, as which rank of how many, and when was each last used? A
 * collective is counted for its communicator when it is entered, so that the ranks' counts can be
 * compared while one of them hangs: all ranks make the same calls in the same order.
 */
#ifndef HOTSTAGE_COMMUNICATORS_H
#define HOTSTAGE_COMMUNICATORS_H

#include "arguments.h"
#include "maps.h"

/* log2 of the size of ncclDataType_t 0..11, two bits each: int8, uint8, int32, uint32, int64, uint64,
 * float16, float32, float64, bfloat16, float8e4m3, float8e5m2 (nccl.h).
 */
#define NCCL_TYPE_SHIFTS 0x79fa0U
#define NCCL_TYPES 12

HOTSTAGE_SPARSE_HASH(communicators, struct communicator_key, struct communicator, 4096);
HOTSTAGE_SPARSE_HASH(pending_communicators, struct pending_key, struct pending_communicator, 1024);

/* An argument by its position, on the stack where the machine has no register for it. */
static __always_inline __u64 any_argument(struct pt_regs *ctx, __u32 position)
{
	__u64 value = 0;

	if (position <= HOTSTAGE_REGISTER_ARGUMENTS)
		return register_argument(ctx, position);
	if (bpf_probe_read_user(&value, sizeof(value),
				(void *)stack_argument_address(ctx, position)))
		count_loss(UNREADABLE_ARGUMENTS);
	return value;
}

static __always_inline __u64 bytes_of_type(__u64 count, __u64 type)
{
	return type < NCCL_TYPES ? count << (NCCL_TYPE_SHIFTS >> (2 * type) & 3) : 0;
}

static __always_inline struct communicator *communicator_of(const struct communicator_key *key,
							   __u64 now)
{
	struct communicator *known = bpf_map_lookup_elem(&communicators, key);
	struct communicator fresh = {.first_ns = now,
				     .rank = HOTSTAGE_NO_RANK,
				     .size = HOTSTAGE_NO_RANK,
				     .device = HOTSTAGE_NO_DEVICE};
	__u64 *held;

	if (known)
		return known;
	held = share_of(key->tgid, SHARE_COMMUNICATORS);
	if (has_its_share(held, SHARE_COMMUNICATORS) ||
	    bpf_map_update_elem(&communicators, key, &fresh, BPF_ANY)) {
		count_loss(LOST_COMMUNICATORS);
		return 0;
	}
	hold_one_more(held);
	return bpf_map_lookup_elem(&communicators, key);
}

/* A collective, or a send or receive, is entered. */
HOTSTAGE_PART __u32 use_communicator(__u64 handle, __u64 pid_tgid, __u32 call, __u64 bytes, __u64 now)
{
	struct communicator_key key = {.handle = handle, .tgid = pid_tgid >> 32};
	struct communicator *used;

	if (!handle)
		return 0;
	used = communicator_of(&key, now);
	if (!used)
		return 0;
	__sync_fetch_and_add(&used->calls, 1);
	__sync_fetch_and_add(&used->bytes, bytes);
	used->last_ns = now;
	used->last_tid = (__u32)pid_tgid;
	used->last_call = call;
	return 0;
}

HOTSTAGE_PART __u32 drop_communicator(__u64 handle, __u32 tgid)
{
	struct communicator_key key = {.handle = handle, .tgid = tgid};

	if (!bpf_map_delete_elem(&communicators, &key))
		free_share(tgid, SHARE_COMMUNICATORS);
	return 0;
}

/* Rank and size in the 32 bits that a call in flight has for them; what does not fit is unknown. */
#define NO_PLACE 0xffffULL

/* NO_PLACE for all from there on, without a branch. */
static __always_inline __u32 half_of_place(__u64 number)
{
	return (number | -((NO_PLACE - 1 - number) >> 63)) & NO_PLACE;
}

static __always_inline __u32 packed_place(__u32 rank, __u32 size)
{
	return half_of_place(rank) | half_of_place(size) << 16;
}

static __always_inline __u32 place_or_unknown(__u64 half)
{
	return (__u32)(half | -((NO_PLACE - 1 - half) >> 63));
}

/* What is kept of a call on communicators until it returns. */
static __always_inline void enter_communicator(struct pt_regs *ctx, struct thread_state *thread,
					       const struct call_spec *spec, __u64 pid_tgid, __u32 call,
					       __u64 now)
{
	__u64 handle = any_argument(ctx, spec->device_argument);

	switch (spec->effect) {
	case EFFECT_COMMUNICATOR_NEW:
		thread->argument = handle; /* where it will stand */
		thread->second_argument = PT_REGS_PARM1(ctx); /* what it is made of, if of any */
		thread->third_argument = PT_REGS_PARM2(ctx);
		thread->ordinal = packed_place(NO_PLACE, NO_PLACE);
		if (spec->rank_argument == HOTSTAGE_RANKS_IN_ORDER || spec->detail == MADE_BY_SHRINK)
			thread->ordinal = (__u32)register_argument(ctx, spec->factor_argument);
		else if (spec->rank_argument)
			thread->ordinal =
				packed_place((__u32)register_argument(ctx, spec->rank_argument),
					     (__u32)register_argument(ctx, spec->factor_argument));
		break;
	case EFFECT_COMMUNICATOR_USE:
		thread->argument = bytes_of_type(register_argument(ctx, spec->bytes_argument),
						 (__u32)register_argument(ctx, spec->type_argument));
		use_communicator(handle, pid_tgid, call, thread->argument, now);
		break;
	case EFFECT_COMMUNICATOR_GONE: /* from here on its handle may be another one's */
		thread->argument = 0;
		drop_communicator(handle, pid_tgid >> 32);
		break;
	case EFFECT_COMMUNICATOR_ASKED:
		thread->argument = handle;
		thread->second_argument = PT_REGS_PARM2(ctx); /* where the answer will be */
		break;
	}
}

/* Of ranks that are left out, sorted by NCCL in the caller's list, and not too many to be read. */
static __always_inline __u32 place_after_shrink(const struct communicator *parent, __u64 list,
						__u32 count)
{
	__u32 left_out[HOTSTAGE_RANKS_READ];
	__u64 rank = parent->rank, below = 0;

	if (parent->size == HOTSTAGE_NO_RANK || count >= parent->size)
		return packed_place(NO_PLACE, NO_PLACE);
	__builtin_memset(left_out, 0xff, sizeof(left_out));
	if (rank == HOTSTAGE_NO_RANK || count > HOTSTAGE_RANKS_READ ||
	    bpf_probe_read_user(left_out, count * sizeof(left_out[0]), (void *)list))
		return packed_place(NO_PLACE, parent->size - count);
#pragma clang loop unroll(full)
	for (__u32 i = 0; i < HOTSTAGE_RANKS_READ; i++)
		below += (left_out[i] - rank) >> 63; /* smaller, without a branch */
	return packed_place(rank - below, parent->size - count);
}

/* What its arguments and the communicator that it is made of say. */
HOTSTAGE_PART __u32 place_of_made(const struct thread_state *thread, __u32 making, __u32 tgid)
{
	struct communicator_key key = {.tgid = tgid};
	struct communicator *parent;
	__u32 told;

	if (!thread)
		return packed_place(NO_PLACE, NO_PLACE);
	key.handle = thread->second_argument;
	told = thread->ordinal;
	if (making == MADE_AS_TOLD || (making == MADE_BY_GROWTH && (told & NO_PLACE) != NO_PLACE))
		return told;
	parent = bpf_map_lookup_elem(&communicators, &key);
	if (making == MADE_BY_GROWTH)
		return parent ? packed_place(parent->rank, told >> 16) : told;
	return parent ? place_after_shrink(parent, thread->third_argument, told) :
			packed_place(NO_PLACE, NO_PLACE);
}

static __always_inline void note_answer(const struct thread_state *thread, __u32 kind, __u32 tgid,
					__u64 now)
{
	struct communicator_key key = {.handle = thread->argument, .tgid = tgid};
	struct communicator *asked = communicator_of(&key, now);
	__u32 answer;

	if (!asked)
		return;
	if (bpf_probe_read_user(&answer, sizeof(answer), (void *)thread->second_argument))
		count_loss(UNREADABLE_ARGUMENTS);
	else if (kind == QUESTION_SIZE)
		asked->size = answer;
	else if (kind == QUESTION_RANK)
		asked->rank = answer;
	else
		asked->device = answer < HOTSTAGE_NO_DEVICE ? answer : HOTSTAGE_NO_DEVICE;
}

/* Where one was made before, under the same handle, the one of now is another. */
HOTSTAGE_PART __u32 make_communicator(__u64 address, __u32 tgid, __u32 place, __u64 now)
{
	struct communicator_key key = {.tgid = tgid};
	struct communicator *made;

	if (bpf_probe_read_user(&key.handle, sizeof(key.handle), (void *)address)) {
		count_loss(UNREADABLE_ARGUMENTS);
		return 0;
	}
	if (!key.handle) /* a split that this rank is no part of, or one that goes on */
		return 0;
	made = communicator_of(&key, now);
	if (!made)
		return 0;
	made->rank = place_or_unknown(place & NO_PLACE);
	made->size = place_or_unknown(place >> 16);
	return 0;
}

/* The thread's group has ended: one of those that were made in it. */
HOTSTAGE_PART __u32 settle_pending(__u32 tid, __u32 index, __u32 tgid, __u32 is_done, __u64 now)
{
	struct pending_key key = {.tid = tid, .index = index};
	struct pending_communicator *pending = bpf_map_lookup_elem(&pending_communicators, &key);

	if (!pending)
		return 0;
	if (is_done && pending->tgid == tgid)
		make_communicator(pending->address, tgid, pending->place, now);
	free_share(pending->tgid, SHARE_PENDING);
	bpf_map_delete_elem(&pending_communicators, &key);
	return 0;
}

/* Within a group it will stand there at the group's end; one without a group is one of its own. */
HOTSTAGE_PART __u32 await_group(struct thread_state *thread, __u64 address, __u64 pid_tgid, __u32 place)
{
	struct pending_key key = {.tid = (__u32)pid_tgid};
	struct pending_communicator pending = {.address = address, .tgid = pid_tgid >> 32, .place = place};

	if (!thread)
		return 0;
	key.index = thread->pending_communicators;
	if (bpf_map_lookup_elem(&pending_communicators, &key)) /* of a thread that had this id and ended in its group */
		settle_pending(key.tid, key.index, 0, 0, 0);
	if (key.index >= HOTSTAGE_RANKS_READ || !hold_share(pending.tgid, SHARE_PENDING)) {
		count_loss(LOST_PENDING_COMMUNICATORS);
	} else if (bpf_map_update_elem(&pending_communicators, &key, &pending, BPF_ANY)) {
		free_share(pending.tgid, SHARE_PENDING);
		count_loss(LOST_PENDING_COMMUNICATORS);
	} else {
		thread->pending_communicators = key.index + 1;
	}
	return 0;
}

static __always_inline void leave_group(struct thread_state *thread, __u32 tgid, __u32 tid,
					__u32 is_done, __u64 now)
{
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < HOTSTAGE_RANKS_READ; i++) {
		if (i >= thread->pending_communicators)
			break;
		settle_pending(tid, i, tgid, is_done, now);
	}
	thread->pending_communicators = 0;
}

static __always_inline void make_communicators(struct thread_state *thread,
					       const struct call_spec *spec, __u32 tgid, __u32 tid,
					       __u64 now)
{
	/* Back to where it came from: what comes from there the verifier need not follow. */
	if (spec->rank_argument != HOTSTAGE_RANKS_IN_ORDER)
		thread->ordinal = place_of_made(thread, spec->detail, tgid);
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < HOTSTAGE_RANKS_READ; i++) {
		__u32 is_in_order = spec->rank_argument == HOTSTAGE_RANKS_IN_ORDER;
		__u32 place = is_in_order ? packed_place(i, thread->ordinal) : thread->ordinal;

		if (i >= (is_in_order ? thread->ordinal : 1))
			break;
		await_group(thread, thread->argument + i * 8ULL, (__u64)tgid << 32 | tid, place);
	}
	if (!thread->group_depth)
		leave_group(thread, tgid, tid, 1, now);
}

/* A call on communicators returns. */
static __always_inline void leave_communicator(struct thread_state *thread,
					       const struct call_spec *spec, __u32 tgid, __u32 tid,
					       __u64 now, __s32 result)
{
	switch (spec->effect) {
	case EFFECT_COMMUNICATOR_NEW:
		if (!result)
			make_communicators(thread, spec, tgid, tid, now);
		break;
	case EFFECT_COMMUNICATOR_ASKED:
		if (!result)
			note_answer(thread, spec->detail, tgid, now);
		break;
	case EFFECT_GROUP:
		if (spec->detail == GROUP_BEGINS)
			thread->group_depth += thread->group_depth < 255;
		else if (thread->group_depth && !--thread->group_depth)
			leave_group(thread, tgid, tid, !result && spec->detail == GROUP_ENDS, now);
		break;
	}
}

#endif
