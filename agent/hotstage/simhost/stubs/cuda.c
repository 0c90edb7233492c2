// SPDX-License-Identifier: Apache-2.0
/* Simulated libcuda: versions, errors, devices, and the answer of cuGetProcAddress. */
#define _GNU_SOURCE
#include "cuda_sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DRIVER_VERSION 12040

int initialised;

static pthread_mutex_t setup_lock = PTHREAD_MUTEX_INITIALIZER;
static int visible[SIM_DEVICES]; /* ordinal of this process -> index in the page */
static int visible_count;

uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

static int index_of(const char *name, size_t length)
{
	char *end;
	long index;

	for (uint32_t i = 0; i < page->device_count; i++)
		if (length > 4 && !strncmp(page->devices[i].uuid, name, length))
			return (int)i;
	index = strtol(name, &end, 10);
	return end == name + length && index >= 0 && index < (long)page->device_count ? (int)index : -1;
}

/* CUDA_VISIBLE_DEVICES: ordinals or prefixes of UUIDs; the first bad one ends the list. */
static void read_visible(void)
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");

	if (!list) {
		for (uint32_t i = 0; i < page->device_count; i++)
			visible[visible_count++] = (int)i;
		return;
	}
	while (*list && visible_count < SIM_DEVICES) {
		size_t length = strcspn(list, ",");
		int index = index_of(list, length);

		if (index < 0)
			return;
		visible[visible_count++] = index;
		list += length + (list[length] == ',');
	}
}

CUresult device_at(CUdevice ordinal, struct sim_device **device)
{
	if (!initialised)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (ordinal < 0 || ordinal >= visible_count)
		return CUDA_ERROR_INVALID_DEVICE;
	*device = &page->devices[visible[ordinal]];
	return CUDA_SUCCESS;
}

BODY(cuInit)(unsigned flags)
{
	MADE(cuInit);
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&setup_lock);
	if (!initialised)
		read_visible();
	initialised = 1;
	pthread_mutex_unlock(&setup_lock);
	return CUDA_SUCCESS;
}

BODY(cuDriverGetVersion)(int *version)
{
	MADE(cuDriverGetVersion);
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = DRIVER_VERSION;
	return CUDA_SUCCESS;
}

