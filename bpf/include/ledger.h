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
#include "ledger_maps.h"

#define MEMORY_PROPERTIES_LOCATION 8 /* offsetof(CUmemAllocationProp, location), cuda.h */
#define MEMORY_LOCATION_DEVICE 1     /* CU_MEM_LOCATION_TYPE_DEVICE, cuda.h */
#define MEMORY_RESULT_OUT_OF_MEMORY 2 /* CUDA_ERROR_OUT_OF_MEMORY, cuda.h */

/* CUmemPool_attribute, cuda.h */
#define POOL_RESERVED 5
#define POOL_RESERVED_HIGH 6
#define POOL_USED 7
#define POOL_USED_HIGH 8

/* Of a free in flight, in `third_argument`: what it freed was allocated then; or one of these. */
#define FREES_NOTHING_KNOWN 0
#define FREES_A_HOLD (~0ULL) /* a handle that is still held, by a mapping or by another owner */

static __always_inline __u32 is_of_memory(__u32 effect)
{
	return effect >= EFFECT_MEMORY_NEW && effect <= EFFECT_CONTEXT_END;
}

/* Whether `argument` holds bytes that the call allocated. */
static __always_inline __u32 is_allocating(__u32 effect)
{
	return effect == EFFECT_MEMORY_NEW || effect == EFFECT_MEMORY_REGISTER ||
	       effect == EFFECT_MEMORY_MAP;
}

static __always_inline void name_owner(struct allocation *made, const struct thread_state *thread)
{
	made->context = thread->context;
	made->stage = thread->stage;
	made->modality = thread->modality;
	if (made->stage == HOTSTAGE_NO_STAGE) {
		made->stage = thread->inferred_stage;
		made->modality = thread->inferred_modality;
	}
}

/* One hold of a handle less; the physical memory goes with the last. */
static __always_inline void drop_hold(__u32 tgid, __u64 handle)
{
	struct allocation_key key = {.address = handle, .tgid = tgid, .space = SPACE_HANDLES};
	struct allocation *physical = bpf_map_lookup_elem(&allocations, &key), taken;

	if (physical && __sync_fetch_and_add(&physical->handle, -1) == 1 && claim_allocation(&key, &taken))
		take_off(&taken, tgid, 0);
}

/* What a free is about to free is the thread's from now on: its bytes, its age, and the rest packed. */
static __always_inline void enter_free(struct thread_state *thread, __u32 tgid, __u32 kind)
{
	struct allocation_key key = {
		.address = thread->second_argument,
		.tgid = tgid,
		.space = space_of(kind),
	};
	struct allocation *found = bpf_map_lookup_elem(&allocations, &key), taken;

	thread->argument = 0;
	thread->third_argument = FREES_NOTHING_KNOWN;
	if (!found)
		return;
	if (key.space == SPACE_HANDLES && __sync_fetch_and_add(&found->handle, -1) > 1) {
		thread->third_argument = FREES_A_HOLD;
		return;
	}
	if (!claim_allocation(&key, &taken))
		return;
	thread->argument = taken.bytes;
	thread->third_argument = taken.since_ns;
	thread->ordinal = taken.stage | taken.modality << 8 | taken.device << 16 |
			  (__u32)(taken.kind | taken.flags << 4) << 24;
}

/* A mapping is gone: it is out of `allocations` already. */
static __always_inline void take_off_mapping(const struct allocation *gone, __u32 tgid)
{
	take_off(gone, tgid, 0);
	drop_hold(tgid, gone->handle);
}

#ifndef HOTSTAGE_BCC /* which has no way to hand a function to a helper */
struct unmapped_range {
	__u64 from;
	__u64 end;
	__u64 found_bytes;
	__u32 tgid;
	__u32 pad;
};

static long unmap_within(void *map, struct allocation_key *key, struct allocation *held,
			 struct unmapped_range *range)
{
	struct allocation taken;

	(void)map, (void)held;
	if (key->tgid != range->tgid || key->space != SPACE_MAPPINGS || key->address < range->from ||
	    key->address >= range->end)
		return 0;
	if (claim_allocation(key, &taken)) {
		take_off_mapping(&taken, range->tgid);
		range->found_bytes += taken.bytes;
	}
	return 0;
}
#endif

/*
 * cuMemUnmap takes a range of whole mappings, mostly of one. Of several, some may be older than the attach,
 * so nothing says where the next one begins: all entries are looked through then, by `unmap_rest`.
 */
static __always_inline void enter_unmap(struct thread_state *thread, __u32 tgid)
{
	struct allocation_key key = {
		.address = thread->second_argument,
		.tgid = tgid,
		.space = SPACE_MAPPINGS,
	};
	struct allocation taken;

	thread->third_argument = 0; /* bytes that were found mapped */
	if (claim_allocation(&key, &taken)) {
		take_off_mapping(&taken, tgid);
		thread->third_argument = taken.bytes;
	}
}

