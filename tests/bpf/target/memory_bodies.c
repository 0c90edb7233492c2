// SPDX-License-Identifier: Apache-2.0
/*
 * What the memory entries do. What was freed last is given out next, to whichever thread asks: the worst case for
 * who watches. Addresses are never read or written.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memory_space.h"

#define DEVICES 64
#define CONTEXT(device, number) (0xc0de0000ULL + (uint64_t)(device) * 0x1000 + (number))

struct memory_truth memory_truth;
__thread uint32_t memory_stage;
int memory_fails;

struct space pointers = {.base = 0x100000000000ULL}, handles = {.base = 0x1};
struct space arrays = {.base = 0x700000000000ULL};
static struct space reservations = {.base = 0x500000000000ULL};
static struct item *mappings[SLOTS]; /* by reservation: one item for each granule */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread uint64_t current;
static int primary_holds[DEVICES], contexts_made;

static uint64_t step_of(const struct space *space)
{
	return space == &handles ? 1 : SLOT_BYTES;
}

static int is_for_gpus(uint32_t kind)
{
	return kind == PHYSICAL || kind == ARRAY || kind <= POOL;
}

static void count(struct item *item, uint64_t sign)
{
	memory_truth.live_bytes[item->kind] += sign * item->bytes;
	memory_truth.live_count[item->kind] += sign;
	if (is_for_gpus(item->kind))
		memory_truth.stage_bytes[item->stage] += sign * item->bytes;
}

static void made(struct item *item)
{
	count(item, 1);
	memory_truth.allocated_bytes[item->kind] += item->bytes;
}

static void gone(struct item *item, int is_implicit)
{
	count(item, -1ULL);
	(is_implicit ? memory_truth.implicit_bytes : memory_truth.freed_bytes)[item->kind] += item->bytes;
	item->kind = 0;
}

struct item *item_at(struct space *space, uint64_t address)
{
	uint64_t slot = (address - space->base) / step_of(space);

	return address >= space->base && slot < space->used && space->items[slot].kind ? &space->items[slot] : NULL;
}

int allocate(struct space *space, uint64_t *out, uint64_t bytes, uint32_t kind)
{
	struct item *item;
	char byte;

	if (bytes == TOO_MUCH)
		return 2;
	if (bytes == BLOCK)
		return read(STDIN_FILENO, &byte, 1) == 1 ? 0 : 1;
	pthread_mutex_lock(&lock);
	uint32_t slot = space->free_count ? space->free[--space->free_count] : space->used++;

	if (slot >= SLOTS)
		abort();
	item = &space->items[slot];
	*item = (struct item){.bytes = bytes, .context = current, .holds = 1, .kind = kind, .stage = memory_stage};
	*out = space->base + slot * step_of(space);
	made(item);
	pthread_mutex_unlock(&lock);
	return 0;
}

static void give_slot_back(struct space *space, struct item *item)
{
	space->free[space->free_count++] = (uint32_t)(item - space->items);
}

int release(struct space *space, uint64_t address)
{
	struct item *item;
	int result = 1;

	if (!address)
		return 0;
	pthread_mutex_lock(&lock);
	item = item_at(space, address);
	if (item && !memory_fails) {
		result = 0;
		if (item->kind != GRAPH && !--item->holds) {
			gone(item, 0);
			give_slot_back(space, item);
		}
	}
	pthread_mutex_unlock(&lock);
	return result;
}

BODY(cuMemAlloc_v2)(uint64_t *out, uint64_t bytes) { return allocate(&pointers, out, bytes, DEVICE); }
BODY(cuMemAllocManaged)(uint64_t *out, uint64_t bytes) { return allocate(&pointers, out, bytes, MANAGED); }
BODY(cuMemAllocAsync)(uint64_t *out, uint64_t bytes, uint64_t stream)
{
	return allocate(&pointers, out, bytes, stream && stream == captured_stream ? GRAPH : POOL);
}

BODY(cuMemAllocFromPoolAsync)(uint64_t *out, uint64_t bytes) { return allocate(&pointers, out, bytes, POOL); }
BODY(cuMemHostAlloc)(uint64_t *out, uint64_t bytes) { return allocate(&pointers, out, bytes, HOST); }
BODY(cuMemFree_v2)(uint64_t address) { return release(&pointers, address); }
BODY(cuMemFreeAsync)(uint64_t address) { return release(&pointers, address); }
BODY(cuMemFreeHost)(uint64_t address) { return release(&pointers, address); }

