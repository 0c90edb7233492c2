// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Which kernels are launched, and from where was a slow or failing call made?
 *
 * Names are read when a function is looked up by its name, never at a launch. Of a thread's launches one in
 * `launch_gap` is looked at, two hash look-ups; the others pay for one comparison. Gaps are drawn from
 * 1 .. 2 * launch_gap - 1, so that a model whose steps repeat the same launches is sampled evenly: with a
 * fixed gap some of its kernels would never be met.
 *
 * What finds no entry (a process has a share of them) counts in its process's rest, so sums stay right.
 */
#ifndef HOTSTAGE_NAMES_H
#define HOTSTAGE_NAMES_H

#include "call_counts.h"
#include "maps.h"
#include "names_abi.h"
#include "levels.h"

HOTSTAGE_ARRAY(names_settings, struct names_settings, 1);
HOTSTAGE_SPARSE_HASH(kernels, struct kernel_key, struct kernel_state, 16384);
HOTSTAGE_ARRAY(kernel_zero, struct kernel_state, 1); /* never written */
HOTSTAGE_SPARSE_HASH(unnamed_kernels, struct kernel_key, __u64, 1024); /* user space takes out what it has named */
HOTSTAGE_RING(call_stacks, 262144);

/* The entry of a process or of one of its kernels, made where there is none; NULL where there is no room. */
static __always_inline struct kernel_state *kernel_entry(const struct kernel_key *key)
{
	struct kernel_state *kernel = bpf_map_lookup_elem(&kernels, key), *blank;
	__u32 zero = 0;

	if (kernel)
		return kernel;
	blank = bpf_map_lookup_elem(&kernel_zero, &zero);
	if (!blank)
		return 0;
	bpf_map_update_elem(&kernels, key, blank, BPF_NOEXIST);
	return bpf_map_lookup_elem(&kernels, key);
}

/* A function was looked up: keep its name, if it is a new one. */
static __always_inline void keep_kernel_name(__u32 tgid, __u64 name_hash, __u64 address, __u32 source)
{
	struct kernel_key rest = {.name_hash = HOTSTAGE_NO_KERNEL, .tgid = tgid};
	struct kernel_key key = {.name_hash = name_hash, .tgid = tgid};
	struct kernel_state *process, *kernel;
	__u32 zero = 0;
	struct names_settings *limits = bpf_map_lookup_elem(&names_settings, &zero);

	if (!limits || !limits->launch_gap || name_hash == HOTSTAGE_NO_KERNEL ||
	    bpf_map_lookup_elem(&kernels, &key))
		return;
	process = kernel_entry(&rest);
	kernel = process && process->held < limits->kernels_per_process ? kernel_entry(&key) : 0;
	if (!kernel) {
		count_loss(LOST_FUNCTIONS);
		return;
	}
	__sync_fetch_and_add(&process->held, 1);
	kernel->source = source;
	bpf_probe_read_user_str(kernel->name, HOTSTAGE_KERNEL_NAME, (void *)address);
}

/* Whether this launch, counted in launch_total already, is to be looked at. */
static __always_inline __u32 is_sample_due(const struct thread_state *thread)
{
	return (__s32)((__u32)thread->launch_total - thread->sample_at) >= 0;
}

/* No name begins at an address like these; a hash that looks like one of 256 is asked for in vain. */
static __always_inline __u32 is_address(__u64 name_hash)
{
	return name_hash > HOTSTAGE_GRAPH_HANDLE && !(name_hash >> 56);
}

/* The entry of a host function that nobody named: user space finds its name in the file that it lies in. */
static __always_inline struct kernel_state *await_name(const struct kernel_key *key, __u32 most)
{
	struct kernel_key rest = {.name_hash = HOTSTAGE_NO_KERNEL, .tgid = key->tgid};
	struct kernel_state *process = kernel_entry(&rest), *kernel;
	__u64 one = 1;

	if (!process || process->held >= most ||
	    bpf_map_update_elem(&unnamed_kernels, key, &one, BPF_ANY)) {
		count_loss(LOST_KERNEL_NAMES);
		return 0;
	}
	kernel = kernel_entry(key);
	if (kernel) {
		kernel->source = NAME_OF_SYMBOL;
		__sync_fetch_and_add(&process->held, 1);
	}
	return kernel;
}

