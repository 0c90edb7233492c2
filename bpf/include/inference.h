// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Which stage is a thread in that has no mark? By a rule of its process, thread or stream, by the
 * functions that it launches, or by the shape or the work of its steps; else in none. Only launches and calls
 * of threads without a mark come here: what user space has decided is in stage_rules and
 * `functions`, and a thread looks it up again only when rules_generation has moved.
 *
 * A phase outlives a wait: the next step mostly is of the same phase, and its first kernels are
 * shared ones. It ends with an anchor of another stage, with a function that its stage never
 * launches, or HOTSTAGE_PHASE_LAUNCHES launches after its last anchor.
 */
#ifndef HOTSTAGE_INFERENCE_H
#define HOTSTAGE_INFERENCE_H

#include "maps.h"
#include "arguments.h"
#include "stage_ids.h"
#include "names.h"
#include "step_work.h"

#define FUNCTION_FNV_OFFSET 0xcbf29ce484222325ULL
#define FUNCTION_FNV_PRIME 0x100000001b3ULL
#define FUNCTION_NAME_CHUNKS 6 /* of 47 bytes: mangled names differ late */

#define STEP_HAS_GRAPH 1
#define STEP_HAS_INPUT 2
#define STEP_HAS_TOKENS 4
#define STEP_HAS_MORE 8 /* more was copied to the host than tokens are */

static __always_inline void infer(struct thread_state *thread, __u8 stage, __u8 modality,
				  __u8 source)
{
	thread->inferred_stage = stage;
	thread->inferred_modality = modality;
	thread->source = stage == HOTSTAGE_NO_STAGE ? SOURCE_NONE : source;
}

/* What stage_rules says of the thread whatever its stream: its own entry, else its process's. */
static __always_inline void look_up_rules(struct thread_state *thread, __u32 tgid, __u32 tid,
					  __u32 generation)
{
	struct stage_rule_key key = {.tgid = tgid, .tid = tid};
	struct stage_rule *rule = bpf_map_lookup_elem(&stage_rules, &key);

	if (!rule) {
		key.tid = 0;
		rule = bpf_map_lookup_elem(&stage_rules, &key);
	}
	thread->rules_generation = generation;
	thread->rule_stage = rule ? rule->stage : HOTSTAGE_NO_STAGE;
	thread->rule_modality = rule ? rule->modality : HOTSTAGE_MODALITIES - 1;
	thread->rule_flags = rule ? rule->flags : 0;
	if (thread->rule_stage != HOTSTAGE_NO_STAGE || !thread->rule_flags)
		infer(thread, thread->rule_stage, thread->rule_modality, SOURCE_RULE);
}

static __always_inline void keep_rules_fresh(struct thread_state *thread, __u32 tgid, __u32 tid)
{
	__u32 zero = 0;
	struct hotstage_settings *limits = bpf_map_lookup_elem(&settings, &zero);

	if (limits && thread->rules_generation != limits->rules_generation)
		look_up_rules(thread, tgid, tid, limits->rules_generation);
}

/* Returns 0 where no rule speaks of this stream. */
static __always_inline __u32 infer_by_stream(struct thread_state *thread, __u32 tgid, __u32 tid)
{
	struct stage_rule_key key = {
		.tgid = tgid,
		.tid = tid,
		.stream = thread->stream ? thread->stream : HOTSTAGE_NULL_STREAM,
	};
	struct stage_rule *rule = bpf_map_lookup_elem(&stage_rules, &key);

	if (!rule) {
		key.tid = 0;
		rule = bpf_map_lookup_elem(&stage_rules, &key);
	}
	if (!rule)
		return 0;
	infer(thread, rule->stage, rule->modality, SOURCE_RULE);
	return 1;
}

