// SPDX-License-Identifier: Apache-2.0
/* The driver: it answers. */
#include "layers.h"

EXPORT int cuMemAlloc_v2(uint64_t *out, size_t bytes)
{
	*out = bytes;
	return bytes == LAYERS_TOO_MUCH ? 2 : 0;
}

EXPORT int cuCtxSetCurrent(uint64_t context) { return context ? 0 : 201; }
EXPORT int cuStreamSynchronize(uint64_t stream) { return stream == 77 ? 700 : 0; }

EXPORT int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
			  unsigned shared_bytes, uint64_t stream, void **arguments, void **extra)
{
	(void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared_bytes, (void)stream, (void)arguments;
	(void)extra;
	return function ? 0 : 1;
}

EXPORT int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, uint64_t stream)
{
	(void)to, (void)from, (void)stream;
	return bytes ? 0 : 1;
}

EXPORT int cuMemcpy2D_v2(const struct layers_shape *shape) { return shape ? 0 : 1; }
EXPORT int cuMemcpy3DAsync_v2(const struct layers_shape *shape, uint64_t stream) { return shape && !stream ? 0 : 1; }

EXPORT int cuMemcpyBatchAsync(uint64_t *to, uint64_t *from, size_t *sizes, size_t count, void *attributes,
			      size_t *indices, size_t attribute_count, size_t *failed, uint64_t stream)
{
	(void)to, (void)from, (void)attributes, (void)indices, (void)attribute_count, (void)failed, (void)stream;
	return sizes && count ? 0 : 1;
}
