// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * What does the runtime say that the driver does not: where a copy goes, what a device is, which device a thread
 * works on, which host function a kernel is; and its launches where no driver is counted. Structures are those of
 * driver_types.h, the same in CUDA 11.8, 12.9 and 13.5 as far as they are read here.
 */
#ifndef HOTSTAGE_RUNTIME_CALLS_H
#define HOTSTAGE_RUNTIME_CALLS_H

#include "call_effects.h"
#include "layers.h"
#include "stream_users.h"

/* offsetof(cudaMemcpy3DParms, dstArray), extent, kind; cudaMemcpy3DPeerParms. srcArray is the first member. */
#define PARAMETERS_TO_ARRAY 64
#define PARAMETERS_EXTENT 128
#define PARAMETERS_KIND 152
#define PEER_PARAMETERS_TO_ARRAY 72
#define PEER_PARAMETERS_EXTENT 144

#define PROPERTIES_UUID 256 /* offsetof(cudaDeviceProp, uuid) */

/* 0 where an array takes part: then the width counts elements of unknown size. */
HOTSTAGE_PART __u64 bytes_of_parameters(__u64 address, __u32 is_peer)
{
	__u64 extent[3] = {}, from_array = 1, to_array = 1;
	__u64 to_offset = is_peer ? PEER_PARAMETERS_TO_ARRAY : PARAMETERS_TO_ARRAY;
	__u64 extent_offset = is_peer ? PEER_PARAMETERS_EXTENT : PARAMETERS_EXTENT;

	if (bpf_probe_read_user(&from_array, sizeof(from_array), (void *)address) ||
	    bpf_probe_read_user(&to_array, sizeof(to_array), (void *)(address + to_offset)) ||
	    bpf_probe_read_user(extent, sizeof(extent), (void *)(address + extent_offset))) {
		count_loss(UNREADABLE_ARGUMENTS);
		return 0;
	}
	return from_array || to_array ? 0 : extent[0] * extent[1] * extent[2];
}

/* Sizes of the runtime's copies may lie on the stack, and in its own structures. */
static __always_inline __u64 bytes_of_outer(struct pt_regs *ctx, const struct call_spec *spec)
{
	__u64 bytes;

	if (!spec->bytes_argument)
		return 0;
	if (spec->bytes_argument >= HOTSTAGE_BYTES_IN_PARAMETERS)
		return bytes_of_parameters(PT_REGS_PARM1(ctx),
					   spec->bytes_argument == HOTSTAGE_BYTES_IN_PEER_PARAMETERS);
	if (spec->bytes_argument >= HOTSTAGE_BYTES_IN_2D)
		return bytes_in_memory(ctx, spec);
	bytes = any_argument(ctx, spec->bytes_argument) << (spec->bytes_shift & 3);
	if (spec->factor_argument)
		bytes *= any_argument(ctx, spec->factor_argument);
	return bytes;
}

/* By the program's own word; cudaMemcpyDefault leaves it to the driver. */
static __always_inline __u32 runtime_direction(struct pt_regs *ctx, const struct call_spec *spec)
{
	__u32 kind = ~0U;

	if (spec->kind_argument == HOTSTAGE_KIND_IN_PARAMETERS)
		bpf_probe_read_user(&kind, sizeof(kind), (void *)(PT_REGS_PARM1(ctx) + PARAMETERS_KIND));
	else
		kind = (__u32)any_argument(ctx, spec->kind_argument);
	return kind < DIRECTION_DTOD ? kind + 1 : DIRECTION_OF_ROW;
}