BODY(cuMemAllocPitch_v2)(uint64_t *out, uint64_t *pitch, uint64_t width, uint64_t height)
{
	*pitch = (width + 511) / 512 * 512;
	return allocate(&pointers, out, *pitch * height, PITCHED);
}

BODY(cuMemCreate)(uint64_t *handle, uint64_t bytes) { return allocate(&handles, handle, bytes, PHYSICAL); }
BODY(cuMemRelease)(uint64_t handle) { return release(&handles, handle); }

BODY(cuMemAddressReserve)(uint64_t *out, uint64_t bytes)
{
	int result = allocate(&reservations, out, bytes, RESERVED);
	uint64_t slot = (*out - reservations.base) / SLOT_BYTES;

	if (!result && !mappings[slot])
		mappings[slot] = calloc(16, sizeof(struct item));
	return result;
}

BODY(cuMemAddressFree)(uint64_t address) { return release(&reservations, address); }

static struct item *mapping_at(uint64_t address)
{
	uint64_t at = address - reservations.base;

	return &mappings[at / SLOT_BYTES][at % SLOT_BYTES / GRANULE];
}

BODY(cuMemMap)(uint64_t address, uint64_t bytes, uint64_t offset, uint64_t handle)
{
	struct item *physical;

	pthread_mutex_lock(&lock);
	physical = item_at(&handles, handle);
	if (physical && !offset) {
		physical->holds++;
		*mapping_at(address) = (struct item){.bytes = bytes, .handle = handle, .kind = MAPPED};
		made(mapping_at(address));
	}
	pthread_mutex_unlock(&lock);
	return physical && !offset ? 0 : 1;
}

BODY(cuMemUnmap)(uint64_t address, uint64_t bytes)
{
	for (uint64_t at = address; at < address + bytes;) {
		struct item *mapping = mapping_at(at);
		uint64_t handle = mapping->handle, size = mapping->bytes;

		if (mapping->kind != MAPPED)
			return 1;
		pthread_mutex_lock(&lock);
		gone(mapping, 0);
		pthread_mutex_unlock(&lock);
		release(&handles, handle);
		at += size;
	}
	return 0;
}

BODY(cuMemRetainAllocationHandle)(uint64_t *handle, uint64_t address)
{
	*handle = mapping_at(address)->handle;
	pthread_mutex_lock(&lock);
	item_at(&handles, *handle)->holds++;
	pthread_mutex_unlock(&lock);
	return 0;
}

BODY(cuMemPoolGetAttribute)(uint64_t pool, int attribute, uint64_t *value)
{
	*value = pool * 1000 + (uint64_t)attribute;
	return 0;
}

BODY(cuDevicePrimaryCtxRetain)(uint64_t *context, int device)
{
	primary_holds[device]++;
	*context = CONTEXT(device, 0);
	return 0;
}

BODY(cuCtxCreate_v2)(uint64_t *context, unsigned flags, int device)
{
	*context = current = CONTEXT(device, (uint64_t)++contexts_made + flags);
	return 0;
}

BODY(cuCtxSetCurrent)(uint64_t context)
{
	current = context;
	return 0;
}

BODY(cuDeviceGetUuid_v2)(unsigned char *uuid, int device)
{
	memset(uuid, 0x40 + device, 16);
	return 0;
}

static void end_in(struct space *space, uint64_t context, int with_pools)
{
	for (uint32_t slot = 0; slot < space->used; slot++) {
		struct item *item = &space->items[slot];

		if (item->kind && item->context == context && (item->kind != POOL || with_pools)) {
			gone(item, 1);
			give_slot_back(space, item);
		}
	}
}

/* Pointers and arrays end with their context, those of pools with a reset of the device only. */
static int end(uint64_t context, int with_pools)
{
	pthread_mutex_lock(&lock);
	end_in(&pointers, context, with_pools);
	end_in(&arrays, context, with_pools);
	pthread_mutex_unlock(&lock);
	return 0;
}

BODY(cuCtxDestroy_v2)(uint64_t context) { return end(context, 0); }

BODY(cuDevicePrimaryCtxRelease_v2)(int device)
{
	return --primary_holds[device] ? 0 : end(CONTEXT(device, 0), 0);
}

BODY(cuDevicePrimaryCtxReset_v2)(int device)
{
	primary_holds[device] = 0;
	return end(CONTEXT(device, 0), 1);
}
