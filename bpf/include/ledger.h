// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * What memory has each process, of what kind, since when, for which stage? Calls that allocate and free,
 * at their entry and at their return; what they change is in ledger_maps.h.
 *
 * What is freed is taken out when its free is entered: then the program still owns the address and nobody
 * can be given it. At the return another thread may have it already. Until the return it counts as live;
 * a free that fails puts it back. What is allocated is put in at the return, before the program sees it.
 */
#ifndef HOTSTAGE_LEDGER_H
#define HOTSTAGE_LEDGER_H

#include "arguments.h"
#include "ledger_ends.h"
#include "ledger_free.h"
#include "ledger_maps.h"
#include "ledger_new.h"
#include "ledger_pools.h"
#include "ledger_vmm.h"

static __always_inline __u32 is_of_memory(__u32 effect)
{
	return (effect >= EFFECT_MEMORY_NEW && effect <= EFFECT_CONTEXT_END) ||
	       effect == EFFECT_MEMORY_NODE || effect == EFFECT_POOL_FORGOTTEN;
}

/* Whether `argument` holds bytes that the call allocated. */
static __always_inline __u32 is_allocating(__u32 effect)
{
	return effect == EFFECT_MEMORY_NEW || effect == EFFECT_MEMORY_REGISTER ||
	       effect == EFFECT_MEMORY_MAP;
}

/* Whether a call that succeeded ends a context; its pointers go with it, by `end_context`. */
static __always_inline __u32 is_context_end(const struct call_spec *spec, __s32 result)
{
	return spec->effect == EFFECT_CONTEXT_END && !result;
}

/* A call of memory is entered; `argument` is its size already, where it has one. */
static __always_inline void enter_memory(struct pt_regs *ctx, struct thread_state *thread,
					 const struct call_spec *spec, __u32 tgid)
{
	thread->second_argument = PT_REGS_PARM1(ctx);
	switch (spec->effect) {
	case EFFECT_MEMORY_NEW:
		thread->third_argument = register_argument(ctx, spec->device_argument);
		thread->ordinal = register_argument(ctx, spec->factor_argument);
		break;
	case EFFECT_MEMORY_NODE:
		enter_node(ctx, thread, spec);
		break;
	case EFFECT_MEMORY_FREE:
		enter_free(thread, tgid, spec->detail);
		break;
	case EFFECT_MEMORY_MAP:
		enter_map(ctx, thread, spec, tgid);
		break;
	case EFFECT_MEMORY_UNMAP:
		enter_unmap(thread, tgid);
		break;
	case EFFECT_CONTEXT_END:
		if (spec->detail == CONTEXT_DESTROYED)
			drop_context(thread->second_argument, tgid);
		break;
	case EFFECT_POOL_ATTRIBUTE:
		thread->ordinal = PT_REGS_PARM2(ctx);
		thread->third_argument = PT_REGS_PARM3(ctx);
		break;
	}
}

/* The program's own memory from now on page-locked, or addresses with memory behind them. */
static __always_inline void read_range(const struct thread_state *thread, const struct call_spec *spec,
				       struct allocation_key *key, struct allocation *made)
{
	key->address = thread->second_argument;
	made->bytes = thread->argument;
	made->kind = spec->detail;
	made->device = HOTSTAGE_NO_DEVICE;
	if (spec->effect == EFFECT_MEMORY_MAP) {
		made->handle = thread->third_argument;
		made->device = thread->ordinal;
	}
}

/*
 * A call of memory has returned, with its size in `argument`: the one place that every allocation and
 * every free passes, whether it succeeded or not.
 */
HOTSTAGE_PART __u32 leave_memory(struct thread_state *thread, const struct call_spec *spec, __u64 pid_tgid,
				 __u64 now, __s32 result)
{
	__u32 tgid = pid_tgid >> 32, tid = (__u32)pid_tgid, is_new = 0;
	struct allocation_key key = {.tgid = tgid};
	struct allocation made = {.since_ns = now};

	if (!thread || !spec)
		return 0;
	key.space = space_of(spec->detail);
	if (spec->effect == EFFECT_MEMORY_FREE) {
		if (leave_free(thread, tgid, spec->detail, result, &key, &made))
			put_back(&key, &made);
		return 0;
	}
	if (spec->effect == EFFECT_MEMORY_UNMAP) {
		leave_unmap(thread, tgid, result);
		return 0;
	}
	if (result) {
		if (spec->effect == EFFECT_MEMORY_MAP)
			drop_hold(tgid, thread->third_argument);
		else if (spec->effect == EFFECT_MEMORY_NEW && result == MEMORY_RESULT_OUT_OF_MEMORY)
			note_failure(thread, tgid, spec->detail, now);
		return 0;
	}
	name_owner(&made, thread);
	switch (spec->effect) {
	case EFFECT_MEMORY_NEW:
	case EFFECT_MEMORY_NODE:
		is_new = read_new(thread, spec, tid, &key, &made);
		break;
	case EFFECT_MEMORY_REGISTER:
	case EFFECT_MEMORY_MAP:
		read_range(thread, spec, &key, &made);
		is_new = 1;
		break;
	case EFFECT_MEMORY_HOLD:
		is_new = read_held(thread, spec->detail, &key, &made);
		break;
	case EFFECT_POOL_ATTRIBUTE:
		note_pool(thread, spec, tgid, now);
		break;
	case EFFECT_POOL_FORGOTTEN:
		forget_pool(thread, spec, tgid);
		break;
	}
	if (is_new)
		put_in(&key, &made);
	return 0;
}

#endif