/*
 * `handle`: the function's, HOTSTAGE_GRAPH_HANDLE for a graph. A thread's first sample is drawn, too. The
 * runtime is given host functions: `is_symbol`.
 */
static __always_inline void sample_launch(struct thread_state *thread, __u32 tgid, __u64 handle,
					  const __u32 is_symbol)
{
	__u32 zero = 0, at = (__u32)thread->launch_total, span;
	struct names_settings *limits = bpf_map_lookup_elem(&names_settings, &zero);
	struct function_key function_key = {.handle = handle, .tgid = tgid};
	struct kernel_key key = {.name_hash = HOTSTAGE_NO_KERNEL, .tgid = tgid};
	struct function_state *function;
	struct kernel_state *kernel;

	if (!limits || !limits->launch_gap) {
		thread->sample_at = at + 0x7fffffff;
		return;
	}
	span = 2 * limits->launch_gap - 1;
	if (!thread->sample_at) {
		thread->sample_at = at + bpf_get_prandom_u32() % span;
		if (thread->sample_at != at)
			return;
	}
	thread->sample_at = at + 1 + bpf_get_prandom_u32() % span;
	if (handle == HOTSTAGE_GRAPH_HANDLE) {
		key.name_hash = HOTSTAGE_GRAPH_HANDLE;
		kernel = kernel_entry(&key);
	} else {
		function = bpf_map_lookup_elem(&functions, &function_key);
		if (function)
			key.name_hash = function->name_hash;
		else if (is_symbol)
			key.name_hash = handle;
		kernel = bpf_map_lookup_elem(&kernels, &key);
		if (!kernel && is_symbol && is_address(key.name_hash))
			kernel = await_name(&key, limits->kernels_per_process);
	}
	if (!kernel) {
		key.name_hash = HOTSTAGE_NO_KERNEL;
		kernel = kernel_entry(&key);
	}
	if (kernel)
		__sync_fetch_and_add(&kernel->samples, 1);
	else
		count_loss(LOST_FUNCTIONS);
}

/* Where a call that is told was made. The innermost frame is the caller, whatever the compiler left out. */
static __always_inline void tell_stack(struct pt_regs *ctx, struct thread_state *thread,
				       const struct returned_call *call)
{
	__u32 zero = 0;
	struct names_settings *limits = bpf_map_lookup_elem(&names_settings, &zero);
	struct call_stack *stack;
	long bytes;

	if (!limits || !limits->takes_stacks || level_of(thread, call->key.tgid) >= LEVEL_NO_STACKS)
		return;
	stack = bpf_ringbuf_reserve(&call_stacks, sizeof(struct call_stack), 0);
	if (!stack) {
		count_loss(LOST_STACKS);
		return;
	}
	stack->kind = call->result ? EVENT_CALL_ERROR : EVENT_CALL_SLOW;
	stack->tgid = call->key.tgid;
	stack->tid = call->tid;
	stack->result = call->result;
	stack->ended_ns = call->now;
	stack->duration_ns = call->duration_ns;
	stack->call = call->key.call;
	stack->stage = call->key.stage;
	stack->modality = call->key.modality;
	bytes = bpf_get_stack(ctx, stack->frames, sizeof(stack->frames), BPF_F_USER_STACK);
	stack->frame_count = bytes > 0 ? (__u32)bytes / sizeof(stack->frames[0]) : 0;
	if (bytes <= 0)
		count_loss(LOST_STACKS);
	bpf_ringbuf_submit(stack, BPF_RB_NO_WAKEUP);
}

#endif