static __always_inline __u64 function_of(struct pt_regs *ctx, const struct call_spec *spec)
{
	switch (spec->function_argument & ~HOTSTAGE_FUNCTION_LEARNS) {
	case 1:
		return PT_REGS_PARM1(ctx);
	case 2:
		return PT_REGS_PARM2(ctx);
	case HOTSTAGE_FUNCTION_IS_GRAPH:
		return HOTSTAGE_GRAPH_HANDLE;
	}
	return 0;
}

static __always_inline void infer_by_function(struct thread_state *thread, __u32 tgid, __u64 handle)
{
	struct function_key key = {.handle = handle, .tgid = tgid};
	struct function_state *function = bpf_map_lookup_elem(&functions, &key);
	__u8 stage = thread->inferred_stage;

	if (function && function->kind == FUNCTION_ANCHOR) {
		infer(thread, function->stage, function->modality, SOURCE_FINGERPRINT);
		thread->phase_launches = 0;
		return;
	}
	if (stage == HOTSTAGE_NO_STAGE)
		return;
	if (thread->phase_launches++ >= HOTSTAGE_PHASE_LAUNCHES ||
	    (function && function->kind == FUNCTION_SHARED &&
	     !(function->stage_mask >> (stage & 63) & 1)))
		infer(thread, HOTSTAGE_NO_STAGE, HOTSTAGE_MODALITIES - 1, SOURCE_NONE);
}

static __always_inline void infer_by_step(struct thread_state *thread, __u32 is_graph)
{
	if (is_graph)
		infer(thread, HOTSTAGE_STAGE_LLM_DECODE, HOTSTAGE_MODALITY_TEXT,
		      SOURCE_FINGERPRINT);
	else if (!(thread->step_flags & STEP_HAS_GRAPH) &&
		 thread->step_launches > HOTSTAGE_STEP_SHORT)
		infer(thread, HOTSTAGE_STAGE_LLM_PREFILL, HOTSTAGE_MODALITY_TEXT,
		      SOURCE_FINGERPRINT);
}

/* The first launches of a burst are of no stage; what its head says holds until the next wait's. */
static __always_inline void infer_by_work(struct thread_state *thread, __u32 tgid, __u32 tid)
{
	__u8 stage = HOTSTAGE_NO_STAGE;

	if (thread->step_launches > HOTSTAGE_STEP_SHORT + 1)
		return;
	if (thread->step_launches == HOTSTAGE_STEP_SHORT + 1)
		stage = phase_of_head(thread, tgid, tid);
	infer(thread, stage,
	      stage == HOTSTAGE_NO_STAGE ? HOTSTAGE_MODALITIES - 1 : HOTSTAGE_MODALITY_TEXT,
	      SOURCE_FINGERPRINT);
}

/*
 * A launch without a mark, its rules fresh and its grid noted: what it counts as is in inferred_stage then,
 * and counted by source.
 */
static __always_inline void infer_launch(struct thread_state *thread, __u64 handle, __u32 tgid, __u32 tid)
{
	__u32 is_graph = handle == HOTSTAGE_GRAPH_HANDLE;

	if ((thread->rule_flags & HOTSTAGE_RULES_BY_STREAM) && infer_by_stream(thread, tgid, tid))
		;
	else if (thread->rule_stage != HOTSTAGE_NO_STAGE)
		infer(thread, thread->rule_stage, thread->rule_modality, SOURCE_RULE);
	else if (thread->rule_flags & HOTSTAGE_RULES_BY_FUNCTION)
		infer_by_function(thread, tgid, handle);
	else if (thread->rule_flags & HOTSTAGE_RULES_BY_STEP)
		infer_by_step(thread, is_graph);
	else if (thread->rule_flags & HOTSTAGE_RULES_BY_WORK)
		infer_by_work(thread, tgid, tid);
	else
		infer(thread, HOTSTAGE_NO_STAGE, HOTSTAGE_MODALITIES - 1, SOURCE_NONE);
	if (is_graph)
		thread->step_flags |= STEP_HAS_GRAPH;
	if (thread->inferred_stage == HOTSTAGE_NO_STAGE)
		thread->unattributed_total++;
	else if (thread->source == SOURCE_RULE)
		thread->rule_total++;
	else
		thread->fingerprint_total++;
}

