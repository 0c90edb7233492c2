// SPDX-License-Identifier: Apache-2.0
/*
 * Simulated libnvidia-ml: what nvidia-ml-py needs, answered from the page that the simulated host writes. Memory and
 * processes are what the servers' allocators say; load, power, clocks and energy are the host's model.
 *
 * What a simulation cannot know (GPM, NVLink, MIG, PCIe counters) is "not supported", never a number.
 * Here: life cycle, errors, which devices there are.
 */
#define _GNU_SOURCE
#include "nvml_sim.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct nvml_pci_info {
	char bus_id_legacy[16];
	uint32_t domain, bus, device, device_id, subsystem_id;
	char bus_id[32];
};

struct sim_page *nvml_page;
int nvml_users;

void nvml_pause(uint64_t ns)
{
	const struct timespec time = {(time_t)(ns / 1000000000ULL), (long)(ns % 1000000000ULL)};

	if (ns)
		nanosleep(&time, NULL);
}

nvmlReturn_t nvml_enter(const struct sim_device *device, uint32_t feature)
{
	if (!nvml_users)
		return NVML_ERROR_UNINITIALIZED;
	nvml_pause(nvml_page->nvml_delay_ns);
	if (device < nvml_page->devices || device >= nvml_page->devices + nvml_page->device_count)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (device->lost)
		return NVML_ERROR_GPU_IS_LOST;
	return device->unsupported & feature ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

uint32_t nvml_index_of(const struct sim_device *device)
{
	return (uint32_t)(device - nvml_page->devices);
}

EXPORT(nvmlInitWithFlags)(unsigned flags)
{
	(void)flags;
	if (!nvml_page)
		nvml_page = sim_page_open();
	nvml_users++;
	return NVML_SUCCESS;
}

EXPORT(nvmlInit_v2)(void)
{
	return nvmlInitWithFlags(0);
}

EXPORT(nvmlShutdown)(void)
{
	if (!nvml_users)
		return NVML_ERROR_UNINITIALIZED;
	nvml_users--;
	return NVML_SUCCESS;
}

__attribute__((visibility("default"))) const char *nvmlErrorString(nvmlReturn_t result)
{
	static const struct {
		nvmlReturn_t code;
		const char *text;
	} TEXTS[] = {
		{NVML_SUCCESS, "Success"},
		{NVML_ERROR_UNINITIALIZED, "Uninitialized"},
		{NVML_ERROR_INVALID_ARGUMENT, "Invalid Argument"},
		{NVML_ERROR_NOT_SUPPORTED, "Not Supported"},
		{NVML_ERROR_NOT_FOUND, "Not Found"},
		{NVML_ERROR_INSUFFICIENT_SIZE, "Insufficient Size"},
		{NVML_ERROR_TIMEOUT, "Timeout"},
		{NVML_ERROR_GPU_IS_LOST, "GPU is lost"},
	};

	for (size_t i = 0; i < sizeof(TEXTS) / sizeof(*TEXTS); i++)
		if (TEXTS[i].code == result)
			return TEXTS[i].text;
	return "Unknown Error";
}

EXPORT(nvmlSystemGetDriverVersion)(char *version, unsigned size)
{
	if (!nvml_users)
		return NVML_ERROR_UNINITIALIZED;
	snprintf(version, size, "550.00-simulated");
	return NVML_SUCCESS;
}

EXPORT(nvmlSystemGetNVMLVersion)(char *version, unsigned size)
{
	if (!nvml_users)
		return NVML_ERROR_UNINITIALIZED;
	snprintf(version, size, "12.550.00-simulated");
	return NVML_SUCCESS;
}

EXPORT(nvmlSystemGetCudaDriverVersion_v2)(int *version)
{
	if (!nvml_users)
		return NVML_ERROR_UNINITIALIZED;
	*version = 12040;
	return NVML_SUCCESS;
}

EXPORT(nvmlDeviceGetCount_v2)(unsigned *count)
{
	if (!nvml_users)
		return NVML_ERROR_UNINITIALIZED;
	*count = nvml_page->device_count;
	return NVML_SUCCESS;
}

EXPORT(nvmlDeviceGetHandleByIndex_v2)(unsigned index, nvmlDevice_t *device)
{
	if (!nvml_users)
		return NVML_ERROR_UNINITIALIZED;
	if (index >= nvml_page->device_count)
		return NVML_ERROR_INVALID_ARGUMENT;
	*device = &nvml_page->devices[index];
	return nvml_enter(*device, 0);
}

static nvmlReturn_t find_device(const char *wanted, size_t field, nvmlDevice_t *device)
{
	if (!nvml_users)
		return NVML_ERROR_UNINITIALIZED;
	for (uint32_t i = 0; i < nvml_page->device_count; i++) {
		const char *text = (const char *)&nvml_page->devices[i] + field;
		/* A bus id is written with a domain of four or of eight digits. */
		int is_short = field == offsetof(struct sim_device, pci_bus_id) && !strcasecmp(text + 4, wanted);

		if (!strcasecmp(text, wanted) || is_short) {
			*device = &nvml_page->devices[i];
			return nvml_enter(*device, 0);
		}
	}
	return NVML_ERROR_NOT_FOUND;
}

EXPORT(nvmlDeviceGetHandleByUUID)(const char *uuid, nvmlDevice_t *device)
{
	return find_device(uuid, offsetof(struct sim_device, uuid), device);
}

EXPORT(nvmlDeviceGetHandleByPciBusId_v2)(const char *bus_id, nvmlDevice_t *device)
{
	return find_device(bus_id, offsetof(struct sim_device, pci_bus_id), device);
}

EXPORT(nvmlDeviceGetIndex)(nvmlDevice_t device, unsigned *index)
{
	nvmlReturn_t result = nvml_enter(device, 0);

	if (!result)
		*index = nvml_index_of(device);
	return result;
}

EXPORT(nvmlDeviceGetMinorNumber)(nvmlDevice_t device, unsigned *minor)
{
	return nvmlDeviceGetIndex(device, minor);
}

EXPORT(nvmlDeviceGetUUID)(nvmlDevice_t device, char *uuid, unsigned size)
{
	nvmlReturn_t result = nvml_enter(device, 0);

	if (!result)
		snprintf(uuid, size, "%s", device->uuid);
	return result;
}

EXPORT(nvmlDeviceGetName)(nvmlDevice_t device, char *name, unsigned size)
{
	nvmlReturn_t result = nvml_enter(device, 0);

	if (!result)
		snprintf(name, size, "%s", device->name);
	return result;
}

EXPORT(nvmlDeviceGetPciInfo_v3)(nvmlDevice_t device, struct nvml_pci_info *info)
{
	nvmlReturn_t result = nvml_enter(device, 0);

	if (result)
		return result;
	memset(info, 0, sizeof(*info));
	sscanf(device->pci_bus_id, "%x:%x:%x", &info->domain, &info->bus, &info->device);
	snprintf(info->bus_id, sizeof(info->bus_id), "%s", device->pci_bus_id);
	snprintf(info->bus_id_legacy, sizeof(info->bus_id_legacy), "%s", device->pci_bus_id + 4);
	return NVML_SUCCESS;
}

/* A process that was killed cannot give its slot back: what it held is gone with it, as on a real GPU. */
int nvml_is_on(const struct sim_process *process, const struct sim_device *device)
{
	if (!process->pid || process->device != nvml_index_of(device))
		return 0;
	return kill((pid_t)process->pid, 0) == 0 || errno == EPERM;
}
