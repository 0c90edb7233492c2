// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * What has PyTorch's CUDA allocator given out, of which size, for which stage?
 *
 * `torch_report` and `torch_out_of_memory` are entries of two functions that libc10.so exports and that the
 * allocator calls for every block, under its lock, whether or not a profiler is there. The USDT probes
 * `pytorch:malloc` and `pytorch:free` of libc10_cuda.so tell besides how much was asked for; they are behind
 * semaphores, which the links raise. Attached only where the operator has switched it on: a block that is
 * made and freed passes four probes. Nothing of a program's memory is read but operands on its stack.
 *
 * A block is reported before pytorch:malloc and after pytorch:free; where it is not reported at all, the
 * probes alone keep it, without a size of its own.
 */
#include "include/backend.h"
#include "include/abi.h"
#include "include/maps.h"
#include "include/ledger_maps.h"
#include "include/torch_abi.h"

#define TORCH_DEVICE_CUDA 1 /* c10::DeviceType::CUDA, c10/core/DeviceType.h */

HOTSTAGE_SPARSE_HASH(torch_blocks, struct torch_block_key, struct torch_block, 65536);
HOTSTAGE_SPARSE_HASH(torch_segments, struct torch_block_key, struct torch_segment, 16384);
HOTSTAGE_SPARSE_HASH(torch_devices, struct device_key, struct torch_device, 1024);

static __always_inline __u64 operand(struct pt_regs *ctx, __u32 place)
{
	__s32 displacement = (__s32)(place << (32 - HOTSTAGE_OPERAND_BITS)) >>
			     (32 - HOTSTAGE_OPERAND_BITS + HOTSTAGE_OPERAND_DISPLACEMENT);
	__u64 value = 0;

	bpf_probe_read_kernel(&value, sizeof(value),
			      (void *)ctx + (place & HOTSTAGE_OPERAND_REGISTER) * sizeof(value));
	if (place & HOTSTAGE_OPERAND_IN_MEMORY &&
	    bpf_probe_read_user(&value, sizeof(value), (void *)(value + (__s64)displacement))) {
		count_loss(UNREADABLE_ARGUMENTS);
		return 0;
	}
	return value;
}

static __always_inline void name_stage_of(struct torch_block *block, __u32 tid, __u32 tgid)
{
	struct thread_state *thread = bpf_map_lookup_elem(&threads, &tid);

	block->stage = HOTSTAGE_NO_STAGE;
	block->modality = HOTSTAGE_MODALITIES - 1;
	if (!thread || thread->tgid != tgid)
		return;
	block->stage = thread->stage;
	block->modality = thread->modality;
	if (block->stage == HOTSTAGE_NO_STAGE) {
		block->stage = thread->inferred_stage;
		block->modality = thread->inferred_modality;
	}
}

/* The sums of a device; NULL where there is no room for them. */
static __always_inline struct torch_device *torch_device_of(__u32 tgid, __u32 ordinal)
{
	struct device_key key = {.tgid = tgid, .ordinal = ordinal};
	struct torch_device none = {}, *device = bpf_map_lookup_elem(&torch_devices, &key);

	if (device)
		return device;
	bpf_map_update_elem(&torch_devices, &key, &none, BPF_NOEXIST);
	device = bpf_map_lookup_elem(&torch_devices, &key);
	if (!device)
		count_loss(LOST_BLOCKS);
	return device;
}

/* Take a block out and off the sums; 0 where it is not known. */
static __always_inline __u32 drop_block(const struct torch_block_key *key)
{
	struct torch_block *found = bpf_map_lookup_elem(&torch_blocks, key), block;
	struct device_key device_key = {.tgid = key->tgid};
	struct torch_device *device;
	__u64 *held;

	if (!found)
		return 0;
	block = *found;
	if (bpf_map_delete_elem(&torch_blocks, key))
		return 0; /* another CPU was first */
	if (block.flags & TORCH_BLOCK_IS_CHARGED) {
		held = share_of(key->tgid, SHARE_BLOCKS);
		if (held)
			__sync_fetch_and_add(held, -1);
	}
	device_key.ordinal = block.device;
	device = bpf_map_lookup_elem(&torch_devices, &device_key);
	if (device) {
		__sync_fetch_and_add(&device->block_bytes, -block.bytes);
		__sync_fetch_and_add(&device->block_count, -1);
	}
	return 1;
}

/* An address that is known already was given out again: its free was not seen. */
static __always_inline void keep_block(const struct torch_block_key *key, struct torch_block *block,
				       struct torch_device *device)
{
	__u64 *held = share_of(key->tgid, SHARE_BLOCKS);

	if (drop_block(key) && device)
		__sync_fetch_and_add(&device->unmatched_frees, 1);
	if (held)
		block->flags |= TORCH_BLOCK_IS_CHARGED;
	if (has_its_share(held, SHARE_BLOCKS) || bpf_map_update_elem(&torch_blocks, key, block, BPF_NOEXIST)) {
		count_loss(LOST_BLOCKS);
		return;
	}
	hold_one_more(held);
	if (device) {
		__sync_fetch_and_add(&device->block_bytes, block->bytes);
		__sync_fetch_and_add(&device->block_count, 1);
	}
}

/*
 * The allocation, or the reserved addresses, that begin where a block does; bytes of memory, 0 where the
 * ledger knows none.
 */
