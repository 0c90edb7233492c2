// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * How long do threads in the GPU path wait for a CPU, why are they off it, and what does reclaiming
 * memory cost them? By process, stage and modality, and by thread.
 *
 * Followed are the threads of `threads`: those that made a call or a mark. Every switch of the host
 * passes here; of others it costs a test and a look-up. One program on sched_switch is enough: when a
 * thread leaves the CPU, the scheduler itself knows when it came there (last_arrival) and how long it
 * had waited for that (run_delay), so what lies between two leavings is known without a look at wake-ups,
 * and equals /proc/PID/schedstat. A time off the CPU is counted when the thread next leaves the CPU, under
 * the stage and the call that it was in when it left before.
 *
 * Kernel floor: 5.11, its BTF (typed tracepoints) and CONFIG_FAIR_GROUP_SCHED (the run queue's clock). libbpf only: bcc's headers
 * need not be this kernel's, and a wrong offset here would be wrong data without a sign of it.
 */
#include "include/backend.h"
#include "include/abi.h"
#include "include/histogram.h"
#include "include/scheduling.h"

#define TASK_IS_OF_KERNEL 0x00200000 /* PF_KTHREAD, include/linux/sched.h */

/* Of the counters' object, whoever compiled it: the loader puts its maps in place of these. */
HOTSTAGE_HASH(threads, __u32, struct thread_state, 16384);
HOTSTAGE_MAPPED_ARRAY(call_histograms, struct call_histogram, 2048);
HOTSTAGE_QUEUE(free_histograms, __u32, 2048);
HOTSTAGE_MAPPED_ARRAY(losses, __u64, HOTSTAGE_LOSSES);

/* Preallocated: before 6.1 an entry cannot be allocated safely under the run queue's lock. */
HOTSTAGE_HASH(cpu_threads, __u32, struct cpu_thread, 16384);
HOTSTAGE_HASH(cpu_stats, struct cpu_key, struct cpu_stat, 4096);

struct sched_info {
	unsigned long long run_delay;
	unsigned long long last_arrival;
} __attribute__((preserve_access_index));
struct rq {
	__u64 clock;
} __attribute__((preserve_access_index));
struct cfs_rq {
	struct rq *rq;
} __attribute__((preserve_access_index));
struct sched_entity {
	struct cfs_rq *cfs_rq; /* of its CPU, whatever the task's scheduling class */
} __attribute__((preserve_access_index));
struct task_struct {
	unsigned int flags;
	int pid; /* the thread, as the first namespace numbers it */
	int tgid;
	unsigned long nvcsw;
	unsigned long nivcsw;
	__u64 start_time;
	struct sched_entity se;
	struct sched_info sched_info;
} __attribute__((preserve_access_index));

static __always_inline void count_loss(__u32 loss)
{
	__u64 *lost = bpf_map_lookup_elem(&losses, &loss);

	if (lost)
		__sync_fetch_and_add(lost, 1);
}

/* Where the thread's time goes. A process can put any byte into a mark: what is no stage is none. */
static __always_inline struct cpu_key key_of(const struct thread_state *thread)
{
	struct cpu_key key = {.tgid = thread->tgid};

	key.stage = thread->stage;
	key.modality = thread->modality;
	if (key.stage == HOTSTAGE_NO_STAGE) {
		key.stage = thread->inferred_stage;
		key.modality = thread->inferred_modality;
	}
	if (key.stage > HOTSTAGE_OWN_LAST)
		key.stage = HOTSTAGE_NO_STAGE;
	if (key.modality >= HOTSTAGE_MODALITIES)
		key.modality = HOTSTAGE_MODALITIES - 1;
	return key;
}

/* The sums of a key, made at its first use. NULL when cpu_stats is full: counted as lost. */
static __always_inline struct cpu_stat *stat_of(struct cpu_key *key)
{
	struct cpu_stat *stat = bpf_map_lookup_elem(&cpu_stats, key);
	struct cpu_stat fresh = {};

	if (stat)
		return stat;
	if (bpf_map_pop_elem(&free_histograms, &fresh.histogram_slot)) {
		fresh.histogram_slot = 0;
		count_loss(LOST_HISTOGRAMS);
	}
	/* Another CPU may have been first: then its entry holds, and our histogram goes back. */
	if (bpf_map_update_elem(&cpu_stats, key, &fresh, BPF_NOEXIST) && fresh.histogram_slot)
		bpf_map_push_elem(&free_histograms, &fresh.histogram_slot, BPF_ANY);
	stat = bpf_map_lookup_elem(&cpu_stats, key);
	if (!stat)
		count_loss(LOST_SCHEDULING);
	return stat;
}

static __always_inline void add_wait(__u32 row, __u64 wait_ns)
{
	struct call_histogram *histogram;
	__u32 slot = histogram_slot_of(wait_ns);

	if (!row)
		return;
	histogram = bpf_map_lookup_elem(&call_histograms, &row);
	if (histogram && slot < HOTSTAGE_HISTOGRAM_SLOTS)
		__sync_fetch_and_add(&histogram->counts[slot], 1);
}

/* The thread has been off the CPU since it left last; now it has been on it and leaves again. */
static __always_inline void count_time_off(struct cpu_thread *own, const struct task_struct *task)
{
	struct cpu_key key = {.tgid = own->tgid, .stage = own->stage, .modality = own->modality};
	__u64 off_ns = task->sched_info.last_arrival - own->left_ns;
	__u64 wait_ns = task->sched_info.run_delay - own->run_delay_ns;
	/* Clocks of two CPUs may differ by a little. */
	__u64 sleep_ns = (__s64)off_ns > (__s64)wait_ns ? off_ns - wait_ns : 0;
	__u32 in_call = own->in_call & 1;
	struct cpu_stat *stat = stat_of(&key);

	if (own->is_preempted)
		own->preempted_wait_ns += wait_ns;
	else
		own->woken_wait_ns += wait_ns;
	own->sleep_ns += sleep_ns;
	if (!stat)
		return;
	if (own->is_preempted) {
		__sync_fetch_and_add(&stat->preempted_wait_ns[in_call], wait_ns);
		__sync_fetch_and_add(&stat->involuntary, 1);
	} else {
		__sync_fetch_and_add(&stat->woken_wait_ns[in_call], wait_ns);
		__sync_fetch_and_add(&stat->voluntary, 1);
	}
	if (sleep_ns)
		__sync_fetch_and_add(&stat->sleep_ns[in_call], sleep_ns);
	add_wait(stat->histogram_slot, wait_ns);
}

/*
 * The entry of a thread in the GPU path, made when it is first seen; NULL for all others. `is_new` is
 * set where the thread's counters have no earlier value yet.
 */
static __always_inline struct cpu_thread *followed(const struct task_struct *task,
						   const struct thread_state *thread, __u32 *is_new)
{
	struct cpu_thread fresh = {.tgid = thread->tgid}, *own;
	__u32 tid = task->pid;

	own = bpf_map_lookup_elem(&cpu_threads, &tid);
	*is_new = !own || own->started_ns != task->start_time;
	if (!*is_new)
		return own;
	fresh.started_ns = task->start_time;
	bpf_map_update_elem(&cpu_threads, &tid, &fresh, BPF_ANY);
	own = bpf_map_lookup_elem(&cpu_threads, &tid);
	if (!own)
		count_loss(LOST_SCHEDULING);
	return own;
}

/* NULL for whoever has made no call and no mark: most of the host. */
static __always_inline struct thread_state *in_gpu_path(const struct task_struct *task)
{
	__u32 tid = task->pid;
	struct thread_state *thread;

	if (task->flags & TASK_IS_OF_KERNEL)
		return 0;
	thread = bpf_map_lookup_elem(&threads, &tid);
	return thread && thread->tgid == (__u32)task->tgid ? thread : 0;
}

/* TP_PROTO(bool preempt, struct task_struct *prev, struct task_struct *next, ...), trace/events/sched.h */
SEC("tp_btf/sched_switch")
int thread_left(__u64 *ctx)
{
	struct task_struct *task = (struct task_struct *)ctx[1];
	struct thread_state *thread = in_gpu_path(task);
	struct cpu_thread *own;
	struct cpu_key key;
	__u32 is_new;

	if (!thread)
		return 0;
	own = followed(task, thread, &is_new);
	if (!own)
		return 0;
	if (is_new || !own->left_ns) {
		own->is_preempted = ctx[0] & 1;
	} else {
		count_time_off(own, task);
		own->voluntary += task->nvcsw - own->task_voluntary;
		own->involuntary += task->nivcsw - own->task_involuntary;
		/* By the counter that moved, as /proc tells it: a signal may have changed its state since. */
		own->is_preempted = task->nivcsw != own->task_involuntary;
	}
	own->task_voluntary = task->nvcsw;
	own->task_involuntary = task->nivcsw;
	own->run_delay_ns = task->sched_info.run_delay;
	key = key_of(thread);
	own->stage = key.stage;
	own->modality = key.modality;
	own->in_call = thread->call != 0;
	/* `runqueues` itself is a symbol that kernels without CONFIG_KALLSYMS_ALL do not resolve. */
	own->left_ns = task->se.cfs_rq->rq->clock;
	return 0;
}

static __always_inline struct cpu_thread *reclaiming(struct thread_state **thread)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 is_new;

	*thread = in_gpu_path(task);
	return *thread ? followed(task, *thread, &is_new) : 0;
}

