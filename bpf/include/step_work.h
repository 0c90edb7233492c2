// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * How much work is a step of a thread without a mark, what came before it and what it brought back?
 * In a program without CUDA graphs prefill and decode launch the same kernels, as many of them;
 * they differ by their grids, by their input, and by how little comes back for it.
 *
 * A burst is what a thread launches from one wait to the next, where that is more than
 * HOTSTAGE_STEP_SHORT kernels. Its head, the sum of log2 of its first kernels' grid blocks, is what
 * can be known while it runs (a logarithm, because one kernel that copies a KV cache has more blocks
 * than all others of a step of decode together): user space learns from ended bursts (`burst_rings`) which heads are of which phase
 * (attribution/phases.py), and the kernel names the rest of a burst by `phase_limits`. So the launches
 * of a head have no stage, nor have short pieces between two waits.
 */
#ifndef HOTSTAGE_STEP_WORK_H
#define HOTSTAGE_STEP_WORK_H

#include "maps.h"
#include "arguments.h"

HOTSTAGE_SPARSE_HASH(burst_rings, __u32, struct burst_ring, 512);
HOTSTAGE_ARRAY(burst_ring_zero, struct burst_ring, 1); /* never written */
HOTSTAGE_SPARSE_HASH(phase_limits, __u32, struct phase_limits, 512);

static __always_inline __u32 saturated_sum(__u32 sum, __u64 more)
{
	return more >= 0xffffffffU - sum ? 0xffffffffU : sum + (__u32)more;
}

#define HEAD_STEP (HOTSTAGE_HEAD_DOUBLING / 2) /* from one decode to the next */
#define INPUT_STEP 64 /* bytes, of scalars */

/* The blocks of a launch's grid; 0 where the call has none or it cannot be read. */
static __always_inline __u32 grid_blocks(struct pt_regs *ctx, const struct call_spec *spec)
{
	__u32 grid[3] = {};
	__u64 blocks;

	if (spec->grid_argument == HOTSTAGE_GRID_IN_LAUNCH_CONFIG) {
		if (bpf_probe_read_user(grid, sizeof(grid), (void *)PT_REGS_PARM1(ctx)))
			count_loss(UNREADABLE_ARGUMENTS);
	} else if (spec->grid_argument == HOTSTAGE_GRID_BY_VALUE) {
		grid[0] = (__u32)PT_REGS_PARM2(ctx);
		grid[1] = PT_REGS_PARM2(ctx) >> 32;
		grid[2] = (__u32)PT_REGS_PARM3(ctx);
	} else if (spec->grid_argument) {
		grid[0] = (__u32)PT_REGS_PARM2(ctx);
		grid[1] = (__u32)PT_REGS_PARM3(ctx);
		grid[2] = (__u32)PT_REGS_PARM4(ctx);
	}
	/* What the interface allows: x below 2^31, y and z below 2^16. */
	blocks = (__u64)(grid[0] & 0x7fffffff) * (grid[1] & 0xffff) * (grid[2] & 0xffff);
	return blocks > 0xffffffffU ? 0xffffffffU : (__u32)blocks;
}

/* log2 in eighths, between its powers of two linear: within 0.09 of the logarithm; 0 of none. */
static __always_inline __u32 log2_eighths(__u32 value)
{
	__u32 exponent = 0, left = value;

	if (!value)
		return 0;
	if (left >> 16) {
		exponent = 16;
		left >>= 16;
	}
	if (left >> 8) {
		exponent += 8;
		left >>= 8;
	}
	if (left >> 4) {
		exponent += 4;
		left >>= 4;
	}
	if (left >> 2) {
		exponent += 2;
		left >>= 2;
	}
	exponent += left >> 1;
	return exponent * 8 + (__u32)(((__u64)value << 3) >> (exponent & 31)) - 8;
}

/* A launch, counted in `step_launches` already, has so many grid blocks. */
static __always_inline void add_head(struct thread_state *thread, __u32 blocks)
{
	if (thread->step_launches <= HOTSTAGE_STEP_SHORT)
		thread->head_eighths += log2_eighths(blocks);
}

static __always_inline void note_head(struct pt_regs *ctx, struct thread_state *thread,
				      const struct call_spec *spec)
{
	if (thread->step_launches <= HOTSTAGE_STEP_SHORT)
		thread->head_eighths += log2_eighths(grid_blocks(ctx, spec));
}

