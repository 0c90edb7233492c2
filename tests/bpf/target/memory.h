// SPDX-License-Identifier: Apache-2.0
/* The target's memory calls and what they truly did: the library keeps the truth, the program tells it. */
#include <stddef.h>
#include <stdint.h>

enum {
	DEVICE = 1, PITCHED, MANAGED, POOL, HOST, PHYSICAL, MAPPED, RESERVED,
	IMPORTED, ARRAY, SHARED, GRAPH, EXTERNAL, MULTICAST, KINDS
};

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

struct array { /* CUDA_ARRAY_DESCRIPTOR */
	uint64_t width, height;
	uint32_t format, channels;
};

struct array_3d { /* CUDA_ARRAY3D_DESCRIPTOR */
	uint64_t width, height, depth;
	uint32_t format, channels, flags, pad;
};

struct shared_handle { /* CUipcMemHandle */
	uint64_t words[8];
};

struct sized { /* CUDA_EXTERNAL_MEMORY_BUFFER_DESC, CUmulticastObjectProp */
	uint64_t other, bytes, flags;
};

struct node { /* CUDA_MEM_ALLOC_NODE_PARAMS */
	uint64_t properties[13], bytes, address;
};

struct typed_node { /* CUgraphNodeParams */
	uint32_t type, reserved[3];
	union {
		struct node made;
		uint64_t room[30];
	};
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
int cuDeviceGetUuid_v2(unsigned char *uuid, int device);
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
int cuArrayCreate_v2(uint64_t *out, const struct array *array);
int cuArray3DCreate_v2(uint64_t *out, const struct array_3d *array);
int cuMipmappedArrayCreate(uint64_t *out, const struct array_3d *array, unsigned levels);
int cuArrayDestroy(uint64_t array);
int cuMipmappedArrayDestroy(uint64_t array);
int cuIpcOpenMemHandle_v2(uint64_t *out, struct shared_handle handle, unsigned flags);
int cuIpcCloseMemHandle(uint64_t address);
int cuMemPoolImportPointer(uint64_t *out, uint64_t pool, const void *data);
int cuExternalMemoryGetMappedBuffer(uint64_t *out, uint64_t memory, const struct sized *buffer);
int cuMulticastCreate(uint64_t *out, const struct sized *properties);
int cuGraphAddMemAllocNode(uint64_t *out, uint64_t graph, const uint64_t *before, uint64_t count, struct node *node);
int cuGraphAddNode(uint64_t *out, uint64_t graph, const uint64_t *before, uint64_t count, struct typed_node *node);
int cuGraphAddNode_v2(uint64_t *out, uint64_t graph, const uint64_t *before, const void *edges, uint64_t count,
		      struct typed_node *node);
int cuDeviceGetGraphMemAttribute(int device, int attribute, uint64_t *value);
int cuDeviceGraphMemTrim(int device);
int cuStreamBeginCapture_v2(uint64_t stream, int mode);
int cuStreamEndCapture(uint64_t stream, uint64_t *graph);
int cuMemPoolTrimTo(uint64_t pool, uint64_t bytes);
int cuMemPoolDestroy(uint64_t pool);
int cuMemPoolGetAttribute(uint64_t pool, int attribute, uint64_t *value);

void hotstage_mark_stage_begin(uint64_t word, uint64_t request_hash, uint64_t tokens);
void hotstage_mark_stage_end(uint64_t word, uint64_t request_hash, uint64_t restored, uint64_t tokens);
