// SPDX-License-Identifier: Apache-2.0
/* The target's memory calls and what they truly did: the library keeps the truth, the program tells it. */
#include <stddef.h>
#include <stdint.h>

enum { DEVICE = 1, PITCHED, MANAGED, POOL, HOST, PHYSICAL, MAPPED, RESERVED, KINDS };

#define STAGES 64
#define TOO_MUCH 0xdead0000ULL
#define BLOCK 0xb10c0000ULL
#define GRANULE 0x200000ULL

struct memory_truth {
	uint64_t live_bytes[KINDS], live_count[KINDS];
	uint64_t allocated_bytes[KINDS], freed_bytes[KINDS], implicit_bytes[KINDS];
	uint64_t stage_bytes[STAGES]; /* of what is for GPUs */
};

struct properties {
	uint32_t type, handle_types, location_type, location_id;
	void *other[2];
};

extern struct memory_truth memory_truth;
extern __thread uint32_t memory_stage; /* what the calling thread works for, as it has marked */
extern int memory_fails;	       /* the next frees fail */

int cuDevicePrimaryCtxRetain(uint64_t *context, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuDevicePrimaryCtxReset_v2(int device);
int cuCtxCreate_v2(uint64_t *context, unsigned flags, int device);
int cuCtxDestroy_v2(uint64_t context);
int cuCtxSetCurrent(uint64_t context);
int cuMemAlloc_v2(uint64_t *out, uint64_t bytes);
int cuMemAllocPitch_v2(uint64_t *out, uint64_t *pitch, uint64_t width, uint64_t height, unsigned element);
int cuMemAllocManaged(uint64_t *out, uint64_t bytes, unsigned flags);
int cuMemAllocAsync(uint64_t *out, uint64_t bytes, uint64_t stream);
int cuMemAllocFromPoolAsync(uint64_t *out, uint64_t bytes, uint64_t pool, uint64_t stream);
int cuMemFree_v2(uint64_t address);
int cuMemFreeAsync(uint64_t address, uint64_t stream);
int cuMemHostAlloc(uint64_t *out, uint64_t bytes, unsigned flags);
int cuMemFreeHost(uint64_t address);
int cuMemCreate(uint64_t *handle, uint64_t bytes, const struct properties *properties, uint64_t flags);
int cuMemRelease(uint64_t handle);
int cuMemAddressReserve(uint64_t *out, uint64_t bytes, uint64_t alignment, uint64_t wanted, uint64_t flags);
int cuMemAddressFree(uint64_t address, uint64_t bytes);
int cuMemMap(uint64_t address, uint64_t bytes, uint64_t offset, uint64_t handle, uint64_t flags);
int cuMemUnmap(uint64_t address, uint64_t bytes);
int cuMemRetainAllocationHandle(uint64_t *handle, uint64_t address);
int cuMemPoolGetAttribute(uint64_t pool, int attribute, uint64_t *value);

void hotstage_mark_stage_begin(uint64_t word, uint64_t request_hash, uint64_t tokens);
void hotstage_mark_stage_end(uint64_t word, uint64_t request_hash, uint64_t restored, uint64_t tokens);
