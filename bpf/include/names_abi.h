// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Names of launched kernels and stacks of slow or failing calls: their part of what crosses to Python; rules
 * as in abi.h, twin in agent/hotstage/probes/maps/names.py.
 */
#ifndef HOTSTAGE_NAMES_ABI_H
#define HOTSTAGE_NAMES_ABI_H

#define HOTSTAGE_KERNEL_NAME 240 /* bytes: the function's own name stands before its template arguments */
#define HOTSTAGE_NO_KERNEL 0ULL	 /* the entry of what has no other one */
#define HOTSTAGE_STACK_FRAMES 24

/* Where a kernel's name is from. */
enum hotstage_name_source {
	NAME_LOOKED_UP = 0,  /* its function was looked up by it */
	NAME_REGISTERED = 1, /* its program told the runtime at load */
	NAME_OF_SYMBOL = 2,  /* user space finds it in the file: name_hash is its host function's address */
};

/* kernels[process, hash of a name as in function_state]; graphs: HOTSTAGE_GRAPH_HANDLE. */
struct kernel_key {
	__u64 name_hash;
	__u32 tgid;
	__u32 pad;
};

struct kernel_state {
	__u64 samples; /* launches that were looked at */
	__u32 held;    /* of HOTSTAGE_NO_KERNEL: how many names its process has */
	__u32 source;  /* enum hotstage_name_source */
	char name[HOTSTAGE_KERNEL_NAME];
};

struct names_settings {
	__u32 launch_gap; /* one launch in so many is looked at; 0 = none is */
	__u32 kernels_per_process;
	__u32 takes_stacks;
	__u32 pad;
};

/* The user stack at the return of a slow or failing call, innermost first. */
struct call_stack {
	__u32 kind; /* EVENT_CALL_SLOW or EVENT_CALL_ERROR */
	__u32 tgid;
	__u32 tid;
	__s32 result;
	__u64 ended_ns;
	__u64 duration_ns;
	__u16 call;
	__u8 stage;
	__u8 modality;
	__u32 frame_count;
	__u64 frames[HOTSTAGE_STACK_FRAMES];
};

_Static_assert(sizeof(struct kernel_key) == 16, "kernel_key");
_Static_assert(sizeof(struct kernel_state) == 256, "kernel_state");
_Static_assert(sizeof(struct names_settings) == 16, "names_settings");
_Static_assert(sizeof(struct call_stack) == 232, "call_stack");

#endif