/* Whether the call that was just entered unmaps more than the first of its mappings. */
static __always_inline __u32 has_rest(const struct thread_state *thread, const struct call_spec *spec)
{
	return spec->effect == EFFECT_MEMORY_UNMAP && thread->third_argument < thread->argument;
}

#ifndef HOTSTAGE_BCC
static __always_inline void unmap_rest(struct thread_state *thread, __u32 tgid)
{
	struct unmapped_range rest = {
		.from = thread->second_argument + thread->third_argument,
		.end = thread->second_argument + thread->argument,
		.tgid = tgid,
	};

	bpf_for_each_map_elem(&allocations, unmap_within, &rest, 0);
	thread->third_argument += rest.found_bytes;
}
#endif

/* A mapping holds its handle from here on, so that a release in between does not free it. */
static __always_inline void enter_map(struct pt_regs *ctx, struct thread_state *thread,
				      const struct call_spec *spec, __u32 tgid)
{
	struct allocation_key key = {
		.address = register_argument(ctx, spec->device_argument),
		.tgid = tgid,
		.space = SPACE_HANDLES,
	};
	struct allocation *physical = bpf_map_lookup_elem(&allocations, &key);

	thread->third_argument = key.address;
	thread->ordinal = thread->device;
	if (!physical)
		return;
	__sync_fetch_and_add(&physical->handle, 1);
	thread->ordinal = physical->device;
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
	case EFFECT_MEMORY_FREE:
		enter_free(thread, tgid, spec->detail);
		break;
	case EFFECT_MEMORY_MAP:
		enter_map(ctx, thread, spec, tgid);
		break;
	case EFFECT_MEMORY_UNMAP:
		enter_unmap(thread, tgid);
		break;
	case EFFECT_POOL_ATTRIBUTE:
		thread->ordinal = PT_REGS_PARM2(ctx);
		thread->third_argument = PT_REGS_PARM3(ctx);
		break;
	}
}

/* What cuMemCreate made is of the device that its properties name, whichever is current. */
static __always_inline __u8 device_of_properties(__u64 properties)
{
	__u32 location[2] = {}; /* type, id */

	if (bpf_probe_read_user(location, sizeof(location),
				(void *)(properties + MEMORY_PROPERTIES_LOCATION))) {
		count_loss(UNREADABLE_ARGUMENTS);
		return HOTSTAGE_NO_DEVICE;
	}
	return location[0] == MEMORY_LOCATION_DEVICE && location[1] < HOTSTAGE_NO_DEVICE ?
		       location[1] :
		       HOTSTAGE_NO_DEVICE;
}

/* Where and how large, from what the call wrote; 0 where it cannot be read. */
static __always_inline __u32 read_new(const struct thread_state *thread, __u32 kind,
				      struct allocation_key *key, struct allocation *made)
{
	__u64 pitch = 0;

	made->kind = kind;
	made->bytes = thread->argument;
	made->device = kind == MEMORY_HOST || kind == MEMORY_RESERVED ? HOTSTAGE_NO_DEVICE :
									thread->device;
	if (bpf_probe_read_user(&key->address, sizeof(key->address), (void *)thread->second_argument)) {
		count_loss(UNREADABLE_ARGUMENTS);
		return 0;
	}
	if (kind == MEMORY_PITCHED) {
		if (bpf_probe_read_user(&pitch, sizeof(pitch), (void *)thread->third_argument))
			count_loss(UNREADABLE_ARGUMENTS);
		else
			made->bytes = pitch * thread->ordinal;
	}
	if (kind == MEMORY_PHYSICAL) {
		made->device = device_of_properties(thread->third_argument);
		made->handle = 1;
	}
	return key->address != 0;
}

/* Another owner of a handle: the same number, or one of memory that was made elsewhere. */
static __always_inline __u32 read_held(const struct thread_state *thread, struct allocation_key *key,
				       struct allocation *made)
{
	struct allocation *known;

	if (bpf_probe_read_user(&key->address, sizeof(key->address), (void *)thread->second_argument)) {
		count_loss(UNREADABLE_ARGUMENTS);
		return 0;
	}
	known = bpf_map_lookup_elem(&allocations, key);
	if (known) {
		__sync_fetch_and_add(&known->handle, 1);
		return 0;
	}
	made->kind = MEMORY_IMPORTED;
	made->device = thread->device;
	made->handle = 1;
	return 1;
}

/*
 * A free has returned. One that failed has freed nothing: `made` is what was taken out at its entry, to
 * be put in again (1). Its context is forgotten then.
 */
