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
