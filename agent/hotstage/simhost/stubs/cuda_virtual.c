// SPDX-License-Identifier: Apache-2.0
/*
 * Simulated libcuda: physical memory apart from addresses (cuMemCreate, cuMemMap), as expandable segments and sleep
 * modes use it. A handle is a block of the allocator, so what is created counts as used; an address range is a number
 * that nothing else uses.
 */
#include "cuda_sim.h"

#define FIRST_ADDRESS 0x600000000000ULL
#define ADDRESS_STEP (2ULL << 20)

static uint64_t next_address = FIRST_ADDRESS;

static CUresult checked(uint64_t value)
{
	if (!initialised)
		return CUDA_ERROR_NOT_INITIALIZED;
	return value ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

BODY(cuMemCreate)(uint64_t *handle, size_t bytes, const void *properties, uint64_t flags)
{
	(void)properties, (void)flags;
	MADE(cuMemCreate);
	return memory_allocate(handle, bytes);
}

BODY(cuMemRelease)(uint64_t handle)
{
	MADE(cuMemRelease);
	return memory_release(handle);
}

BODY(cuMemAddressReserve)(CUdeviceptr *out, size_t bytes, size_t alignment, CUdeviceptr wanted, uint64_t flags)
{
	uint64_t step = (bytes + ADDRESS_STEP - 1) / ADDRESS_STEP * ADDRESS_STEP;
	CUresult result;

	(void)alignment, (void)wanted, (void)flags;
	MADE(cuMemAddressReserve);
	result = checked(bytes);
	if (!result)
		*out = __atomic_fetch_add(&next_address, step, __ATOMIC_RELAXED);
	return result;
}

BODY(cuMemAddressFree)(CUdeviceptr address, size_t bytes)
{
	(void)bytes;
	MADE(cuMemAddressFree);
	return checked(address);
}

BODY(cuMemMap)(CUdeviceptr address, size_t bytes, size_t offset, uint64_t handle, uint64_t flags)
{
	(void)bytes, (void)offset, (void)flags;
	MADE(cuMemMap);
	return checked(address ? handle : 0);
}

BODY(cuMemUnmap)(CUdeviceptr address, size_t bytes)
{
	(void)bytes;
	MADE(cuMemUnmap);
	return checked(address);
}

/* Who may use the addresses: nobody ever touches them. */
BODY(cuMemSetAccess)(CUdeviceptr address, size_t bytes, const void *access, size_t count)
{
	(void)bytes, (void)access, (void)count;
	MADE(cuMemSetAccess);
	return checked(address);
}
