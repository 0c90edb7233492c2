// SPDX-License-Identifier: Apache-2.0
/*
 * Stands in for cuBLAS: a matrix product is one launch with a grid of tiles, about as the real one picks them (128 x 128;
 * 64 wide where there are few columns; slices of a long inner dimension, summed by a second kernel). The real one
 * carries kernels that no simulated device runs.
 */
#include <stddef.h>

#define SPLIT_FROM 2048
#define SLICES 4

struct dim3 {
	unsigned x, y, z;
};

int cudaLaunchKernel(const void *, struct dim3, struct dim3, void **, size_t, void *);

static const char large_tiles, small_tiles, sliced, sum_of_slices; /* kernels are addresses */

static unsigned tiles(long elements, long width)
{
	return (unsigned)((elements + width - 1) / width);
}

static int launch(const void *kernel, unsigned x, unsigned y, unsigned z)
{
	return cudaLaunchKernel(kernel, (struct dim3){x, y, z}, (struct dim3){128, 1, 1}, NULL, 0, NULL);
}

static int multiply(long m, long n, long k, long batch)
{
	long rows = m > n ? m : n, columns = m > n ? n : m;
	unsigned slices = k >= SPLIT_FROM ? SLICES : 1, z = (unsigned)batch;
	int error;

	if (columns > 64)
		return launch(&large_tiles, tiles(rows, 128), tiles(columns, 128), z);
	if (columns > 16)
		return launch(&small_tiles, tiles(rows, 64), 1, z);
	error = launch(&sliced, tiles(rows, 64), 1, slices * z);
	return error || slices == 1 ? error : launch(&sum_of_slices, tiles(rows * columns, 512), 1, z);
}

int cublasCreate_v2(void **handle)
{
	static char one;

	*handle = &one;
	return 0;
}

#define ANSWERS_ZERO(name, ...) \
	int name(__VA_ARGS__)   \
	{                       \
		return 0;       \
	}
ANSWERS_ZERO(cublasDestroy_v2, void)
ANSWERS_ZERO(cublasSetStream_v2, void)
ANSWERS_ZERO(cublasSetWorkspace_v2, void)
ANSWERS_ZERO(cublasSetMathMode, void)
ANSWERS_ZERO(cublasSetPointerMode_v2, void)

static int give_zero(int *out)
{
	*out = 0;
	return 0;
}

int cublasGetMathMode(void *handle, int *mode)
{
	(void)handle;
	return give_zero(mode);
}

int cublasGetPointerMode_v2(void *handle, int *mode)
{
	(void)handle;
	return give_zero(mode);
}

/* Of each product the sizes are read; what stands behind them differs by type, `count` last but for that. */
#define FIRST void *handle, int a, int b, int m, int n, int k
#define USED ((void)handle, (void)a, (void)b)

int cublasSgemm_v2(FIRST)
{
	USED;
	return multiply(m, n, k, 1);
}

int cublasGemmEx(FIRST)
{
	USED;
	return multiply(m, n, k, 1);
}

int cublasSgemmStridedBatched(FIRST, const void *alpha, const void *left, int lda, long long left_stride,
			      const void *right, int ldb, long long right_stride, const void *beta, void *out, int ldc,
			      long long out_stride, int count)
{
	USED, (void)alpha, (void)left, (void)lda, (void)left_stride, (void)right, (void)ldb, (void)right_stride;
	(void)beta, (void)out, (void)ldc, (void)out_stride;
	return multiply(m, n, k, count);
}

int cublasGemmStridedBatchedEx(FIRST, const void *alpha, const void *left, int left_type, int lda,
			       long long left_stride, const void *right, int right_type, int ldb,
			       long long right_stride, const void *beta, void *out, int out_type, int ldc,
			       long long out_stride, int count)
{
	USED, (void)alpha, (void)left, (void)left_type, (void)lda, (void)left_stride, (void)right, (void)right_type;
	(void)ldb, (void)right_stride, (void)beta, (void)out, (void)out_type, (void)ldc, (void)out_stride;
	return multiply(m, n, k, count);
}
