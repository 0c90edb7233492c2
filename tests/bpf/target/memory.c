// SPDX-License-Identifier: Apache-2.0
/*
 * A process that allocates and frees: commands from stdin, one a line, each answered with `ok`; `truth` is answered
 * with what the library knows before that. Addresses are named by a register, 0..63.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memory.h"

#define NO_WORD 0x5ffULL
#define REGISTERS 64
#define HELD 64 /* by a thread of random work */

static uint64_t registers[REGISTERS];
static const struct properties ON_DEVICE_1 = {.type = 1, .location_type = 1, .location_id = 1};

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* An array of some shape and format, which one is in the bytes of `of`: see memory_target.py. */
static int new_array(uint64_t *out, uint64_t of)
{
	static const uint32_t FORMATS[] = {1, 2, 3, 8, 9, 10, 16, 32, 0xc2, 0xc3, 0xc8, 0xcb};
	uint32_t format = of % 16 < 12 ? FORMATS[of % 16] : 0xb0; /* CU_AD_FORMAT_NV12: of an unknown size */
	uint32_t channels = 1U << (of >> 4 & 3) % 3, flags = (uint32_t)(of >> 8) & 0xff;
	uint64_t width = 1 + (of >> 16) % 1024, height = (of >> 26) % 256, depth = (of >> 34) % 16;
	struct array flat = {width, height, format, channels};
	struct array_3d array = {width, height, depth, format, channels, flags, 0};

	switch ((of >> 6) % 4) {
	case 0:
		return cuArrayCreate_v2(out, &flat);
	case 1:
		return cuArray3DCreate_v2(out, &array);
	}
	return cuMipmappedArrayCreate(out, &array, (unsigned)(of >> 38) % 16);
}

static int new_node(uint64_t *out, uint64_t bytes)
{
	struct typed_node typed = {.type = 10, .made.bytes = bytes};
	struct node bare = {.bytes = bytes};
	uint64_t handle;
	int result = bytes % 3 == 0 ? cuGraphAddMemAllocNode(&handle, 1, 0, 0, &bare) :
		     bytes % 3 == 1 ? cuGraphAddNode(&handle, 1, 0, 0, &typed) :
				      cuGraphAddNode_v2(&handle, 1, 0, 0, 0, &typed);

	*out = bytes % 3 ? typed.made.address : bare.address;
	return result;
}

static int new_elsewhere(uint64_t *out, uint32_t kind, uint64_t bytes)
{
	struct sized sized = {.bytes = bytes};

	switch (kind) {
	case SHARED:
		return bytes % 2 ? cuMemPoolImportPointer(out, 7, &sized) :
				   cuIpcOpenMemHandle_v2(out, (struct shared_handle){{bytes}}, 1);
	case EXTERNAL:
		return cuExternalMemoryGetMappedBuffer(out, 1, &sized);
	case MULTICAST:
		return cuMulticastCreate(out, &sized);
	}
	exit(3);
}

static int new_memory(uint64_t *out, uint32_t kind, uint64_t bytes)
{
	uint64_t pitch;

	switch (kind) {
	case DEVICE:
		return cuMemAlloc_v2(out, bytes);
	case PITCHED:
		return cuMemAllocPitch_v2(out, &pitch, bytes, 3, 4);
	case MANAGED:
		return cuMemAllocManaged(out, bytes, 0);
	case POOL:
		return bytes % 2 ? cuMemAllocAsync(out, bytes, 0) : cuMemAllocFromPoolAsync(out, bytes, 7, 0);
	case HOST:
		return cuMemHostAlloc(out, bytes, 0);
	case PHYSICAL:
		return cuMemCreate(out, bytes, &ON_DEVICE_1, 0);
	case RESERVED:
		return cuMemAddressReserve(out, bytes, 0, 0, 0);
	case ARRAY:
		return new_array(out, bytes);
	case GRAPH:
		return new_node(out, bytes);
	}
	return new_elsewhere(out, kind, bytes);
}

static int free_memory(uint64_t address, uint32_t kind)
{
	switch (kind) {
	case POOL:
		return cuMemFreeAsync(address, 0);
	case HOST:
		return cuMemFreeHost(address);
	case PHYSICAL:
	case MULTICAST:
		return cuMemRelease(address);
	case ARRAY:
		return address >> 30 & 1 ? cuArrayDestroy(address) : cuMipmappedArrayDestroy(address);
	case SHARED:
		return cuIpcCloseMemHandle(address);
	case RESERVED:
		return cuMemAddressFree(address, 0);
	}
	return cuMemFree_v2(address);
}

