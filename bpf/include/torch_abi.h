// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * PyTorch's allocator: its part of what crosses to Python; rules as in abi.h, twin in
 * agent/hotstage/probes/maps/torch.py. A device is CUDA's ordinal in its process.
 */
#ifndef HOTSTAGE_TORCH_ABI_H
#define HOTSTAGE_TORCH_ABI_H

#define TORCH_BLOCK_IS_REPORTED 1 /* its size is known, and its end will be told of */
#define TORCH_BLOCK_IS_CHARGED 2  /* it is in its process's share */

/* An operand of a USDT probe in an attach cookie, above its 16 bits of call id; 24 bits each. */
#define HOTSTAGE_OPERAND_REGISTER 0x1fU /* its place in the registers, in words */
#define HOTSTAGE_OPERAND_IN_MEMORY 0x20U /* it stands at register + displacement */
#define HOTSTAGE_OPERAND_DISPLACEMENT 6	 /* 18 bits from here on, signed */
#define HOTSTAGE_OPERAND_BITS 24

struct torch_block_key {
	__u64 address;
	__u32 tgid;
	__u32 pad;
};

/* torch_blocks[key]: what the allocator has given out and not yet got back. */
struct torch_block {
	__u64 bytes;	       /* after the allocator's rounding; 0 = not reported */
	__u64 requested_bytes; /* before it; 0 = not said */
	__u64 since_ns;
	__u32 device; /* HOTSTAGE_NO_DEVICE = not reported */
	__u8 stage;
	__u8 modality;
	__u8 flags; /* TORCH_BLOCK_IS_… */
	__u8 pad;
};

/*
 * torch_segments[key]: an allocation of the ledger that a block has begun at, or addresses that were reserved
 * for segments that grow. A new one is always cut from its begin on, so the first block names each; it is the
 * one of the ledger while both times agree.
 */
struct torch_segment {
	__u64 bytes;
	__u64 since_ns; /* as in the ledger */
	__u32 device;	/* as PyTorch said */
	__u32 space;	/* enum hotstage_memory_space: pointers or reservations */
};

/*
 * torch_devices[device_key]. `allocated_bytes` and `reserved_bytes` are PyTorch's own sums as of the last
 * block, the others are ours. Written under the allocator's lock, one writer at a time.
 */
struct torch_device {
	__u64 allocated_bytes;
	__u64 reserved_bytes;
	__u64 updated_ns;
	__u64 base_bytes; /* allocated before the first block that was seen; 0 = seen from the start */
	__u64 base_reserved_bytes; /* .. and reserved, but for the segment of that block */
	__u64 block_bytes; /* of blocks that are in torch_blocks */
	__u64 block_count;
	__u64 allocated_total;
	__u64 freed_total;
	__u64 unmatched_frees; /* of blocks from before the attach, or that found no room */
	__u64 out_of_memory_total;
	__u64 out_of_memory_ns; /* of the last one */
	__u64 out_of_memory_requested_bytes;
	__u64 out_of_memory_allocated_bytes;
	__u64 out_of_memory_reserved_bytes;
};

_Static_assert(sizeof(struct torch_block_key) == 16, "torch_block_key");
_Static_assert(sizeof(struct torch_block) == 32, "torch_block");
_Static_assert(sizeof(struct torch_segment) == 24, "torch_segment");
_Static_assert(sizeof(struct torch_device) == 120, "torch_device");

#endif
