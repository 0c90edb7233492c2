// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * What a call does besides being counted: what is kept of it at its entry, and what its success says of
 * contexts, devices, functions, streams, memory, graphs and communicators.
 */
#ifndef HOTSTAGE_CALL_EFFECTS_H
#define HOTSTAGE_CALL_EFFECTS_H

#include "communicators.h"
#include "conflict.h"
#include "graphs.h"
#include "inference.h"
#include "ledger.h"
#include "names.h"
#include "sizes.h"

#define LAUNCH_CONFIG_STREAM 32 /* offsetof(CUlaunchConfig, hStream), cuda.h */

/* The CUstream of a launch or call, 0 when it has none or cannot be read. */
static __always_inline __u64 stream_of(struct pt_regs *ctx, __u32 position)
{
	__u64 stream = 0, address;

	if (position <= HOTSTAGE_REGISTER_ARGUMENTS)
		return register_argument(ctx, position);
	if (position == HOTSTAGE_STREAM_IN_LAUNCH_CONFIG)
		address = PT_REGS_PARM1(ctx) + LAUNCH_CONFIG_STREAM;
	else
		address = stack_argument_address(ctx, position);
	if (bpf_probe_read_user(&stream, sizeof(stream), (void *)address))
		count_loss(UNREADABLE_ARGUMENTS);
	return stream;
}

static __always_inline __u64 argument_of(struct pt_regs *ctx, const struct call_spec *spec)
{
	__u64 bytes;

	if (spec->effect && !is_of_memory(spec->effect))
		return PT_REGS_PARM1(ctx);
	if (!spec->bytes_argument)
		return 0;
	if (spec->bytes_argument >= HOTSTAGE_BYTES_IN_2D)
		return bytes_in_memory(ctx, spec);
	bytes = register_argument(ctx, spec->bytes_argument) << (spec->bytes_shift & 3);
	if (spec->factor_argument)
		bytes *= register_argument(ctx, spec->factor_argument);
	return bytes;
}

/* What the call's effect needs of its arguments at the return. */
static __always_inline void enter_effect(struct pt_regs *ctx, struct thread_state *thread,
					 const struct call_spec *spec, __u32 tgid)
{
	if (is_of_memory(spec->effect))
		enter_memory(ctx, thread, spec, tgid);
	else if (spec->effect == EFFECT_GRAPH && spec->detail == GRAPH_DESTROYED)
		drop_graph(thread->argument, tgid); /* from here on its handle may be another one's */
	else if (spec->effect >= EFFECT_FUNCTION_NAMED)
		thread->second_argument = register_argument(ctx, spec->device_argument);
	else if (spec->device_argument)
		thread->ordinal = register_argument(ctx, spec->device_argument);
}

static __always_inline __u32 keep_context(const struct context_key *key, __u32 ordinal)
{
	__u32 is_new = !bpf_map_lookup_elem(&contexts, key);

	if (is_new && !hold_share(key->tgid, SHARE_CONTEXTS))
		return 0;
	if (!bpf_map_update_elem(&contexts, key, &ordinal, BPF_ANY))
		return 1;
	if (is_new)
		free_share(key->tgid, SHARE_CONTEXTS);
	return 0;
}

static __always_inline __u32 keep_uuid(const struct device_key *key, const struct device_uuid *uuid)
{
	__u32 is_new = !bpf_map_lookup_elem(&device_uuids, key);

	if (is_new && !hold_share(key->tgid, SHARE_DEVICES))
		return 0;
	if (!bpf_map_update_elem(&device_uuids, key, uuid, BPF_ANY))
		return 1;
	if (is_new)
		free_share(key->tgid, SHARE_DEVICES);
	return 0;
}

/* Which device an ordinal of the process is: its UUID stands at the address. */
HOTSTAGE_PART __u32 note_uuid(__u32 tgid, __u32 ordinal, __u64 address)
{
	struct device_key key = {.tgid = tgid, .ordinal = ordinal};
	struct device_uuid uuid;

	if (bpf_probe_read_user(&uuid, sizeof(uuid), (void *)address))
		count_loss(UNREADABLE_ARGUMENTS);
	else if (!keep_uuid(&key, &uuid))
		count_loss(LOST_CONTEXTS);
	return 0;
}

/* A call that succeeded says which device a context or an ordinal is. */
HOTSTAGE_PART __u32 apply_effect(struct thread_state *thread, const struct call_spec *spec, __u32 tgid)
{
	struct context_key context = {.tgid = tgid};
	__u32 ordinal, effect, *known;

	if (!thread || !spec)
		return 0;
	context.context = thread->argument;
	ordinal = thread->ordinal;
	effect = spec->effect;
	switch (effect) {
	case EFFECT_CONTEXT_NEW:
		if (bpf_probe_read_user(&context.context, sizeof(context.context),
					(void *)thread->argument))
			count_loss(UNREADABLE_ARGUMENTS);
		else if (!keep_context(&context, ordinal))
			count_loss(LOST_CONTEXTS);
		else if (spec->detail == HOTSTAGE_PRIMARY_CONTEXT)
			hold_primary(tgid, ordinal, context.context);
		break;
	case EFFECT_CONTEXT_PUSH:
		thread->pushed_device = thread->device;
		thread->pushed_context = thread->context;
		thread->context = thread->argument;
		known = bpf_map_lookup_elem(&contexts, &context);
		thread->device = known ? *known : HOTSTAGE_NO_DEVICE;
		break;
	case EFFECT_CONTEXT_CURRENT:
		thread->context = thread->argument;
		known = bpf_map_lookup_elem(&contexts, &context);
		thread->device = known ? *known : HOTSTAGE_NO_DEVICE;
		break;
	case EFFECT_CONTEXT_POP:
		thread->device = thread->pushed_device;
		thread->context = thread->pushed_context;
		break;
	case EFFECT_FUNCTION_NAMED:
	case EFFECT_FUNCTION_OF:
		note_function(thread, tgid, effect);
		break;
	case EFFECT_STREAM_NEW:
		note_stream(thread, tgid);
		break;
	case EFFECT_DEVICE_UUID:
		note_uuid(tgid, ordinal, thread->argument);
		break;
	}
	return 0;
}

/* Of the driver's calls; those on communicators have their own. */
static __always_inline void leave_effect(struct thread_state *thread, const struct call_spec *spec,
					 __u64 pid_tgid, __u64 now, __s32 result)
{
	if (is_of_memory(spec->effect))
		leave_memory(thread, spec, pid_tgid, now, result);
	else if (spec->effect >= EFFECT_CAPTURE_BEGIN)
		leave_graph(thread, spec, pid_tgid, now, result);
	else if (!result && spec->effect)
		apply_effect(thread, spec, pid_tgid >> 32);
}

#endif