static const struct {
	CUresult code;
	const char *name, *text;
} ERRORS[] = {
	{CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
	{CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
	{CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	{CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
	{CUDA_ERROR_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
	{CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
	{CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
	{CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
	{CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
	{CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
};

static CUresult describe(CUresult code, const char **out, int wants_name)
{
	*out = NULL;
	for (size_t i = 0; i < sizeof(ERRORS) / sizeof(*ERRORS); i++)
		if (ERRORS[i].code == code)
			*out = wants_name ? ERRORS[i].name : ERRORS[i].text;
	return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

BODY(cuGetErrorString)(CUresult code, const char **text)
{
	MADE(cuGetErrorString);
	return describe(code, text, 0);
}

BODY(cuGetErrorName)(CUresult code, const char **name)
{
	MADE(cuGetErrorName);
	return describe(code, name, 1);
}

#define X(name) extern char name[];
CUDA_FUNCTIONS(X)
#undef X

static void *exported(const char *symbol, const char *suffix)
{
	static const struct {
		const char *name;
		void *address;
	} TABLE[] = {
#define X(name) {#name, name},
		CUDA_FUNCTIONS(X)
#undef X
	};
	char wanted[64];

	snprintf(wanted, sizeof(wanted), "%s%s", symbol, suffix);
	for (size_t i = 0; i < FUNCTION_COUNT; i++)
		if (!strcmp(TABLE[i].name, wanted))
			return TABLE[i].address;
	return NULL;
}

/* The newest variant of the name; flag 2 asks for the per-thread-stream one. Always an exported entry point. */
static CUresult find_function(const char *symbol, void **function, uint64_t flags)
{
	static const char *const PER_THREAD[] = {"_v2_ptsz", "_ptsz", "_v2", ""};
	const char *const *suffix = flags & 2 ? PER_THREAD : PER_THREAD + 2;

	if (!symbol || !function)
		return CUDA_ERROR_INVALID_VALUE;
	*function = NULL;
	for (; suffix < PER_THREAD + 4 && !*function; suffix++)
		*function = exported(symbol, *suffix);
	return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

BODY(cuGetProcAddress)(const char *symbol, void **function, int version, uint64_t flags)
{
	(void)version;
	MADE(cuGetProcAddress);
	return find_function(symbol, function, flags);
}

BODY(cuGetProcAddress_v2)(const char *symbol, void **function, int version, uint64_t flags, int *status)
{
	CUresult result;

	(void)version;
	MADE(cuGetProcAddress_v2);
	result = find_function(symbol, function, flags);
	if (status)
		*status = result == CUDA_ERROR_NOT_FOUND; /* 1: symbol not found */
	return result;
}

BODY(cuDeviceGetCount)(int *count)
{
	MADE(cuDeviceGetCount);
	if (!initialised)
		return CUDA_ERROR_NOT_INITIALIZED;
	*count = visible_count;
	return CUDA_SUCCESS;
}

BODY(cuDeviceGet)(CUdevice *device, int ordinal)
{
	struct sim_device *unused;
	CUresult result;

	MADE(cuDeviceGet);
	result = device_at(ordinal, &unused);
	if (!result)
		*device = ordinal;
	return result;
}

BODY(cuDeviceGetName)(char *name, int size, CUdevice ordinal)
{
	struct sim_device *device;
	CUresult result;

	MADE(cuDeviceGetName);
	result = device_at(ordinal, &device);
	if (!result)
		snprintf(name, (size_t)size, "%s", device->name);
	return result;
}

static CUresult read_uuid(unsigned char *uuid, CUdevice ordinal)
{
	struct sim_device *device;
	CUresult result = device_at(ordinal, &device);
	const char *text;

	if (result)
		return result;
	text = device->uuid + 4; /* after "GPU-" */
	for (int i = 0; i < 16; i++) {
		while (*text == '-')
			text++;
		if (sscanf(text, "%2hhx", &uuid[i]) != 1)
			return CUDA_ERROR_INVALID_VALUE;
		text += 2;
	}
	return CUDA_SUCCESS;
}

BODY(cuDeviceGetUuid)(unsigned char *uuid, CUdevice ordinal)
{
	MADE(cuDeviceGetUuid);
	return read_uuid(uuid, ordinal);
}

BODY(cuDeviceGetUuid_v2)(unsigned char *uuid, CUdevice ordinal)
{
	MADE(cuDeviceGetUuid_v2);
	return read_uuid(uuid, ordinal);
}

BODY(cuDeviceGetPCIBusId)(char *bus_id, int size, CUdevice ordinal)
{
	struct sim_device *device;
	CUresult result;

	MADE(cuDeviceGetPCIBusId);
	result = device_at(ordinal, &device);
	if (!result) /* the driver writes a domain of four digits, NVML one of eight */
		snprintf(bus_id, (size_t)size, "%s", device->pci_bus_id + 4);
	return result;
}

BODY(cuDeviceGetAttribute)(int *value, int attribute, CUdevice ordinal)
{
	struct sim_device *device;
	CUresult result;

	MADE(cuDeviceGetAttribute);
	result = device_at(ordinal, &device);
	if (!result) /* 16: multiprocessors, 75 and 76: compute capability; the rest is unknown to the simulation */
		*value = attribute == 16 ? 108 : attribute == 75 ? 8 : 0;
	return result;
}

BODY(cuDeviceTotalMem_v2)(size_t *bytes, CUdevice ordinal)
{
	struct sim_device *device;
	CUresult result;

	MADE(cuDeviceTotalMem_v2);
	result = device_at(ordinal, &device);
	if (!result)
		*bytes = device->total_bytes;
	return result;
}