static __always_inline __u32 leave_free(struct thread_state *thread, __u32 tgid, __u32 kind, __s32 result,
					struct allocation_key *key, struct allocation *made)
{
	struct allocation *physical;
	struct memory_sum *sum;

	key->address = thread->second_argument;
	if (thread->third_argument == FREES_A_HOLD) {
		physical = result ? bpf_map_lookup_elem(&allocations, key) : 0;
		if (physical)
			__sync_fetch_and_add(&physical->handle, 1);
		return 0;
	}
	if (thread->third_argument == FREES_NOTHING_KNOWN) {
		if (result || !key->address)
			return 0;
		count_loss(UNMATCHED_FREES);
		sum = memory_sum_of(tgid, kind, HOTSTAGE_NO_DEVICE);
		if (sum)
			__sync_fetch_and_add(&sum->unmatched_frees, 1);
		return 0;
	}
	made->bytes = thread->argument;
	made->since_ns = thread->third_argument;
	made->stage = thread->ordinal & 0xff;
	made->modality = thread->ordinal >> 8 & 0xff;
	made->device = thread->ordinal >> 16 & 0xff;
	made->kind = thread->ordinal >> 24 & 0xf;
	made->flags = thread->ordinal >> 28;
	made->handle = key->space == SPACE_HANDLES;
	if (!result)
		take_off(made, tgid, 0);
	return result != 0;
}

/* The live bytes stay as they were: only the entry had been taken out. */
static __always_inline void put_back(const struct allocation_key *key, const struct allocation *kept)
{
	if (bpf_map_update_elem(&allocations, key, kept, BPF_NOEXIST)) {
		count_loss(LOST_ALLOCATIONS);
		take_off(kept, key->tgid, 1);
	}
}

static __always_inline void leave_unmap(const struct thread_state *thread, __u32 tgid, __s32 result)
{
	struct memory_sum *sum;

	if (result) { /* what was there is still mapped, and not known any more */
		if (thread->third_argument)
			count_loss(LOST_ALLOCATIONS);
		return;
	}
	if (thread->third_argument >= thread->argument)
		return;
	count_loss(UNMATCHED_FREES);
	sum = memory_sum_of(tgid, MEMORY_MAPPED, HOTSTAGE_NO_DEVICE);
	if (sum)
		__sync_fetch_and_add(&sum->unmatched_frees, 1);
}

static __always_inline void note_pool(const struct thread_state *thread, __u32 tgid, __u64 now)
{
	struct function_key key = {.handle = thread->second_argument, .tgid = tgid};
	struct memory_pool *pool = bpf_map_lookup_elem(&memory_pools, &key), none = {};
	__u64 value;

	if (thread->ordinal < POOL_RESERVED || thread->ordinal > POOL_USED_HIGH)
		return;
	if (bpf_probe_read_user(&value, sizeof(value), (void *)thread->third_argument)) {
		count_loss(UNREADABLE_ARGUMENTS);
		return;
	}
	if (!pool) {
		none.device = thread->device;
		bpf_map_update_elem(&memory_pools, &key, &none, BPF_NOEXIST);
		pool = bpf_map_lookup_elem(&memory_pools, &key);
	}
	if (!pool) {
		count_loss(LOST_ALLOCATIONS);
		return;
	}
	switch (thread->ordinal) {
	case POOL_RESERVED:
		pool->reserved_bytes = value;
		pool->reserved_ns = now;
		break;
	case POOL_RESERVED_HIGH:
		pool->reserved_high_bytes = value;
		break;
	case POOL_USED:
		pool->used_bytes = value;
		pool->used_ns = now;
		break;
	default:
		pool->used_high_bytes = value;
	}
}

/* An allocation failed: what it asked for, and when, for whoever knows how much was free. */
static __always_inline void note_failure(const struct thread_state *thread, __u32 tgid, __u32 kind,
					 __u64 now)
{
	__u8 device = kind == MEMORY_PHYSICAL ? device_of_properties(thread->third_argument) :
						thread->device;
	struct memory_sum *sum = memory_sum_of(tgid, kind, device);

	if (!sum)
		return;
	__sync_fetch_and_add(&sum->failed_count, 1);
	sum->failed_bytes = thread->argument;
	sum->failed_ns = now;
}

/*
 * A primary context is held once more; the first hold makes it. A process that had made other calls before
 * the first one that was seen had a context already.
 */
static __always_inline void hold_primary(__u32 tgid, __u32 ordinal, __u64 context)
{
	struct device_key key = {.tgid = tgid, .ordinal = ordinal};
	struct primary_context *known = bpf_map_lookup_elem(&primary_contexts, &key);
	struct primary_context fresh = {.context = context, .holds = 1};
	__u64 *kinds;

	if (known && known->context == context) {
		__sync_fetch_and_add(&known->holds, 1);
		return;
	}
	kinds = share_of(tgid, SHARE_CALL_STATS);
	fresh.kinds_before = kinds ? *kinds : ~0ULL;
	if (bpf_map_update_elem(&primary_contexts, &key, &fresh, BPF_ANY))
		count_loss(LOST_CONTEXTS);
}

