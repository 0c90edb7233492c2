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
							   __u32 rank, __u32 size, __u64 now)
{
	struct communicator *known = bpf_map_lookup_elem(&communicators, key);
	struct communicator fresh = {.first_ns = now, .rank = rank, .size = size};
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
static __always_inline void use_communicator(__u64 handle, __u32 tgid, __u32 tid, __u32 call,
					     __u64 bytes, __u64 now)
{
	struct communicator_key key = {.handle = handle, .tgid = tgid};
	struct communicator *used;

	if (!handle)
		return;
	used = communicator_of(&key, HOTSTAGE_NO_RANK, HOTSTAGE_NO_RANK, now);
	if (!used)
		return;
	__sync_fetch_and_add(&used->calls, 1);
	__sync_fetch_and_add(&used->bytes, bytes);
	used->last_ns = now;
	used->last_tid = tid;
	used->last_call = call;
}

/* Where it was made before, under the same handle, the one of now is another. */
static __always_inline void make_communicator(__u64 address, __u32 tgid, __u32 rank, __u32 size,
					      __u64 now)
{
	struct communicator_key key = {.tgid = tgid};
	struct communicator *made;

	if (bpf_probe_read_user(&key.handle, sizeof(key.handle), (void *)address)) {
		count_loss(UNREADABLE_ARGUMENTS);
		return;
	}
	if (!key.handle) /* within a group it is made at the group's end: its first use tells of it */
		return;
	made = communicator_of(&key, rank, size, now);
	if (!made)
		return;
	made->rank = rank;
	made->size = size;
}

static __always_inline void drop_communicator(__u64 handle, __u32 tgid)
{
	struct communicator_key key = {.handle = handle, .tgid = tgid};
	__u64 *held = share_of(tgid, SHARE_COMMUNICATORS);

	if (!bpf_map_delete_elem(&communicators, &key) && held)
		__sync_fetch_and_add(held, -1);
}

/* Rank and size in the 32 bits that a call in flight has for them; what does not fit is unknown. */
static __always_inline __u32 packed_place(__u64 rank, __u64 size)
{
	if (rank >= 0xffff || size >= 0xffff)
		return ~0U;
	return (__u32)rank | (__u32)size << 16;
}

static __always_inline __u32 place_or_unknown(__u32 half)
{
	return half == 0xffff ? HOTSTAGE_NO_RANK : half;
}

/* What is kept of a call on communicators until it returns. */
static __always_inline void enter_communicator(struct pt_regs *ctx, struct thread_state *thread,
					       const struct call_spec *spec, __u32 tgid, __u32 tid,
					       __u32 call, __u64 now)
{
	__u64 handle = any_argument(ctx, spec->device_argument);

	switch (spec->effect) {
	case EFFECT_COMMUNICATOR_NEW:
		thread->argument = handle; /* where it will stand */
		if (spec->rank_argument == HOTSTAGE_RANKS_IN_ORDER)
			thread->ordinal = (__u32)register_argument(ctx, spec->factor_argument);
		else if (spec->rank_argument)
			thread->ordinal =
				packed_place((__u32)register_argument(ctx, spec->rank_argument),
					     (__u32)register_argument(ctx, spec->factor_argument));
		else
			thread->ordinal = ~0U;
		break;
	case EFFECT_COMMUNICATOR_USE:
		thread->argument = bytes_of_type(register_argument(ctx, spec->bytes_argument),
						 (__u32)register_argument(ctx, spec->type_argument));
		use_communicator(handle, tgid, tid, call, thread->argument, now);
		break;
	case EFFECT_COMMUNICATOR_GONE: /* from here on its handle may be another one's */
		thread->argument = 0;
		drop_communicator(handle, tgid);
		break;
	}
}

/* What a call that makes some leaves behind, until it is off its thread's state. */
struct made_communicators {
	__u64 address;
	__u32 place;
	__u8 effect;
	__u8 rank_argument;
};

static __always_inline void make_communicators(const struct made_communicators *made, __u32 tgid,
					       __u64 now)
{
	if (made->rank_argument != HOTSTAGE_RANKS_IN_ORDER) {
		make_communicator(made->address, tgid, place_or_unknown(made->place & 0xffff),
				  place_or_unknown(made->place >> 16), now);
		return;
	}
#pragma clang loop unroll(disable)
	for (__u32 rank = 0; rank < HOTSTAGE_RANKS_READ; rank++) {
		if (rank >= made->place)
			break;
		make_communicator(made->address + rank * 8ULL, tgid, rank, made->place, now);
	}
}

#endif