static __always_inline __u64 note_segment(const struct torch_block_key *block, __u32 device)
{
	struct allocation_key key = {
		.address = block->address,
		.tgid = block->tgid,
		.space = SPACE_POINTERS,
	};
	struct allocation *found = bpf_map_lookup_elem(&allocations, &key);
	struct torch_segment fresh = {.device = device}, *known;

	if (!found) {
		key.space = SPACE_RESERVATIONS;
		found = bpf_map_lookup_elem(&allocations, &key);
	}
	if (!found)
		return 0;
	known = bpf_map_lookup_elem(&torch_segments, block);
	if (!known || known->since_ns != found->since_ns) {
		fresh.bytes = found->bytes;
		fresh.since_ns = found->since_ns;
		fresh.space = key.space;
		if (bpf_map_update_elem(&torch_segments, block, &fresh, BPF_ANY))
			count_loss(LOST_BLOCKS);
	}
	return key.space == SPACE_POINTERS ? found->bytes : 0;
}

/*
 * c10::reportMemoryUsageToProfiler(void *ptr, int64_t change, size_t total_allocated, size_t total_reserved,
 * c10::Device): Device is two bytes, its type and its index
 */
SEC("uprobe")
int torch_report(struct pt_regs *ctx)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid(), now = bpf_ktime_get_ns();
	__u32 tgid = pid_tgid >> 32, ordinal = PT_REGS_PARM5(ctx) >> 8 & 0xff;
	struct torch_block_key key = {.address = PT_REGS_PARM1(ctx), .tgid = tgid};
	__s64 change = PT_REGS_PARM2(ctx);
	struct torch_block block = {
		.bytes = change,
		.since_ns = now,
		.device = ordinal,
		.flags = TORCH_BLOCK_IS_REPORTED,
	};
	struct torch_device *device;
	__u64 segment_bytes = 0;

	if ((PT_REGS_PARM5(ctx) & 0xff) != TORCH_DEVICE_CUDA)
		return 0;
	device = torch_device_of(tgid, ordinal);
	if (!device)
		return 0;
	if (change > 0)
		segment_bytes = note_segment(&key, ordinal);
	if (!device->updated_ns) {
		device->base_bytes = PT_REGS_PARM3(ctx) - change;
		device->base_reserved_bytes = PT_REGS_PARM4(ctx) - segment_bytes;
	}
	device->allocated_bytes = PT_REGS_PARM3(ctx);
	device->reserved_bytes = PT_REGS_PARM4(ctx);
	device->updated_ns = now;
	if (change > 0) {
		__sync_fetch_and_add(&device->allocated_total, 1);
		name_stage_of(&block, (__u32)pid_tgid, tgid);
		keep_block(&key, &block, device);
	} else {
		__sync_fetch_and_add(&device->freed_total, 1);
		if (!drop_block(&key))
			__sync_fetch_and_add(&device->unmatched_frees, 1);
	}
	return 0;
}

/* c10::reportOutOfMemoryToProfiler(int64_t requested, size_t allocated, size_t reserved, c10::Device) */
SEC("uprobe")
int torch_out_of_memory(struct pt_regs *ctx)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct torch_device *device;

	if ((PT_REGS_PARM4(ctx) & 0xff) != TORCH_DEVICE_CUDA)
		return 0;
	device = torch_device_of(tgid, PT_REGS_PARM4(ctx) >> 8 & 0xff);
	if (!device)
		return 0;
	device->out_of_memory_requested_bytes = PT_REGS_PARM1(ctx);
	device->out_of_memory_allocated_bytes = PT_REGS_PARM2(ctx);
	device->out_of_memory_reserved_bytes = PT_REGS_PARM3(ctx);
	device->out_of_memory_ns = bpf_ktime_get_ns();
	__sync_fetch_and_add(&device->out_of_memory_total, 1);
	return 0;
}

/* pytorch:malloc(ptr, device, requested_size, stream); the cookie says where the first and the third are */
SEC("uprobe")
int torch_malloc(struct pt_regs *ctx)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid(), cookie = bpf_get_attach_cookie(ctx);
	struct torch_block_key key = {.address = operand(ctx, cookie >> 16), .tgid = pid_tgid >> 32};
	__u64 requested = operand(ctx, cookie >> (16 + HOTSTAGE_OPERAND_BITS));
	struct torch_block *known = bpf_map_lookup_elem(&torch_blocks, &key);
	struct torch_block block = {
		.requested_bytes = requested,
		.since_ns = bpf_ktime_get_ns(),
		.device = HOTSTAGE_NO_DEVICE,
	};

	if (!key.address) /* of no bytes */
		return 0;
	if (known && known->flags & TORCH_BLOCK_IS_REPORTED) {
		known->requested_bytes = requested;
		return 0;
	}
	name_stage_of(&block, (__u32)pid_tgid, key.tgid);
	keep_block(&key, &block, 0);
	return 0;
}

/* pytorch:free(ptr): what is reported goes with its report */
SEC("uprobe")
int torch_free(struct pt_regs *ctx)
{
	struct torch_block_key key = {
		.address = operand(ctx, bpf_get_attach_cookie(ctx) >> 16),
		.tgid = bpf_get_current_pid_tgid() >> 32,
	};
	struct torch_block *known = bpf_map_lookup_elem(&torch_blocks, &key);

	if (known && !(known->flags & TORCH_BLOCK_IS_REPORTED))
		drop_block(&key);
	return 0;
}
