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

/* cudaMemcpy3DParms as far as it is read, and cudaDeviceProp. */
struct layers_parameters {
	uint64_t from_array;
	char from[56];
	uint64_t to_array;
	char to[56];
	size_t extent[3];
	int kind;
};

struct layers_properties {
	char name[256];
	char uuid[16];
	char rest[760];
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

int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, uint64_t stream);

int cudaMalloc(uint64_t *out, size_t bytes);
int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, uint64_t stream);
int cudaMemcpy(void *to, const void *from, size_t bytes, int kind);
int cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
		 int kind);
int cudaMemcpy2DArrayToArray(void *to, size_t to_x, size_t to_y, const void *from, size_t from_x, size_t from_y,
			     size_t width, size_t height, int kind);
int cudaMemcpy3D(const struct layers_parameters *parameters);
int cudaGetDeviceProperties(struct layers_properties *out, int device);
int cudaSetDevice(int device);
int __cudaGetKernel(uint64_t *out, const void *host_function);
int cudaLibraryGetKernel(uint64_t *out, uint64_t library, const char *name);
void __cudaRegisterFunction(void **handle, const char *host_function, char *device_function, const char *name,
			    int limit, void *thread, void *block, void *block_dim, void *grid_dim, int *warp);
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
