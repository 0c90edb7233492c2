// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * What the programs that bcc compiles count, counted a second time by raw tracepoints and CO-RE: programs that are
 * started and end by name, OOM kills, ioctls of one process. For tests that hold both against each other.
 */
#include "include/backend.h"

struct task_struct {
	int pid;
	int tgid;
	char comm[16];
} __attribute__((preserve_access_index));

#ifdef __TARGET_ARCH_arm64
#define IOCTL_NUMBER 29
struct user_pt_regs___kernel {
	__u64 regs[31];
} __attribute__((preserve_access_index));
#define FIRST_ARGUMENT(ctx) BPF_CORE_READ((struct user_pt_regs___kernel *)(ctx)->args[0], regs[0])
#else
#define IOCTL_NUMBER 16
/* The kernel's own names of registers differ from those of its user-space header. */
struct pt_regs___kernel {
	unsigned long di;
} __attribute__((preserve_access_index));
#define FIRST_ARGUMENT(ctx) BPF_CORE_READ((struct pt_regs___kernel *)(ctx)->args[0], di)
#endif

struct name {
	char text[16];
};

HOTSTAGE_HASH(started, struct name, __u64, 256);
HOTSTAGE_HASH(ended, struct name, __u64, 256);
HOTSTAGE_ARRAY(killed, __u64, 1);
HOTSTAGE_HASH(ioctls, __u64, __u64, 4096); /* tgid << 32 | descriptor */

static __always_inline void count(void *map, const void *key)
{
	__u64 one = 1, *found = bpf_map_lookup_elem(map, key);

	if (found)
		__sync_fetch_and_add(found, 1);
	else
		bpf_map_update_elem(map, key, &one, BPF_ANY);
}

/* TP_PROTO(struct task_struct *p, pid_t old_pid, struct linux_binprm *bprm) */
SEC("raw_tp/sched_process_exec")
int exec_twin(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = (void *)ctx->args[0];
	struct name name = {};

	bpf_core_read_str(name.text, sizeof(name.text), &task->comm);
	count(&started, &name);
	return 0;
}

/* TP_PROTO(struct task_struct *p, ...) */
SEC("raw_tp/sched_process_exit")
int exit_twin(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = (void *)ctx->args[0];
	struct name name = {};

	if (BPF_CORE_READ(task, pid) != BPF_CORE_READ(task, tgid))
		return 0;
	bpf_core_read_str(name.text, sizeof(name.text), &task->comm);
	count(&ended, &name);
	return 0;
}

SEC("raw_tp/mark_victim")
int victim_twin(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 zero = 0;

	(void)ctx;
	count(&killed, &zero);
	return 0;
}

/* TP_PROTO(struct pt_regs *regs, long id) */
SEC("raw_tp/sys_enter")
int ioctl_twin(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 key = bpf_get_current_pid_tgid() >> 32 << 32;

	if (ctx->args[1] != IOCTL_NUMBER)
		return 0;
	key |= (__u32)FIRST_ARGUMENT(ctx);
	count(&ioctls, &key);
	return 0;
}