/* What is kept of a call of the runtime, or of a library, until it returns. */
static __always_inline void enter_runtime(struct pt_regs *ctx, struct thread_state *thread,
					  const struct call_spec *spec)
{
	thread->ordinal = driver_launches(thread);
	if (spec->effect) {
		thread->argument = PT_REGS_PARM1(ctx);
		thread->second_argument = register_argument(ctx, spec->device_argument);
	} else if (spec->function_argument) {
		thread->argument = function_of(ctx, spec);
		thread->second_argument = thread->stage == HOTSTAGE_NO_STAGE &&
							  thread->step_launches < HOTSTAGE_STEP_SHORT
						  ? grid_blocks(ctx, spec)
						  : 0;
	} else {
		thread->argument = bytes_of_outer(ctx, spec);
		if (spec->kind_argument)
			thread->second_argument = runtime_direction(ctx, spec);
	}
}

/* At the return of a launch that the runtime counts: what `launch` does at the entry of one of the driver. */
static __always_inline void count_runtime_launch(struct thread_state *thread, const struct call_spec *spec,
						 __u32 tgid, __u32 tid)
{
	__u64 handle = thread->argument;

	thread->launch_total++;
	thread->runtime_launches++;
	launch_on(thread, thread->stream);
	if (thread->stage == HOTSTAGE_NO_STAGE) {
		thread->step_launches++;
		add_head(thread, (__u32)thread->second_argument);
		infer_launch(thread, handle, tgid, tid);
	} else if (spec->function_argument & HOTSTAGE_FUNCTION_LEARNS) {
		learn_launch(thread, handle, tgid);
	}
	if (is_sample_due(thread))
		sample_launch(thread, tgid, handle, 1);
}

/* A handle of a host function: called as that one is, or by its address until user space has named it. */
static __always_inline void note_host_function(const struct function_key *key, __u64 host_function)
{
	struct function_key of = {.handle = host_function, .tgid = key->tgid};
	struct function_state *function, *host = bpf_map_lookup_elem(&functions, &of);

	function = key->handle != host_function ? function_entry(key) : 0;
	if (!function)
		return;
	if (host)
		*function = *host;
	else if (!function->name_hash) /* else the driver was asked for it by its name */
		function->name_hash = host_function;
}

/* Whether a call of the runtime tells more by its success than that it succeeded. */
static __always_inline __u32 has_answer(const struct call_spec *spec, __s32 result)
{
	return !result && spec->effect;
}

/* Whichever layer counts the call. */
static __always_inline void apply_answer(struct thread_state *thread, const struct call_spec *spec, __u32 tgid)
{
	struct function_key key = {.tgid = tgid};
	__u32 effect = spec->effect, ordinal = (__u32)thread->argument;

	if (effect == EFFECT_DEVICE_PROPERTIES) {
		note_uuid(tgid, (__u32)thread->second_argument, thread->argument + PROPERTIES_UUID);
	} else if (effect == EFFECT_DEVICE_SET) {
		thread->device = ordinal < HOTSTAGE_NO_DEVICE ? ordinal : HOTSTAGE_NO_DEVICE;
	} else if (bpf_probe_read_user(&key.handle, sizeof(key.handle), (void *)thread->argument)) {
		count_loss(UNREADABLE_ARGUMENTS);
	} else if (effect == EFFECT_FUNCTION_OF) {
		note_host_function(&key, thread->second_argument);
	} else {
		name_function(&key, thread->second_argument, NAME_LOOKED_UP);
	}
}

/*
 * A program tells the runtime at its load which kernel each host function is, of all that it might ever launch:
 * the other half of its share is for those that it does.
 */
HOTSTAGE_PART __u32 register_kernel(__u32 tgid, __u64 host_function, __u64 name)
{
	struct kernel_key rest = {.name_hash = HOTSTAGE_NO_KERNEL, .tgid = tgid};
	struct function_key key = {.handle = host_function, .tgid = tgid};
	__u32 zero = 0;
	struct names_settings *limits = bpf_map_lookup_elem(&names_settings, &zero);
	struct kernel_state *process = kernel_entry(&rest);

	if (!limits || !process || process->held >= limits->kernels_per_process / 2)
		count_loss(LOST_KERNEL_NAMES);
	else
		name_function(&key, name, NAME_REGISTERED);
	return 0;
}

#endif