static __always_inline void reclaim_begins(void)
{
	struct thread_state *thread;
	struct cpu_thread *own = reclaiming(&thread);

	if (own)
		own->reclaim_since_ns = bpf_ktime_get_ns();
}

static __always_inline void reclaim_ends(void)
{
	struct thread_state *thread;
	struct cpu_thread *own = reclaiming(&thread);
	struct cpu_stat *stat;
	struct cpu_key key;
	__u64 took_ns;

	if (!own || !own->reclaim_since_ns)
		return;
	took_ns = bpf_ktime_get_ns() - own->reclaim_since_ns;
	own->reclaim_since_ns = 0;
	own->reclaim_ns += took_ns;
	key = key_of(thread);
	stat = stat_of(&key);
	if (!stat)
		return;
	__sync_fetch_and_add(&stat->reclaim_ns, took_ns);
	__sync_fetch_and_add(&stat->reclaims, 1);
}

/* A thread that finds no free page reclaims some itself, of the host or of its cgroup. */
SEC("tp_btf/mm_vmscan_direct_reclaim_begin")
int host_reclaim_begin(void *ctx)
{
	reclaim_begins();
	return 0;
}

SEC("tp_btf/mm_vmscan_direct_reclaim_end")
int host_reclaim_end(void *ctx)
{
	reclaim_ends();
	return 0;
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_begin")
int cgroup_reclaim_begin(void *ctx)
{
	reclaim_begins();
	return 0;
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_end")
int cgroup_reclaim_end(void *ctx)
{
	reclaim_ends();
	return 0;
}

/*
 * TP_PROTO(unsigned long address, struct pt_regs *regs, unsigned long error_code), asm/trace/exceptions.h of x86. Loaded
 * on request alone: every fault of the host that a user's instruction takes comes here, and of all but followed
 * threads one look-up is the end of it.
 */
SEC("tp_btf/page_fault_user")
int page_fault(void *ctx)
{
	__u64 id = bpf_get_current_pid_tgid();
	__u32 tid = (__u32)id;
	struct thread_state *thread = bpf_map_lookup_elem(&threads, &tid);
	struct cpu_stat *stat;
	struct cpu_key key;

	if (!thread || thread->tgid != id >> 32)
		return 0;
	key = key_of(thread);
	stat = stat_of(&key);
	if (stat)
		__sync_fetch_and_add(&stat->page_faults, 1);
	return 0;
}