/* A launch with a mark, while user space wants to know which functions which stage launches. */
static __always_inline void learn_launch(const struct thread_state *thread, __u64 handle, __u32 tgid)
{
	struct function_count_key key = {
		.handle = handle,
		.tgid = tgid,
		.stage = thread->stage,
		.modality = thread->modality,
	};
	__u64 one = 1, *count = bpf_map_lookup_elem(&function_counts, &key), *held;

	if (count) {
		__sync_fetch_and_add(count, 1);
		return;
	}
	held = share_of(tgid, SHARE_FUNCTION_COUNTS);
	if (has_its_share(held, SHARE_FUNCTION_COUNTS) ||
	    bpf_map_update_elem(&function_counts, &key, &one, BPF_ANY))
		count_loss(LOST_FUNCTIONS);
	else
		hold_one_more(held);
}

/* A copy or wait of a thread without a mark has returned; a wait after launches ends a step. */
HOTSTAGE_PART __u32 note_step(struct thread_state *thread, __u32 step, __u64 bytes, __u32 tgid, __u32 tid)
{
	__u8 flags;

	if (!thread)
		return 0;
	flags = thread->step_flags;
	if (step == STEP_TO_DEVICE) {
		flags |= STEP_HAS_INPUT;
		note_input(thread, bytes);
	}
	if (step == STEP_TO_HOST || step == STEP_TO_HOST_WAIT) {
		flags |= bytes < HOTSTAGE_STEP_TOKENS ? STEP_HAS_TOKENS : STEP_HAS_MORE;
		thread->output_bytes = saturated_sum(thread->output_bytes, bytes);
	}
	thread->step_flags = flags;
	if (step < STEP_WAIT)
		return 0;
	if (!thread->step_launches) {
		keep_late_output(thread);
		return 0;
	}
	thread->steps++;
	if (flags & STEP_HAS_GRAPH) {
		if (thread->step_launches <= HOTSTAGE_STEP_SHORT + 1 &&
		    (flags & (STEP_HAS_TOKENS | STEP_HAS_MORE)) == STEP_HAS_TOKENS)
			thread->graph_steps++;
	} else if (thread->step_launches > HOTSTAGE_STEP_SHORT && (flags & STEP_HAS_INPUT)) {
		thread->burst_steps++;
	}
	if (!(flags & STEP_HAS_GRAPH) && thread->rule_stage == HOTSTAGE_NO_STAGE &&
	    !(thread->rule_flags & (HOTSTAGE_RULES_BY_FUNCTION | HOTSTAGE_RULES_BY_STEP)))
		end_piece(thread, tgid, tid);
	else
		forget_piece(thread);
	thread->step_launches = 0;
	thread->step_flags = 0;
	return 0;
}

/* FNV-1a over one chunk of a name, which is where the name is kept. */
HOTSTAGE_PART __u64 hash_chunk(const struct function_state *function, __u64 hash)
{
	__u64 is_in = ~0ULL;

	if (!function)
		return hash;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < HOTSTAGE_FUNCTION_NAME - 1; i++) {
		__u64 byte = (__u8)function->name[i];

		is_in &= -((0 - byte) >> 63); /* all bits up to the NUL, none from there on: no branch */
		hash ^= (hash ^ (hash ^ byte) * FUNCTION_FNV_PRIME) & is_in;
	}
	return hash;
}

/*
 * FNV-1a over the name's first FUNCTION_NAME_CHUNKS chunks, which are read where the name is kept:
 * there is no room for them on the stack. 0 where it cannot be read or is empty.
 */