/*
 * Decode repeats itself: its head is near that of the last burst like decode, and its input no more
 * than twice or less than half. A short prompt amid a large batch may have decode's head, but less
 * input: positions and tables of one sequence.
 */
static __always_inline __u32 repeats_decode(struct thread_state *thread, __u32 head, __u32 input)
{
	__u64 last_head = thread->decode_head, last_input = thread->decode_input;

	thread->decode_head = head;
	thread->decode_input = input;
	return !last_head ||
	       (head <= last_head + HEAD_STEP && last_head <= (__u64)head + HEAD_STEP &&
		input <= 2 * last_input + INPUT_STEP && last_input <= 2 * (__u64)input + INPUT_STEP);
}

/*
 * The head is complete: which phase does the burst belong to? HOTSTAGE_NO_STAGE where neither
 * fits.
 */
static __always_inline __u8 phase_of_head(struct thread_state *thread, __u32 tgid, __u32 tid)
{
	struct phase_limits *limits = bpf_map_lookup_elem(&phase_limits, &tid);
	__u32 head = thread->head_eighths, input = thread->input_bytes;

	if (!limits || limits->tgid != tgid)
		return HOTSTAGE_NO_STAGE;
	if (head >= limits->decode_least && head <= limits->decode_most &&
	    input <= limits->decode_input)
		return repeats_decode(thread, head, input) ? HOTSTAGE_STAGE_LLM_DECODE
							   : HOTSTAGE_NO_STAGE;
	if (head >= limits->prefill_least && input >= limits->prompt_least &&
	    input <= limits->prompt_most)
		return HOTSTAGE_STAGE_LLM_PREFILL;
	return HOTSTAGE_NO_STAGE;
}

static __always_inline void note_input(struct thread_state *thread, __u64 bytes)
{
	thread->input_bytes = saturated_sum(thread->input_bytes, bytes);
	if (bytes && (!thread->least_input || bytes < thread->least_input))
		thread->least_input = bytes > 0xffffffffU ? 0xffffffffU : (__u32)bytes;
}

/* A burst has ended: it goes to its thread's ring, and what came back meanwhile to the one before. */
static __always_inline void record_burst(struct thread_state *thread, __u32 tgid, __u32 tid)
{
	struct burst_ring *ring = bpf_map_lookup_elem(&burst_rings, &tid);
	struct burst *burst;
	__u32 zero = 0;

	if (!ring || ring->tgid != tgid) {
		ring = bpf_map_lookup_elem(&burst_ring_zero, &zero);
		if (ring)
			bpf_map_update_elem(&burst_rings, &tid, ring, BPF_ANY);
		ring = bpf_map_lookup_elem(&burst_rings, &tid);
		if (!ring) {
			count_loss(LOST_BURSTS);
			return;
		}
		ring->tgid = tgid;
	}
	burst = &ring->bursts[(ring->written - 1) & (HOTSTAGE_BURSTS - 1)];
	if (ring->written)
		burst->output_bytes = saturated_sum(burst->output_bytes, thread->late_output);
	burst = &ring->bursts[ring->written & (HOTSTAGE_BURSTS - 1)];
	burst->head_eighths = thread->head_eighths;
	burst->launches = thread->step_launches;
	burst->input_bytes = thread->input_bytes;
	burst->least_input = thread->least_input;
	burst->output_bytes = thread->output_bytes;
	ring->written++; /* last: whoever sees it sees the burst */
}

static __always_inline void keep_late_output(struct thread_state *thread)
{
	thread->late_output = saturated_sum(thread->late_output, thread->output_bytes);
	thread->output_bytes = 0;
}

static __always_inline void forget_piece(struct thread_state *thread)
{
	thread->head_eighths = thread->input_bytes = thread->least_input = 0;
	thread->output_bytes = thread->late_output = 0;
}

/* A wait has returned: either a burst ends, or a short piece, whose output is of the burst before. */
static __always_inline void end_piece(struct thread_state *thread, __u32 tgid, __u32 tid)
{
	if (thread->step_launches > HOTSTAGE_STEP_SHORT) {
		record_burst(thread, tgid, tid);
		thread->input_bytes = thread->least_input = 0;
		thread->late_output = 0;
		thread->output_bytes = 0;
	} else {
		keep_late_output(thread);
	}
	thread->head_eighths = 0;
}

#endif
