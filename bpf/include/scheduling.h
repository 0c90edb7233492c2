// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * What bpf/sched.bpf.c keeps and agent/hotstage/probes/maps/scheduling.py reads, under the rules of
 * abi.h. Waits and sleeps are measured by the scheduler's own clock, as /proc/PID/schedstat is.
 */
#ifndef HOTSTAGE_SCHEDULING_H
#define HOTSTAGE_SCHEDULING_H

/*
 * cpu_threads[tid]: how the thread left the CPU last, and its sums since it was followed. Written at its
 * own switches and reclaims only.
 */
struct cpu_thread {
	__u32 tgid;
	__u8 stage; /* as it was when the thread left */
	__u8 modality;
	__u8 in_call;	   /* 1: it sat in a timed call */
	__u8 is_preempted; /* 1: it would have gone on */
	__u64 started_ns;  /* task->start_time: a thread id can come back */
	__u64 left_ns;	   /* the run queue's clock, not CLOCK_MONOTONIC */
	__u64 run_delay_ns; /* the task's own counters as they were then */
	__u64 task_voluntary;
	__u64 task_involuntary;
	__u64 voluntary; /* switches since it was followed */
	__u64 involuntary;
	__u64 sleep_ns;
	__u64 woken_wait_ns;
	__u64 preempted_wait_ns;
	__u64 reclaim_since_ns; /* CLOCK_MONOTONIC, 0 = not in a reclaim */
	__u64 reclaim_ns;
};

struct cpu_key {
	__u32 tgid;
	__u8 stage;
	__u8 modality;
	__u8 pad[2];
};

/* Cumulative, of times off the CPU that have ended; [1] of those that began inside a timed call. */
struct cpu_stat {
	__u64 sleep_ns[2];
	__u64 woken_wait_ns[2];	    /* runnable after a sleep, not yet running */
	__u64 preempted_wait_ns[2]; /* taken off the CPU while runnable */
	__u64 voluntary;
	__u64 involuntary;
	__u64 reclaim_ns;
	__u64 reclaims;
	__u64 page_faults; /* moves only while page_fault is attached */
	__u32 histogram_slot; /* of both waits; 0 = none */
	__u32 pad;
};

#endif