#ifndef HOTSTAGE_BCC
/* What ended, on whose behalf. */
struct ended_context {
	__u64 context; /* 0 = all of the device */
	__u64 until_ns;
	__u32 tgid;
	__u32 device;
	__u32 with_pools; /* memory of pools is the device's: only a reset gives it back */
};

/*
 * What ends with a context: pointers. Physical memory and addresses are the process's. Allocated later:
 * another context's.
 */
static long end_with_context(void *map, struct allocation_key *key, struct allocation *held,
			     struct ended_context *ended)
{
	struct allocation taken;

	(void)map;
	if (key->tgid != ended->tgid || key->space != SPACE_POINTERS || held->since_ns > ended->until_ns)
		return 0;
	if (held->kind == MEMORY_POOL ? !ended->with_pools || held->device != ended->device :
	    ended->context	      ? held->context != ended->context :
					held->device != ended->device)
		return 0;
	if (claim_allocation(key, &taken))
		take_off(&taken, ended->tgid, 1);
	return 0;
}

/* What `is_context_end` said of a call that has returned: after everything else of it. */
static __always_inline void end_context(const struct thread_state *thread, __u32 tgid, __u32 how)
{
	struct ended_context ended = {
		.context = thread->second_argument,
		.until_ns = thread->since_ns,
		.tgid = tgid,
		.device = HOTSTAGE_NO_DEVICE,
	};
	struct device_key key = {.tgid = tgid, .ordinal = (__u32)thread->second_argument};
	struct primary_context *primary;

	if (how != CONTEXT_DESTROYED) {
		primary = bpf_map_lookup_elem(&primary_contexts, &key);
		if (how == PRIMARY_RELEASED &&
		    (!primary || __sync_fetch_and_add(&primary->holds, -1) > 1))
			return;
		ended.context = primary ? primary->context : 0;
		ended.device = key.ordinal;
		ended.with_pools = how == PRIMARY_RESET;
		bpf_map_delete_elem(&primary_contexts, &key);
	}
	bpf_for_each_map_elem(&allocations, end_with_context, &ended, 0);
}
#endif

/* Whether a call that succeeded ends a context; its pointers go with it. */
static __always_inline __u32 is_context_end(const struct call_spec *spec, __s32 result)
{
	return spec->effect == EFFECT_CONTEXT_END && !result;
}

/*
 * A call of memory has returned, with its size in `argument`: the one place that every allocation and
 * every free passes, whether it succeeded or not.
 */
static __always_inline void leave_memory(struct thread_state *thread, const struct call_spec *spec,
					 __u32 tgid, __u64 now, __s32 result)
{
	struct allocation_key key = {.tgid = tgid, .space = space_of(spec->detail)};
	struct allocation made = {.since_ns = now};
	__u32 is_new = 0;

	if (spec->effect == EFFECT_MEMORY_FREE) {
		if (leave_free(thread, tgid, spec->detail, result, &key, &made))
			put_back(&key, &made);
		return;
	}
	if (spec->effect == EFFECT_MEMORY_UNMAP) {
		leave_unmap(thread, tgid, result);
		return;
	}
	if (result) {
		if (spec->effect == EFFECT_MEMORY_MAP)
			drop_hold(tgid, thread->third_argument);
		else if (spec->effect == EFFECT_MEMORY_NEW && result == MEMORY_RESULT_OUT_OF_MEMORY)
			note_failure(thread, tgid, spec->detail, now);
		return;
	}
	name_owner(&made, thread);
	switch (spec->effect) {
	case EFFECT_MEMORY_NEW:
		is_new = read_new(thread, spec->detail, &key, &made);
		break;
	case EFFECT_MEMORY_REGISTER:
		key.address = thread->second_argument;
		made.bytes = thread->argument;
		made.kind = MEMORY_HOST;
		made.device = HOTSTAGE_NO_DEVICE;
		is_new = 1;
		break;
	case EFFECT_MEMORY_MAP:
		key.address = thread->second_argument;
		made.bytes = thread->argument;
		made.handle = thread->third_argument;
		made.kind = MEMORY_MAPPED;
		made.device = thread->ordinal;
		is_new = 1;
		break;
	case EFFECT_MEMORY_HOLD:
		is_new = read_held(thread, &key, &made);
		break;
	case EFFECT_POOL_ATTRIBUTE:
		note_pool(thread, tgid, now);
		break;
	}
	if (is_new)
		put_in(&key, &made);
}

#endif