static __always_inline __u64 read_name(struct function_state *function, __u64 address)
{
	__u64 hash = FUNCTION_FNV_OFFSET, first = address;

#pragma clang loop unroll(disable)
	for (__u32 at = 0; at < FUNCTION_NAME_CHUNKS; at++) {
		long length = bpf_probe_read_user_str(function->name, HOTSTAGE_FUNCTION_NAME,
						      (void *)address);

		if (length <= 1)
			break;
		hash = hash_chunk(function, hash);
		if (length < HOTSTAGE_FUNCTION_NAME)
			break;
		address += HOTSTAGE_FUNCTION_NAME - 1;
	}
	bpf_probe_read_user_str(function->name, HOTSTAGE_FUNCTION_NAME, (void *)first);
	return hash == FUNCTION_FNV_OFFSET ? 0 : hash;
}

/* A function's entry, made where there is none; NULL, counted, where there is no room. */
static __always_inline struct function_state *function_entry(const struct function_key *key)
{
	struct function_state *function;
	__u64 *held = share_of(key->tgid, SHARE_FUNCTIONS);
	__u32 zero = 0;

	function = bpf_map_lookup_elem(&function_zero, &zero);
	if (function && !has_its_share(held, SHARE_FUNCTIONS) &&
	    !bpf_map_update_elem(&functions, key, function, BPF_NOEXIST))
		hold_one_more(held);
	function = bpf_map_lookup_elem(&functions, key);
	if (!function)
		count_loss(LOST_FUNCTIONS);
	return function;
}

/* What a function's handle is called from now on. */
static __always_inline void name_function(const struct function_key *key, __u64 name, __u32 source)
{
	struct function_state *function = function_entry(key);
	__u64 name_hash;

	if (!function)
		return;
	name_hash = read_name(function, name);
	if (!name_hash)
		count_loss(UNREADABLE_ARGUMENTS);
	if (function->name_hash != name_hash)
		function->kind = FUNCTION_UNKNOWN;
	function->name_hash = name_hash;
	keep_kernel_name(key->tgid, name_hash, name, source);
}

/*
 * A function was looked up by its name, or is another handle of one that was. Under a handle that
 * was another function's before, what user space had said of that one is over.
 */
static __always_inline void note_function(struct thread_state *thread, __u32 tgid, __u32 effect)
{
	struct function_key key = {.tgid = tgid};
	struct function_key of = {.handle = thread->second_argument, .tgid = tgid};
	struct function_state *function;
	__u64 *held = share_of(tgid, SHARE_FUNCTIONS);
	__u32 is_full = has_its_share(held, SHARE_FUNCTIONS), is_new;

	if (bpf_probe_read_user(&key.handle, sizeof(key.handle), (void *)thread->argument)) {
		count_loss(UNREADABLE_ARGUMENTS);
		return;
	}
	if (effect == EFFECT_FUNCTION_OF) {
		function = bpf_map_lookup_elem(&functions, &of);
		if (!function)
			return;
		is_new = !bpf_map_lookup_elem(&functions, &key);
		if ((is_new && is_full) || bpf_map_update_elem(&functions, &key, function, BPF_ANY))
			count_loss(LOST_FUNCTIONS);
		else if (is_new)
			hold_one_more(held);
		return;
	}
	name_function(&key, thread->second_argument, NAME_LOOKED_UP);
}

static __always_inline void note_stream(struct thread_state *thread, __u32 tgid)
{
	struct function_key key = {.tgid = tgid};
	struct stream_state stream = {.created_ns = thread->since_ns,
				      .priority = (__s32)thread->second_argument};
	__u64 *held = share_of(tgid, SHARE_STREAMS);

	if (bpf_probe_read_user(&key.handle, sizeof(key.handle), (void *)thread->argument))
		count_loss(UNREADABLE_ARGUMENTS);
	else if (bpf_map_lookup_elem(&streams, &key))
		bpf_map_update_elem(&streams, &key, &stream, BPF_ANY);
	else if (has_its_share(held, SHARE_STREAMS) ||
		 bpf_map_update_elem(&streams, &key, &stream, BPF_ANY))
		count_loss(LOST_FUNCTIONS);
	else
		hold_one_more(held);
}

#endif
