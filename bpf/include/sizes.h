// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * How many bytes is a call about, where no register says so? The structures are those of cuda.h; the
 * runtime's are others, and are not read.
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

static __always_inline __u64 bytes_of_shape(__u64 address, __u32 dimensions)
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

static __always_inline __u64 bytes_of_batch(__u64 sizes, __u64 count)
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

static __always_inline __u64 bytes_in_memory(struct pt_regs *ctx, __u32 where)
{
	if (where == HOTSTAGE_BYTES_IN_BATCH)
		return bytes_of_batch(PT_REGS_PARM3(ctx), PT_REGS_PARM4(ctx));
	return bytes_of_shape(PT_REGS_PARM1(ctx), where == HOTSTAGE_BYTES_IN_2D ? 2 : 3);
}

#endif
