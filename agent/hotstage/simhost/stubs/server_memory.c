// SPDX-License-Identifier: Apache-2.0
/*
 * The simulated server's memory when a fault fills and cuts it: a cache that takes almost all, and pieces that keep
 * pages of 2 MiB from being joined, as allocations of many sizes leave them. Ordinary calls to libcuda.
 */
#include <stdint.h>
#include <stdlib.h>

typedef int CUresult;
typedef struct context *CUcontext;
typedef uint64_t CUdeviceptr;

CUresult cuDevicePrimaryCtxRetain(CUcontext *, int);
CUresult cuCtxSetCurrent(CUcontext);
CUresult cuMemGetInfo_v2(size_t *, size_t *);
CUresult cuMemAlloc_v2(CUdeviceptr *, size_t);
CUresult cuMemFree_v2(CUdeviceptr);

#define EXPORT __attribute__((visibility("default")))
#define PAGE_BYTES (2ull << 20) /* as the driver maps memory */
#define PIECE_BYTES (64ull << 10)
#define TRY(call)                           \
	do {                                \
		CUresult result_ = (call);  \
		if (result_)                \
			return result_;     \
	} while (0)

static CUdeviceptr cache, *pieces;
static size_t pages;

static CUresult enter(int device)
{
	CUcontext context;

	TRY(cuDevicePrimaryCtxRetain(&context, device));
	return cuCtxSetCurrent(context);
}

/* A piece and the rest of its page in turn; then the rests are freed. */
static CUresult cut(void)
{
	CUdeviceptr *rests = calloc(pages, sizeof(*rests));
	CUresult result = rests ? 0 : 2;

	for (size_t i = 0; i < pages && !result; i++) {
		result = cuMemAlloc_v2(&pieces[i], PIECE_BYTES);
		if (!result)
			result = cuMemAlloc_v2(&rests[i], PAGE_BYTES - PIECE_BYTES);
	}
	for (size_t i = 0; rests && i < pages; i++)
		if (rests[i])
			cuMemFree_v2(rests[i]);
	free(rests);
	return result;
}

/* Leaves `leave` bytes free in one piece, and `cut_bytes` in pages that hold a piece each. One at a time. */
EXPORT CUresult gpu_squeeze(int device, uint64_t leave, uint64_t cut_bytes)
{
	size_t free_bytes, total;

	TRY(enter(device));
	TRY(cuMemGetInfo_v2(&free_bytes, &total));
	if (pieces || free_bytes <= leave + cut_bytes)
		return 2;
	TRY(cuMemAlloc_v2(&cache, free_bytes - leave - cut_bytes));
	pages = cut_bytes / PAGE_BYTES;
	pieces = calloc(pages + 1, sizeof(*pieces));
	return pieces ? cut() : 2;
}

/* Gives all of it back. */
EXPORT CUresult gpu_relieve(int device)
{
	TRY(enter(device));
	for (size_t i = 0; pieces && i < pages; i++)
		if (pieces[i])
			TRY(cuMemFree_v2(pieces[i]));
	free(pieces);
	pieces = NULL;
	if (cache)
		TRY(cuMemFree_v2(cache));
	cache = 0;
	return 0;
}
