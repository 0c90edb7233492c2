// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * The token conflict's part of what crosses to Python, and who works on which stream: rules as in abi.h,
 * twin in agent/hotstage/probes/maps/conflict.py.
 */
#ifndef HOTSTAGE_CONFLICT_ABI_H
#define HOTSTAGE_CONFLICT_ABI_H

enum hotstage_token_kind {
	TOKENS_VISUAL = 0,
	TOKENS_TEXT = 1,
	HOTSTAGE_TOKEN_KINDS = 2,
};

/* How well something is known; the better the higher. */
enum hotstage_token_basis {
	TOKENS_UNKNOWN = 0,
	TOKENS_ESTIMATED = 1, /* from copied bytes */
	TOKENS_KNOWN = 2,     /* from marks */
};

/* Index into conflict_counts: what became of each allocation that was large enough to be looked at. */
enum hotstage_conflict_outcome {
	CONFLICT_NO_INPUTS = 0, /* user space says nothing of this process on this device */
	CONFLICT_STALE = 1,	/* what it says is too old */
	CONFLICT_UNKNOWN = 2,	/* it does not know the tokens, or what one takes */
	CONFLICT_FEW_TOKENS = 3,
	CONFLICT_NOT_FRAGMENTED = 4,
	CONFLICT_HAS_ROOM = 5, /* what is predicted fits */
	CONFLICT_TOLD = 6,
	CONFLICT_HELD_BACK = 7, /* a verdict, so soon after the process's last one that it was not told */
	CONFLICT_LOST = 8,	/* a verdict that found `urgent` full */
	HOTSTAGE_CONFLICT_OUTCOMES = 9,
};

/* conflict_limits[0]: RULES b. More than each of them is a term that is true. */
struct conflict_limits {
	__u64 allocation_bytes; /* 0 = nothing is looked at */
	__u64 tokens[HOTSTAGE_TOKEN_KINDS];
	__u64 stale_ns; /* inputs that are older give no verdict */
	__u64 gap_ns;	/* least time between two verdicts of one process */
	__u32 fragmentation_permille;
	__u32 pad;
};

/*
 * conflict_inputs[device_key]: what user space knows of a process on a device, replaced whole. A time
 * of 0: not known.
 */
struct conflict_inputs {
	__u64 headroom_bytes; /* free + reusable - reserve */
	__u64 headroom_ns;
	__u64 tokens[HOTSTAGE_TOKEN_KINDS];  /* in flight */
	__u64 awaited[HOTSTAGE_TOKEN_KINDS]; /* of them, those whose memory is still to come */
	__u64 tokens_ns;
	__u64 bytes_per_token[HOTSTAGE_TOKEN_KINDS]; /* 0 = not known */
	__u64 fragmentation_ns;
	__u32 fragmentation_permille;
	__u8 fragmentation_basis; /* 0 = not known: then it is no term */
	__u8 tokens_basis;	  /* enum hotstage_token_basis */
	__u8 pad[2];
};

/* conflict_latches[process] */
struct conflict_latch {
	__u64 told_ns;
	__u64 held_back; /* verdicts that were not told */
};

/* Which terms were true, bits; the size, both tokens and the headroom always are. */
#define CONFLICT_TERM_FRAGMENTED 1

/* An allocation that the tokens in flight leave no room for. */
struct conflict_event {
	__u32 kind;
	__u32 tgid;
	__u32 tid;
	__u32 device; /* as its process counts them */
	__u64 at_ns;
	__u64 bytes;
	__u64 request_hash; /* 0 = none */
	__u64 predicted_bytes;
	__u64 held_back; /* verdicts of the process that were not told, so far */
	struct conflict_inputs inputs;
	__u16 call;
	__u8 stage;
	__u8 modality;
	__u8 terms;
	__u8 pad[3];
};

/* stream_users[function_key of a CUstream]: by modality; many writers, atomic adds. */
struct stream_user {
	__u64 launches[HOTSTAGE_MODALITIES];
	__u64 first_ns[HOTSTAGE_MODALITIES]; /* when launches of it were first told, 0 = never */
	__u64 last_ns[HOTSTAGE_MODALITIES];
	__u64 stage_masks[HOTSTAGE_MODALITIES]; /* bit per stage, 0..63; none for launches without one */
};

_Static_assert(sizeof(struct conflict_limits) == 48, "conflict_limits");
_Static_assert(sizeof(struct conflict_inputs) == 88, "conflict_inputs");
_Static_assert(sizeof(struct conflict_latch) == 16, "conflict_latch");
_Static_assert(sizeof(struct conflict_event) == 152, "conflict_event");
_Static_assert(sizeof(struct stream_user) == 192, "stream_user");

#endif