static void enter_stage(uint32_t stage)
{
	memory_stage = stage;
	hotstage_mark_stage_begin(stage | 1 << 8, 0, 0);
}

struct random_work {
	uint64_t seed, steps;
};

/* Reserve, create and map some granules, release some handles early, unmap all at once or one by one. */
static void expand_and_shrink(uint64_t *state)
{
	uint64_t address, handles[4], count = 1 + next_random(state) % 4, is_early = next_random(state) % 2;

	cuMemAddressReserve(&address, count * GRANULE, 0, 0, 0);
	for (uint64_t i = 0; i < count; i++) {
		cuMemCreate(&handles[i], GRANULE, &ON_DEVICE_1, 0);
		cuMemMap(address + i * GRANULE, GRANULE, 0, handles[i], 0);
		if (is_early)
			cuMemRelease(handles[i]);
	}
	if (next_random(state) % 2)
		cuMemUnmap(address, count * GRANULE);
	else
		for (uint64_t i = 0; i < count; i++)
			cuMemUnmap(address + i * GRANULE, GRANULE);
	for (uint64_t i = 0; i < count && !is_early; i++)
		cuMemRelease(handles[i]);
	cuMemAddressFree(address, count * GRANULE);
}

static void *work(void *argument)
{
	static const uint32_t KINDS_MADE[] = {DEVICE, PITCHED, MANAGED, POOL, HOST, PHYSICAL, RESERVED, ARRAY};
	const struct random_work *job = argument;
	uint64_t state = job->seed, addresses[HELD] = {}, ignored;
	uint32_t kinds[HELD] = {}, at;

	for (uint64_t step = 0; step < job->steps; step++) {
		at = next_random(&state) % HELD;
		if (next_random(&state) % 16 == 0)
			enter_stage(1 + next_random(&state) % 12);
		if (kinds[at]) {
			free_memory(addresses[at], kinds[at]);
			kinds[at] = 0;
		} else if (next_random(&state) % 32 == 0) {
			cuMemAlloc_v2(&ignored, TOO_MUCH);
			free_memory(0, DEVICE);
		} else if (next_random(&state) % 16 == 0) {
			expand_and_shrink(&state);
		} else {
			kinds[at] = KINDS_MADE[next_random(&state) % 8];
			new_memory(&addresses[at], kinds[at],
				   kinds[at] == ARRAY ? next_random(&state) : 1 + next_random(&state) % 100000);
		}
	}
	return 0;
}

/* The last of the threads' allocations stay. */
static void random_threads(uint64_t seed, uint64_t count, uint64_t steps)
{
	pthread_t running[16];
	struct random_work jobs[16];

	for (uint64_t i = 0; i < count && i < 16; i++) {
		jobs[i] = (struct random_work){seed * 16 + i + 1, steps};
		pthread_create(&running[i], 0, work, &jobs[i]);
	}
	for (uint64_t i = 0; i < count && i < 16; i++)
		pthread_join(running[i], 0);
}

/* An allocation that becomes a node. */
static void capture(uint64_t *address, uint64_t bytes, uint64_t is_freed)
{
	uint64_t graph;

	cuStreamBeginCapture_v2(0x57, 0);
	cuMemAllocAsync(address, bytes, 0x57);
	if (is_freed)
		cuMemFreeAsync(*address, 0x57);
	cuStreamEndCapture(0x57, &graph);
}

struct one_free {
	uint64_t address;
	uint32_t kind;
};

static void *free_one(void *argument)
{
	const struct one_free *job = argument;

	free_memory(job->address, job->kind);
	return 0;
}

static void free_elsewhere(uint64_t address, uint32_t kind)
{
	struct one_free job = {address, kind};
	pthread_t other;

	pthread_create(&other, 0, free_one, &job);
	pthread_join(other, 0);
}

/* A child that frees what its parent has, allocates and leaves with it. */
static void fork_once(uint64_t address, uint64_t bytes)
{
	uint64_t own;
	pid_t child = fork();

	if (!child) {
		cuMemAlloc_v2(&own, bytes);
		cuMemFree_v2(address);
		_exit(0);
	}
	waitpid(child, 0, 0);
}

