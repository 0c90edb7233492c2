// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * What the tracepoints of GPU drivers leave behind: structures and sizes of driver.bpf.c. The same
 * rules as abi.h; agent/hotstage/probes/maps/driver.py holds them as numpy dtypes.
 */
#ifndef HOTSTAGE_DRIVER_H
#define HOTSTAGE_DRIVER_H

#define DRIVER_EVENTS_MAX 32  /* rows of the table of events in agent/hotstage/probes/driver/table.py */
#define DRIVER_NAME 32	      /* bytes of a ring's or timeline's name, NUL included */
#define DRIVER_COMM 16
#define DRIVER_XID_TEXT 240
#define DRIVER_UNKNOWN (~0ULL) /* this kernel's event does not say it */

/* Kinds of the records in driver_events. */
#define DRIVER_OOM_KILL 1
#define DRIVER_XID 2
#define DRIVER_SLOW_IOCTL 3

struct event_count {
	__u64 hits;
	__u64 last_ns;
};
_Static_assert(sizeof(struct event_count) == 16, "event_count");

struct driver_name {
	char text[DRIVER_NAME];
};

/* A fence by the two numbers that name it; the kernel's event carries both as 32 bits. */
struct fence_key {
	__u32 context;
	__u32 seqno;
};

struct open_fence {
	__u64 emitted_ns;
	struct driver_name driver;
	struct driver_name timeline;
};
_Static_assert(sizeof(struct open_fence) == 72, "open_fence");

struct timeline_key {
	struct driver_name driver;
	struct driver_name timeline;
};

/* `signaled`: fences whose emission was seen, which alone have a latency; `counts` is theirs. */
struct timeline_stat {
	__u64 emitted;
	__u64 signaled;
	__u64 total_ns;
	__u64 max_ns;
	__u64 counts[HOTSTAGE_HISTOGRAM_SLOTS];
};
_Static_assert(sizeof(struct timeline_stat) == 1968, "timeline_stat");

struct wait_stat {
	__u64 waits;
	__u64 total_ns;
};

struct gpu_memory_key {
	__u32 gpu;
	__u32 tgid; /* 0: all of that GPU's */
};

struct gpu_memory {
	__u64 bytes;
	__u64 at_ns;
};

struct gpu_file_key {
	__u32 tgid;
	__u32 fd;
};

/* `number`: _IOC_TYPE << 8 | _IOC_NR, or all 32 bits where the device does not use _IOC. */
struct ioctl_key {
	__u32 device; /* index of the pattern that the device's path matched */
	__u32 number;
};

struct ioctl_stat {
	__u64 count;
	__u64 errors; /* returned below zero */
	__u64 slow;
	__u64 total_ns;
	__u64 max_ns;
};

struct open_ioctl {
	__u64 entered_ns;
	struct ioctl_key key;
};

/* Written by user space before and while the programs run. */
struct driver_settings {
	__u64 slow_ioctl_ns; /* 0: none is slow */
};

struct oom_event {
	__u32 kind;
	__u32 tgid;
	__u64 at_ns;
	__u64 anon_kib; /* DRIVER_UNKNOWN */
	__u64 uid;	/* DRIVER_UNKNOWN */
	char comm[DRIVER_COMM]; /* empty: unknown */
};
_Static_assert(sizeof(struct oom_event) == 48, "oom_event");

struct xid_event {
	__u32 kind;
	__u32 xid;
	__u64 at_ns;
	char bus[DRIVER_NAME];
	char text[DRIVER_XID_TEXT];
};
_Static_assert(sizeof(struct xid_event) == 288, "xid_event");

struct ioctl_event {
	__u32 kind;
	__u32 tgid;
	__u64 at_ns;
	__u64 duration_ns;
	__u32 tid;
	__u32 device;
	__u32 number;
	__s32 result;
};
_Static_assert(sizeof(struct ioctl_event) == 40, "ioctl_event");

#endif
