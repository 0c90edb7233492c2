// SPDX-License-Identifier: Apache-2.0
/* A driver, a runtime on it and NCCL's front, as far as the tests of layers need them. */
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default"), noinline))

/* What the size asked of cudaMalloc makes of it. */
#define LAYERS_PURE 0x1001	 /* answered without the driver */
#define LAYERS_REFUSED 0x1002	 /* refused without the driver: 35 */
#define LAYERS_REJECTED 0x1003 /* refused by the runtime after the driver's help: 1 */
#define LAYERS_TOO_MUCH 0x1004 /* refused by the driver: 2 */
#define LAYERS_NESTED 0x1005	 /* by another call of the runtime, which asks the driver */

struct layers_dim3 {
	unsigned x, y, z;
};

struct layers_id {
	char bytes[128];
};

struct layers_shape {
	char before[112];
	size_t width_2d, height_2d;
	char between[48];
	size_t width_3d, height_3d, depth_3d;
};

int cuMemAlloc_v2(uint64_t *out, size_t bytes);
int cuCtxSetCurrent(uint64_t context);
int cuStreamSynchronize(uint64_t stream);
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
		   unsigned shared_bytes, uint64_t stream, void **arguments, void **extra);
int cuMemcpy2D_v2(const struct layers_shape *shape);
int cuMemcpy3DAsync_v2(const struct layers_shape *shape, uint64_t stream);
int cuMemcpyBatchAsync(uint64_t *to, uint64_t *from, size_t *sizes, size_t count, void *attributes, size_t *indices,
		       size_t attribute_count, size_t *failed, uint64_t stream);

int cudaMalloc(uint64_t *out, size_t bytes);
int cudaStreamSynchronize(uint64_t stream);
int cudaLaunchKernel(void *function, struct layers_dim3 grid, struct layers_dim3 block, void **arguments,
		     size_t shared_bytes, uint64_t stream);

int ncclCommInitRank(uint64_t *out, int ranks, struct layers_id id, int rank);
int ncclCommInitAll(uint64_t *out, int devices, const int *list);
int ncclCommSplit(uint64_t parent, int color, int key, uint64_t *out, void *config);
int ncclCommInitRankScalable(uint64_t *out, int ranks, int rank, int ids, struct layers_id *id, void *config);
int ncclCommShrink(uint64_t parent, int *left_out, int count, uint64_t *out, void *config, int flags);
int ncclCommGrow(uint64_t parent, int ranks, const struct layers_id *id, int rank, uint64_t *out, void *config);
int ncclCommCount(uint64_t communicator, int *count);
int ncclCommUserRank(uint64_t communicator, int *rank);
int ncclCommCuDevice(uint64_t communicator, int *device);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclGroupSimulateEnd(void *estimate);
int ncclCommDestroy(uint64_t communicator);
int ncclAllReduce(const void *from, void *to, size_t count, int type, int operation, uint64_t communicator,
		  uint64_t stream);
int ncclReduce(const void *from, void *to, size_t count, int type, int operation, int root, uint64_t communicator,
	       uint64_t stream);
