// SPDX-License-Identifier: Apache-2.0
/* The runtime: it asks the driver, or not, as its arguments say. */
#include "layers.h"

EXPORT int cudaStreamSynchronize(uint64_t stream) { return stream == 1 ? 0 : cuStreamSynchronize(stream); }

EXPORT int cudaMalloc(uint64_t *out, size_t bytes)
{
	switch (bytes) {
	case LAYERS_PURE:
		return 0;
	case LAYERS_REFUSED:
		return 35;
	case LAYERS_REJECTED:
		return cuCtxSetCurrent(1) ? 700 : 1;
	case LAYERS_NESTED:
		return cudaMalloc(out, 4096);
	}
	return cuMemAlloc_v2(out, bytes);
}

EXPORT int cudaLaunchKernel(void *function, struct layers_dim3 grid, struct layers_dim3 block, void **arguments,
			    size_t shared_bytes, uint64_t stream)
{
	if (!stream) /* as if it stood on a driver that nobody sees */
		return function ? 0 : 98;
	return cuLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z, (unsigned)shared_bytes, stream,
			      arguments, 0);
}

/* A stream of 1 is answered without the driver. */
EXPORT int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, uint64_t stream)
{
	(void)kind;
	return stream == 1 ? 0 : cuMemcpyAsync((uint64_t)to, (uint64_t)from, bytes, stream);
}

EXPORT int cudaMemcpy(void *to, const void *from, size_t bytes, int kind)
{
	(void)to, (void)from;
	return bytes && kind >= 0 ? 0 : 1;
}

EXPORT int cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
			int kind)
{
	(void)to, (void)to_pitch, (void)from, (void)from_pitch, (void)height, (void)kind;
	return width ? 0 : 1;
}

EXPORT int cudaMemcpy2DArrayToArray(void *to, size_t to_x, size_t to_y, const void *from, size_t from_x, size_t from_y,
				    size_t width, size_t height, int kind)
{
	(void)to, (void)to_x, (void)to_y, (void)from, (void)from_x, (void)from_y, (void)height, (void)kind;
	return width ? 0 : 1;
}

EXPORT int cudaMemcpy3D(const struct layers_parameters *parameters) { return parameters ? 0 : 1; }

EXPORT int cudaGetDeviceProperties(struct layers_properties *out, int device)
{
	for (int i = 0; i < 16; i++)
		out->uuid[i] = (char)(0x10 * device + i);
	return 0;
}

EXPORT int cudaSetDevice(int device) { return device < 8 ? 0 : 101; }

EXPORT int __cudaGetKernel(uint64_t *out, const void *host_function)
{
	*out = (uint64_t)host_function ^ 0x5500000000000000;
	return 0;
}

EXPORT int cudaLibraryGetKernel(uint64_t *out, uint64_t library, const char *name)
{
	*out = library + (uint64_t)name[0];
	return 0;
}

EXPORT void __cudaRegisterFunction(void **handle, const char *host_function, char *device_function, const char *name,
				   int limit, void *thread, void *block, void *block_dim, void *grid_dim, int *warp)
{
	(void)handle, (void)host_function, (void)device_function, (void)name, (void)limit, (void)thread, (void)block;
	(void)block_dim, (void)grid_dim, (void)warp;
}
