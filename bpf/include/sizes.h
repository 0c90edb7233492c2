// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * How many bytes is a call about, and where does a copy go, where no register says so? The structures are those
 * of cuda.h; the runtime's are in runtime_calls.h.
 */
#ifndef HOTSTAGE_SIZES_H
#define HOTSTAGE_SIZES_H

#include "arguments.h"
#include "maps.h"

/* offsetof(CUDA_MEMCPY2D, WidthInBytes) and offsetof(CUDA_MEMCPY3D, WidthInBytes), cuda.h; height and
 * depth follow. CUDA_MEMCPY3D_PEER has the same.
 */
#define COPY_2D_WIDTH 112
#define COPY_3D_WIDTH 176

HOTSTAGE_PART __u64 bytes_of_shape(__u64 address, __u32 dimensions)
{
	__u64 extent[3] = {};
	long failed;

	extent[2] = 1; /* not in the initialiser: bcc has no place for a constant array */
	if (dimensions == 2)
		failed = bpf_probe_read_user(extent, 16, (void *)(address + COPY_2D_WIDTH));
	else
		failed = bpf_probe_read_user(extent, 24, (void *)(address + COPY_3D_WIDTH));
	if (failed) {
		count_loss(UNREADABLE_ARGUMENTS);
		return 0;
	}
	return extent[0] * extent[1] * extent[2];
}

/* offsetof(CUDA_MEMCPY2D, srcMemoryType), dstMemoryType, and the same of CUDA_MEMCPY3D. */
#define COPY_2D_FROM 16
#define COPY_2D_TO 72
#define COPY_3D_FROM 32
#define COPY_3D_TO 120

#define MEMORY_OF_HOST 1  /* CUmemorytype */
#define MEMORY_UNIFIED 4 /* the address says it, to the driver alone */

static __always_inline __u32 direction_of_shape(__u64 address, __u32 dimensions)
{
	__u32 from = MEMORY_UNIFIED, to = MEMORY_UNIFIED;
	__u64 from_offset = dimensions == 2 ? COPY_2D_FROM : COPY_3D_FROM;
	__u64 to_offset = dimensions == 2 ? COPY_2D_TO : COPY_3D_TO;

	/* What cannot be read is counted where its extent is. */
	bpf_probe_read_user(&from, sizeof(from), (void *)(address + from_offset));
	bpf_probe_read_user(&to, sizeof(to), (void *)(address + to_offset));
	if (!from || from >= MEMORY_UNIFIED || !to || to >= MEMORY_UNIFIED)
		return DIRECTION_OF_ROW;
	return DIRECTION_HTOH + (from != MEMORY_OF_HOST) * 2 + (to != MEMORY_OF_HOST);
}

/*
 * The direction of a driver's copy that does not say it: where both sides are known, or by the word of the
 * runtime's call that it is made by, which `thread` still describes as the innermost.
 */
static __always_inline __u32 driver_direction(struct pt_regs *ctx, const struct thread_state *thread,
					      const struct call_spec *spec)
{
	__u32 around = thread->call, direction = DIRECTION_OF_ROW;
	struct call_spec *outer;

	if (spec->kind_argument >= HOTSTAGE_KIND_IN_2D)
		direction = direction_of_shape(PT_REGS_PARM1(ctx),
					       spec->kind_argument == HOTSTAGE_KIND_IN_2D ? 2 : 3);
	if (direction || !thread->depth)
		return direction;
	outer = bpf_map_lookup_elem(&call_specs, &around);
	return outer && outer->kind_argument ? (__u32)thread->second_argument : DIRECTION_OF_ROW;
}

/* What a copy without a mark is in its thread's step, by its direction. */
static __always_inline __u32 step_of(__u32 direction, __u32 has_stream)
{
	if (direction == DIRECTION_HTOD)
		return STEP_TO_DEVICE;
	if (direction == DIRECTION_DTOH)
		return has_stream ? STEP_TO_HOST : STEP_TO_HOST_WAIT;
	return STEP_NONE;
}

HOTSTAGE_PART __u64 bytes_of_batch(__u64 sizes, __u64 count)
{
	__u64 bytes = 0, size;

	if (count > HOTSTAGE_BATCH_SIZES) {
		count_loss(LOST_BATCH_SIZES);
		count = HOTSTAGE_BATCH_SIZES;
	}
#pragma clang loop unroll(disable)
	for (__u32 at = 0; at < HOTSTAGE_BATCH_SIZES; at++) {
		if (at >= count)
			break;
		if (bpf_probe_read_user(&size, sizeof(size), (void *)(sizes + at * 8))) {
			count_loss(UNREADABLE_ARGUMENTS);
			break;
		}
		bytes += size;
	}
	return bytes;
}

