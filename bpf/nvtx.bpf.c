// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Which NVTX range is a thread in, where the program was not started with an injection library?
 *
 * On entry of the local functions nvtxRangePushA and nvtxRangePop that PyTorch's libtorch_python.so has
 * in its symbol table; attached only where the operator has switched it on, because a push reads the
 * range's name: at most 64 bytes of a string of the program's, and no other program of ours reads one on
 * such a path. The name's hash is looked up in `nvtx_decisions`, which user space fills by its rules; a
 * name that is not there goes into `nvtx_unknown` once, and its ranges are nothing until it has been
 * decided on. Runs of digits are one digit, so that a step's number makes no new name.
 *
 * A stage that a mark has told of is left alone. Every map is bounded; what finds no room is counted.
 */
#include "include/backend.h"
#include "include/abi.h"
#include "include/maps.h"
#include "include/levels.h"
#include "include/stage_ids.h"

#define NVTX_NOTHING ((__u64)HOTSTAGE_NO_STAGE | (__u64)HOTSTAGE_MODALITY_UNKNOWN << 8)
#define NVTX_FNV_OFFSET 0xcbf29ce484222325ULL
#define NVTX_FNV_PRIME 0x100000001b3ULL
#define NVTX_FULL (-7) /* E2BIG */

/* FNV-1a 64 of the text to its NUL, each run of digits as one `0`. */
HOTSTAGE_PART __u64 hash_range_name(const struct nvtx_name *name)
{
	__u64 hash = NVTX_FNV_OFFSET;
	__u8 before = 0;

	if (!name)
		return 0;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < HOTSTAGE_NVTX_NAME; i++) {
		__u8 byte = name->text[i];

		if (!byte)
			break;
		if (byte >= '0' && byte <= '9')
			byte = '0';
		if (byte != '0' || before != '0')
			hash = (hash ^ byte) * NVTX_FNV_PRIME;
		before = byte;
	}
	return hash;
}

/* What ranges of this name are; nothing, and told to user space, for a name that is new. */
static __always_inline __u64 decide_on(__u64 message, __u32 tgid)
{
	struct nvtx_name name = {.tgid = tgid};
	__u64 hash, *decision;

	if (bpf_probe_read_user_str(name.text, sizeof(name.text), (void *)message) <= 1)
		return NVTX_NOTHING;
	hash = hash_range_name(&name);
	decision = bpf_map_lookup_elem(&nvtx_decisions, &hash);
	if (decision)
		return *decision;
	if (bpf_map_update_elem(&nvtx_unknown, &hash, &name, BPF_NOEXIST) == NVTX_FULL)
		count_loss(LOST_NVTX_RANGES);
	return NVTX_NOTHING;
}

static __always_inline struct nvtx_stack *current_stack(__u32 tid, __u32 tgid)
{
	struct nvtx_stack *stack = bpf_map_lookup_elem(&nvtx_stacks, &tid);
	struct nvtx_stack empty = {.tgid = tgid};

	if (stack && stack->tgid == tgid)
		return stack;
	bpf_map_update_elem(&nvtx_stacks, &tid, &empty, BPF_ANY);
	stack = bpf_map_lookup_elem(&nvtx_stacks, &tid);
	if (!stack)
		count_loss(LOST_NVTX_RANGES);
	return stack;
}

static __always_inline void enter_range(__u32 tgid, __u32 tid, __u64 word)
{
	struct thread_state *thread = current_thread(tgid, tid);

	if (thread && (thread->stage == HOTSTAGE_NO_STAGE || thread->source == SOURCE_NVTX))
		set_thread_stage(thread, tid, word, thread->request_hash, bpf_ktime_get_ns());
}

/* nvtxRangePushA(message) */
SEC("uprobe")
int nvtx_push(struct pt_regs *ctx)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid(), word;
	__u32 tid = (__u32)pid_tgid, tgid = pid_tgid >> 32, depth;
	struct nvtx_stack *stack = current_stack(tid, tgid);

	note_nvtx(tgid);
	if (!stack)
		return 0;
	depth = stack->depth++;
	if (depth >= HOTSTAGE_NVTX_DEPTH)
		return 0;
	word = decide_on(PT_REGS_PARM1(ctx), tgid);
	stack->words[depth] = word;
	if (word != NVTX_NOTHING)
		enter_range(tgid, tid, word);
	return 0;
}

/* nvtxRangePop(): back to the range around it that is a stage */
SEC("uprobe")
int nvtx_pop(struct pt_regs *ctx)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid(), around = NVTX_NOTHING;
	__u32 tid = (__u32)pid_tgid, depth;
	struct nvtx_stack *stack = bpf_map_lookup_elem(&nvtx_stacks, &tid);
	struct thread_state *thread = bpf_map_lookup_elem(&threads, &tid);

	(void)ctx;
	note_nvtx(pid_tgid >> 32);
	if (!stack || !stack->depth)
		return 0; /* it was pushed before the attach */
	depth = --stack->depth;
	if (depth >= HOTSTAGE_NVTX_DEPTH || stack->words[depth] == NVTX_NOTHING)
		return 0;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < HOTSTAGE_NVTX_DEPTH; i++)
		if (i < depth && stack->words[i] != NVTX_NOTHING)
			around = stack->words[i];
	if (thread && thread->source == SOURCE_NVTX)
		set_thread_stage(thread, tid, around, thread->request_hash, bpf_ktime_get_ns());
	return 0;
}