static void tell_truth(void)
{
	const uint64_t *figures = (const uint64_t *)&memory_truth;

	for (size_t i = 0; i < sizeof(memory_truth) / sizeof(*figures); i++)
		printf("%llu ", (unsigned long long)figures[i]);
	putchar('\n');
}

static void obey(const char *verb, uint64_t a, uint64_t b, uint64_t c)
{
	uint64_t *address = &registers[a % REGISTERS];

	if (!strcmp(verb, "random"))
		random_threads(a, b, c);
	else if (!strcmp(verb, "new")) /* register, kind, bytes */
		new_memory(address, (uint32_t)b, c);
	else if (!strcmp(verb, "free")) /* register, kind */
		free_memory(*address, (uint32_t)b);
	else if (!strcmp(verb, "elsewhere")) /* register, kind: by another thread */
		free_elsewhere(*address, (uint32_t)b);
	else if (!strcmp(verb, "foreign")) /* an address that nothing is at */
		cuMemFree_v2(0xf0000000000ULL + a);
	else if (!strcmp(verb, "fork")) /* register, bytes */
		fork_once(*address, b);
	else if (!strcmp(verb, "map")) /* register of the reservation, granule, register of the handle */
		cuMemMap(*address + b * GRANULE, GRANULE, 0, registers[c], 0);
	else if (!strcmp(verb, "unmap")) /* register, granule, granules */
		cuMemUnmap(*address + b * GRANULE, c * GRANULE);
	else if (!strcmp(verb, "retain")) /* register of the handle, register of the reservation */
		cuMemRetainAllocationHandle(address, registers[b]);
	else if (!strcmp(verb, "flood")) /* allocations, bytes */
		for (uint64_t i = 0; i < a; i++)
			cuMemAlloc_v2(&registers[0], b);
	else if (!strcmp(verb, "stage"))
		enter_stage((uint32_t)a);
	else if (!strcmp(verb, "fail"))
		memory_fails = (int)a;
	else if (!strcmp(verb, "capture")) /* register, bytes, whether it is freed in the graph */
		capture(address, b, c);
	else if (!strcmp(verb, "trim")) /* pool */
		cuMemPoolTrimTo(a, 0);
	else if (!strcmp(verb, "destroy_pool"))
		cuMemPoolDestroy(a);
	else if (!strcmp(verb, "graphs")) { /* device, attribute; none: trim */
		if (b < 4)
			cuDeviceGetGraphMemAttribute((int)a, (int)b, &(uint64_t){0});
		else
			cuDeviceGraphMemTrim((int)a);
	} else if (!strcmp(verb, "node")) /* one that allocates nothing */
		cuGraphAddNode(address, 1, 0, 0, &(struct typed_node){.type = 2, .made.bytes = b});
	else if (!strcmp(verb, "pool")) /* pool, attribute */
		cuMemPoolGetAttribute(a, (int)b, &(uint64_t){0});
	else if (!strcmp(verb, "uuid")) /* device */
		cuDeviceGetUuid_v2((unsigned char[16]){0}, (int)a);
	else if (!strcmp(verb, "primary")) {
		cuDevicePrimaryCtxRetain(&registers[63], (int)a);
		cuCtxSetCurrent(registers[63]);
	} else if (!strcmp(verb, "context")) { /* register, device */
		cuCtxCreate_v2(address, 0, (int)b);
		cuCtxSetCurrent(*address);
	} else if (!strcmp(verb, "destroy"))
		cuCtxDestroy_v2(*address);
	else if (!strcmp(verb, "reset"))
		cuDevicePrimaryCtxReset_v2((int)a);
	else if (!strcmp(verb, "release"))
		cuDevicePrimaryCtxRelease_v2((int)a);
	else if (!strcmp(verb, "truth"))
		tell_truth();
	else
		exit(3);
}

int main(void)
{
	char line[640], verb[32];
	unsigned long long a, b, c;

	setvbuf(stdin, 0, _IONBF, 0);
	setvbuf(stdout, 0, _IOLBF, 0);
	puts("ok");
	while (fgets(line, sizeof(line), stdin)) {
		a = b = c = 0;
		if (sscanf(line, "%31s %llu %llu %llu", verb, &a, &b, &c) < 1)
			exit(3);
		obey(verb, a, b, c);
		puts("ok");
	}
	return 0;
}