/* Bytes of one channel, 0 for formats whose elements are blocks, planes or packed: CUarray_format, cuda.h */
static __always_inline __u64 channel_bytes(__u32 format)
{
	if (format == 0x01 || format == 0x08 || (format >= 0xc0 && format <= 0xc2) ||
	    (format >= 0xc6 && format <= 0xc8))
		return 1;
	if (format == 0x02 || format == 0x09 || format == 0x10 || (format >= 0xc3 && format <= 0xc5) ||
	    (format >= 0xc9 && format <= 0xcb))
		return 2;
	return format == 0x03 || format == 0x0a || format == 0x20 ? 4 : 0;
}

/* 1 for 0, 0 for any other extent, without a branch: each level of an array would double what is verified. */
#define IS_NOTHING(extent) (((extent) - 1) >> 63)

#define ARRAY_LEVELS 18	   /* more than any extent can be halved */
#define ARRAY_HAS_LAYERS 5 /* CUDA_ARRAY3D_LAYERED, _CUBEMAP, cuda.h: its depth counts them, in each level as many */
#define ARRAY_MEMORY_LATER 0xc0 /* CUDA_ARRAY3D_SPARSE, CUDA_ARRAY3D_DEFERRED_MAPPING: it has none of its own */

/* 0 where its format says nothing of its size, and where it has no memory of its own. */
HOTSTAGE_PART __u64 bytes_of_array(__u64 address, __u64 levels, __u32 dimensions)
{
	__u64 extent[3] = {}, bytes = 0, layers = 1, width, height, depth, is_there;
	__u32 format[3] = {}; /* format, channels, flags */
	long failed;

	if (dimensions == 2)
		failed = bpf_probe_read_user(extent, 16, (void *)address) |
			 bpf_probe_read_user(format, 8, (void *)(address + 16));
	else
		failed = bpf_probe_read_user(extent, 24, (void *)address) |
			 bpf_probe_read_user(format, 12, (void *)(address + 24));
	if (failed) {
		count_loss(UNREADABLE_ARGUMENTS);
		return 0;
	}
	if (format[2] & ARRAY_MEMORY_LATER)
		return 0;
	if (format[2] & ARRAY_HAS_LAYERS) {
		layers = extent[2] + IS_NOTHING(extent[2]);
		extent[2] = 0;
	}
	levels += IS_NOTHING(levels);
#pragma clang loop unroll(disable)
	for (__u64 level = 0; level < ARRAY_LEVELS; level++) {
		width = extent[0] >> level;
		height = extent[1] >> level;
		depth = extent[2] >> level;
		is_there = ((level - levels) >> 63) * (1 - IS_NOTHING(width | height | depth));
		bytes += is_there * (width + IS_NOTHING(width)) * (height + IS_NOTHING(height)) *
			 (depth + IS_NOTHING(depth));
	}
	return bytes * layers * format[1] * channel_bytes(format[0]);
}

static __always_inline __u64 bytes_behind(__u64 address)
{
	__u64 bytes = 0;

	if (bpf_probe_read_user(&bytes, sizeof(bytes), (void *)address))
		count_loss(UNREADABLE_ARGUMENTS);
	return bytes;
}

static __always_inline __u64 bytes_in_memory(struct pt_regs *ctx, const struct call_spec *spec)
{
	__u32 where = spec->bytes_argument;

	if (where == HOTSTAGE_BYTES_BEHIND)
		return bytes_behind(register_argument(ctx, spec->factor_argument) + spec->type_argument);
	if (where == HOTSTAGE_BYTES_IN_ARRAY)
		return bytes_of_array(PT_REGS_PARM2(ctx), 1, 2);
	if (where == HOTSTAGE_BYTES_IN_ARRAY_3D)
		return bytes_of_array(PT_REGS_PARM2(ctx),
				      spec->factor_argument ? (__u32)register_argument(ctx, spec->factor_argument) : 1, 3);
	if (where == HOTSTAGE_BYTES_IN_BATCH)
		return bytes_of_batch(PT_REGS_PARM3(ctx), PT_REGS_PARM4(ctx));
	return bytes_of_shape(PT_REGS_PARM1(ctx), where == HOTSTAGE_BYTES_IN_2D ? 2 : 3);
}

#endif
