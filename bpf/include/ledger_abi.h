// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * The memory ledger's part of what crosses to Python: rules as in abi.h, twin in
 * agent/hotstage/probes/maps/ledger.py. Bytes are what the calls said, before any rounding by the
 * driver.
 */
#ifndef HOTSTAGE_LEDGER_ABI_H
#define HOTSTAGE_LEDGER_ABI_H

/* What was allocated; column `detail` of call_spec for the effects of memory. */
enum hotstage_memory {
	MEMORY_NONE = 0,
	MEMORY_DEVICE = 1,
	MEMORY_PITCHED = 2,  /* rows of a pitch that the driver chose */
	MEMORY_MANAGED = 3,
	MEMORY_POOL = 4,     /* stream-ordered */
	MEMORY_HOST = 5,     /* page-locked, on the host */
	MEMORY_PHYSICAL = 6, /* cuMemCreate: memory without an address */
	MEMORY_MAPPED = 7,   /* addresses with physical memory behind them */
	MEMORY_RESERVED = 8, /* addresses alone */
	MEMORY_IMPORTED = 9, /* a handle of memory made elsewhere: its size is not known */
	MEMORY_ARRAY = 10,   /* for textures and surfaces: elements of a format, by its descriptor */
	MEMORY_SHARED = 11,  /* another process's, at an address of this one: its size is not known */
	MEMORY_GRAPH = 12,   /* addresses that nodes of graphs give out; what is behind them is the driver's */
	MEMORY_EXTERNAL = 13, /* of Vulkan, Direct3D or the like, at an address of CUDA's */
	MEMORY_MULTICAST = 14, /* a handle of memory that several GPUs have, each its own */
	HOTSTAGE_MEMORY_KINDS = 15,
};

/* Addresses are unique within a space: a mapping begins where its reservation may begin, too. */
enum hotstage_memory_space {
	SPACE_POINTERS = 0,
	SPACE_HANDLES = 1,
	SPACE_MAPPINGS = 2,
	SPACE_RESERVATIONS = 3,
	SPACE_ARRAYS = 4,
};

/* How a context ends; column `detail` of call_spec for EFFECT_CONTEXT_END. */
enum hotstage_context_end {
	CONTEXT_DESTROYED = 0, /* f(CUcontext) */
	PRIMARY_RESET = 1,     /* f(device) */
	PRIMARY_RELEASED = 2,  /* f(device): ends with the last hold */
};

/* Column `detail` of call_spec for EFFECT_CONTEXT_NEW: the device's primary context, held once more. */
#define HOTSTAGE_PRIMARY_CONTEXT 1

#define HOTSTAGE_MEMORY_STAGES 1024 /* rows of memory_stages for one process */

#define ALLOCATION_IS_STAGED 1	/* it is in a row of memory_stages */
#define ALLOCATION_IS_CHARGED 2 /* it is in its process's share */
#define ALLOCATION_IS_UNSIZED 4 /* how large it is the call did not say */

struct allocation_key {
	__u64 address; /* or CUmemGenericAllocationHandle */
	__u32 tgid;
	__u32 space; /* enum hotstage_memory_space */
};

/* allocations[key]: written once, but for `handle` of what is held. */
struct allocation {
	__u64 bytes;
	__u64 since_ns; /* when its call returned */
	__u64 context;	/* CUcontext that was current, 0 = not seen */
	__u64 handle;	/* a mapping's; of what is held: how often, by owners and mappings */
	__u8 kind;	/* enum hotstage_memory */
	__u8 device;
	__u8 stage;
	__u8 modality;
	__u8 flags; /* ALLOCATION_IS_… */
	__u8 pad[3];
};

/* memory_sums[key]; of kind MEMORY_NONE and no device: what belongs to the process as a whole. */
struct memory_key {
	__u32 tgid;
	__u8 kind;
	__u8 device;
	__u8 pad[2];
};

/*
 * Every field changes by one atomic operation. `live` = allocated - freed - implicit, exact whenever no
 * call is between its two updates. `high_bytes` is the highest `live_bytes` that any of them made.
 */
struct memory_sum {
	__u64 live_bytes;
	__u64 live_count;
	__u64 high_bytes;
	__u64 allocated_bytes;
	__u64 allocated_count;
	__u64 freed_bytes; /* by calls */
	__u64 freed_count;
	__u64 implicit_bytes; /* with their context, or their address was given out again */
	__u64 implicit_count;
	__u64 untracked_bytes; /* allocated, but there was no room to remember them */
	__u64 untracked_count;
	__u64 unmatched_frees; /* of what is not in the ledger */
	__u64 failed_count;    /* out of memory */
	__u64 failed_bytes;    /* what the last of them asked for */
	__u64 failed_ns;
	__u64 refilled_count; /* allocations as large as what was freed last */
	__u64 last_freed_bytes;
	__u64 unsized_count; /* of `live_count`, those whose bytes are not known: 0 in all sums */
};

/* memory_stages[key]: memory for GPUs by the stage and modality that allocated it. */
struct memory_stage_key {
	__u32 tgid;
	__u8 device;
	__u8 stage;
	__u8 modality;
	__u8 pad;
};

struct memory_stage {
	__u64 live_bytes;
	__u64 high_bytes;
	__u64 live_count;
	__u64 allocated_bytes;
};

/* memory_pools[function_key of a CUmemoryPool]: what the process asked of it, as of then; 0 ns = never. */
struct memory_pool {
	__u64 reserved_bytes;
	__u64 reserved_high_bytes;
	__u64 used_bytes;
	__u64 used_high_bytes;
	__u64 reserved_ns;
	__u64 used_ns;
	__u32 device;
	__u32 pad;
};

/* What is to be looked for by user space, because the programs that bcc compiles cannot: ledger_notes.h. */
enum hotstage_ledger_note {
	NOTE_UNMAPPED = 0, /* mappings from `from` on, before `end` */
	NOTE_ENDED = 1,	   /* what ended with a context: `from`, or 0 = all of the device */
};

struct ledger_note {
	__u64 from;
	__u64 end;
	__u64 until_ns;	     /* what was allocated later is something else */
	__u64 missing_bytes; /* of an unmap: those that are still to be found */
	__u32 tgid;
	__u32 device;
	__u32 how;	  /* enum hotstage_ledger_note */
	__u32 with_pools; /* of an end: memory of pools, too */
};

/* Last argument of ledger_take_out. */
enum hotstage_taken_out {
	TAKEN_FREED = 0,
	TAKEN_IMPLICITLY = 1,
	TAKEN_UNMATCHED = 2, /* nothing was found: an unmap of what the ledger does not have */
};

/* primary_contexts[device_key]: as of the first hold that was seen. */
struct primary_context {
	__u64 context;
	__u64 holds;
	__u64 kinds_before; /* rows of call_stats that its process had by then, that of the hold too */
};

_Static_assert(sizeof(struct allocation_key) == 16, "allocation_key");
_Static_assert(sizeof(struct allocation) == 40, "allocation");
_Static_assert(sizeof(struct memory_key) == 8, "memory_key");
_Static_assert(sizeof(struct memory_sum) == 144, "memory_sum");
_Static_assert(sizeof(struct memory_stage_key) == 8, "memory_stage_key");
_Static_assert(sizeof(struct memory_stage) == 32, "memory_stage");
_Static_assert(sizeof(struct memory_pool) == 56, "memory_pool");
_Static_assert(sizeof(struct ledger_note) == 48, "ledger_note");
_Static_assert(sizeof(struct primary_context) == 24, "primary_context");

#endif
