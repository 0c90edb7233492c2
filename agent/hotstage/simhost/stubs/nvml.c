// SPDX-License-Identifier: Apache-2.0
/*
 * Simulated libnvidia-ml: what nvidia-ml-py needs, answered from the page that the simulated host writes. Memory and
 * processes are what the servers' allocators say; load, power, clocks and energy are the host's model.
 *
 * What a simulation cannot know (GPM, NVLink, MIG, PCIe counters) is "not supported", never a number.
 */
#define _GNU_SOURCE
#include "page.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int nvmlReturn_t;
typedef struct sim_device *nvmlDevice_t;

/* Pinned by NVML's interface. */
enum {
	NVML_SUCCESS = 0,
	NVML_ERROR_UNINITIALIZED = 1,
	NVML_ERROR_INVALID_ARGUMENT = 2,
	NVML_ERROR_NOT_SUPPORTED = 3,
	NVML_ERROR_NOT_FOUND = 6,
	NVML_ERROR_INSUFFICIENT_SIZE = 7,
	NVML_ERROR_TIMEOUT = 10,
	NVML_ERROR_GPU_IS_LOST = 15,
	NVML_ERROR_MEMORY = 20,
};

#define EVENT_TYPE_XID 0x8ULL
#define EVENT_POLL_NS 5000000ULL
#define NO_INSTANCE 0xffffffffu
#define EXPORT(name) __attribute__((visibility("default"))) nvmlReturn_t name

struct nvml_memory {
	uint64_t total, free, used;
};
struct nvml_memory_v2 {
	uint32_t version;
	uint64_t total, reserved, free, used;
};
struct nvml_utilization {
	uint32_t gpu, memory;
};
struct nvml_pci_info {
	char bus_id_legacy[16];
	uint32_t domain, bus, device, device_id, subsystem_id;
	char bus_id[32];
};
struct nvml_process {
	uint32_t pid;
	uint64_t used_bytes;
	uint32_t gpu_instance, compute_instance;
};
struct nvml_event_data {
	nvmlDevice_t device;
	uint64_t type, data;
	uint32_t gpu_instance, compute_instance;
};
struct nvml_event_set {
	uint32_t seen;	   /* XIDs delivered or passed over so far */
	uint64_t devices; /* bit per registered device */
};
struct nvml_field {
	uint32_t id, scope;
	int64_t timestamp_us, latency_us;
	uint32_t type;
	nvmlReturn_t result;
	union {
		double real;
		uint32_t u32;
		uint64_t u64;
	} value;
};
struct nvml_gpm_support {
	uint32_t version, is_supported;
};
struct nvml_temperature {
	uint32_t version, sensor;
	int32_t celsius;
};

static struct sim_page *page;
static int users;

static void pause_ns(uint64_t ns)
{
	const struct timespec time = {(time_t)(ns / 1000000000ULL), (long)(ns % 1000000000ULL)};

	if (ns)
		nanosleep(&time, NULL);
}

/* Every call passes here: the slowness of the driver, whether it was initialised, whether the GPU is there. */
static nvmlReturn_t enter(const struct sim_device *device, uint32_t feature)
{
	if (!users)
		return NVML_ERROR_UNINITIALIZED;
	pause_ns(page->nvml_delay_ns);
	if (device < page->devices || device >= page->devices + page->device_count)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (device->lost)
		return NVML_ERROR_GPU_IS_LOST;
	return device->unsupported & feature ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

static uint32_t index_of(const struct sim_device *device)
{
	return (uint32_t)(device - page->devices);
}

EXPORT(nvmlInitWithFlags)(unsigned flags)
{
	(void)flags;
	if (!page)
		page = sim_page_open();
	users++;
	return NVML_SUCCESS;
}

EXPORT(nvmlInit_v2)(void)
{
	return nvmlInitWithFlags(0);
}

EXPORT(nvmlShutdown)(void)
{
	if (!users)
		return NVML_ERROR_UNINITIALIZED;
	users--;
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
	if (!users)
		return NVML_ERROR_UNINITIALIZED;
	snprintf(version, size, "550.00-simulated");
	return NVML_SUCCESS;
}

EXPORT(nvmlSystemGetNVMLVersion)(char *version, unsigned size)
{
	if (!users)
		return NVML_ERROR_UNINITIALIZED;
	snprintf(version, size, "12.550.00-simulated");
	return NVML_SUCCESS;
}

EXPORT(nvmlSystemGetCudaDriverVersion_v2)(int *version)
{
	if (!users)
		return NVML_ERROR_UNINITIALIZED;
	*version = 12040;
	return NVML_SUCCESS;
}

EXPORT(nvmlDeviceGetCount_v2)(unsigned *count)
{
	if (!users)
		return NVML_ERROR_UNINITIALIZED;
	*count = page->device_count;
	return NVML_SUCCESS;
}

EXPORT(nvmlDeviceGetHandleByIndex_v2)(unsigned index, nvmlDevice_t *device)
{
	if (!users)
		return NVML_ERROR_UNINITIALIZED;
	if (index >= page->device_count)
		return NVML_ERROR_INVALID_ARGUMENT;
	*device = &page->devices[index];
	return enter(*device, 0);
}

static nvmlReturn_t find_device(const char *wanted, size_t field, nvmlDevice_t *device)
{
	if (!users)
		return NVML_ERROR_UNINITIALIZED;
	for (uint32_t i = 0; i < page->device_count; i++) {
		const char *text = (const char *)&page->devices[i] + field;
		/* A bus id is written with a domain of four or of eight digits. */
		int is_short = field == offsetof(struct sim_device, pci_bus_id) && !strcasecmp(text + 4, wanted);

		if (!strcasecmp(text, wanted) || is_short) {
			*device = &page->devices[i];
			return enter(*device, 0);
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
	nvmlReturn_t result = enter(device, 0);

	if (!result)
		*index = index_of(device);
	return result;
}

EXPORT(nvmlDeviceGetMinorNumber)(nvmlDevice_t device, unsigned *minor)
{
	return nvmlDeviceGetIndex(device, minor);
}

EXPORT(nvmlDeviceGetUUID)(nvmlDevice_t device, char *uuid, unsigned size)
{
	nvmlReturn_t result = enter(device, 0);

	if (!result)
		snprintf(uuid, size, "%s", device->uuid);
	return result;
}

EXPORT(nvmlDeviceGetName)(nvmlDevice_t device, char *name, unsigned size)
{
	nvmlReturn_t result = enter(device, 0);

	if (!result)
		snprintf(name, size, "%s", device->name);
	return result;
}

EXPORT(nvmlDeviceGetPciInfo_v3)(nvmlDevice_t device, struct nvml_pci_info *info)
{
	nvmlReturn_t result = enter(device, 0);

	if (result)
		return result;
	memset(info, 0, sizeof(*info));
	sscanf(device->pci_bus_id, "%x:%x:%x", &info->domain, &info->bus, &info->device);
	snprintf(info->bus_id, sizeof(info->bus_id), "%s", device->pci_bus_id);
	snprintf(info->bus_id_legacy, sizeof(info->bus_id_legacy), "%s", device->pci_bus_id + 4);
	return NVML_SUCCESS;
}

/* A process that was killed cannot give its slot back: what it held is gone with it, as on a real GPU. */
static int is_on(const struct sim_process *process, const struct sim_device *device)
{
	if (!process->pid || process->device != index_of(device))
		return 0;
	return kill((pid_t)process->pid, 0) == 0 || errno == EPERM;
}

static uint64_t used_bytes(const struct sim_device *device)
{
	uint64_t used = 0;

	for (int i = 0; i < SIM_PROCESSES; i++)
		if (is_on(&page->processes[i], device))
			used += page->processes[i].used_bytes;
	return used;
}

EXPORT(nvmlDeviceGetMemoryInfo)(nvmlDevice_t device, struct nvml_memory *memory)
{
	nvmlReturn_t result = enter(device, SIM_NO_MEMORY);

	if (result)
		return result;
	memory->total = device->total_bytes;
	memory->used = used_bytes(device) + device->reserved_bytes; /* as the real one: v1 counts it as used */
	memory->free = memory->total - memory->used;
	return NVML_SUCCESS;
}

EXPORT(nvmlDeviceGetMemoryInfo_v2)(nvmlDevice_t device, struct nvml_memory_v2 *memory)
{
	nvmlReturn_t result = enter(device, SIM_NO_MEMORY);

	if (result)
		return result;
	memory->total = device->total_bytes;
	memory->reserved = device->reserved_bytes;
	memory->used = used_bytes(device);
	memory->free = memory->total - memory->reserved - memory->used;
	return NVML_SUCCESS;
}

EXPORT(nvmlDeviceGetUtilizationRates)(nvmlDevice_t device, struct nvml_utilization *rates)
{
	nvmlReturn_t result = enter(device, SIM_NO_UTILIZATION);

	if (!result)
		*rates = (struct nvml_utilization){device->utilization_percent, device->memory_percent};
	return result;
}

EXPORT(nvmlDeviceGetTemperature)(nvmlDevice_t device, int sensor, unsigned *celsius)
{
	nvmlReturn_t result = enter(device, SIM_NO_TEMPERATURE);

	(void)sensor;
	if (!result)
		*celsius = device->temperature_celsius;
	return result;
}

EXPORT(nvmlDeviceGetTemperatureV)(nvmlDevice_t device, struct nvml_temperature *temperature)
{
	nvmlReturn_t result = enter(device, SIM_NO_TEMPERATURE);

	if (!result)
		temperature->celsius = (int32_t)device->temperature_celsius;
	return result;
}

EXPORT(nvmlDeviceGetPowerUsage)(nvmlDevice_t device, unsigned *milliwatts)
{
	nvmlReturn_t result = enter(device, SIM_NO_POWER);

	if (!result)
		*milliwatts = device->power_milliwatts;
	return result;
}

EXPORT(nvmlDeviceGetEnforcedPowerLimit)(nvmlDevice_t device, unsigned *milliwatts)
{
	nvmlReturn_t result = enter(device, SIM_NO_POWER);

	if (!result)
		*milliwatts = 400000;
	return result;
}

EXPORT(nvmlDeviceGetTotalEnergyConsumption)(nvmlDevice_t device, unsigned long long *millijoules)
{
	nvmlReturn_t result = enter(device, SIM_NO_ENERGY);

	if (!result)
		*millijoules = device->energy_millijoules;
	return result;
}

EXPORT(nvmlDeviceGetClockInfo)(nvmlDevice_t device, int type, unsigned *mhz)
{
	nvmlReturn_t result = enter(device, SIM_NO_CLOCKS);

	if (!result) /* 2 is the memory clock; graphics and SM go together */
		*mhz = type == 2 ? device->memory_clock_mhz : device->sm_clock_mhz;
	return result;
}

EXPORT(nvmlDeviceGetMaxClockInfo)(nvmlDevice_t device, int type, unsigned *mhz)
{
	nvmlReturn_t result = enter(device, SIM_NO_CLOCKS);

	if (!result)
		*mhz = type == 2 ? 1593 : 1410;
	return result;
}

EXPORT(nvmlDeviceGetCurrentClocksEventReasons)(nvmlDevice_t device, unsigned long long *reasons)
{
	nvmlReturn_t result = enter(device, SIM_NO_CLOCKS);

	if (!result)
		*reasons = device->clock_reasons;
	return result;
}

EXPORT(nvmlDeviceGetCurrentClocksThrottleReasons)(nvmlDevice_t device, unsigned long long *reasons)
{
	return nvmlDeviceGetCurrentClocksEventReasons(device, reasons);
}

EXPORT(nvmlDeviceGetTotalEccErrors)(nvmlDevice_t device, int kind, int counter, unsigned long long *count)
{
	nvmlReturn_t result = enter(device, SIM_NO_ECC);

	(void)counter; /* volatile and aggregate are one: the simulated driver is never reloaded */
	if (!result)
		*count = kind ? device->ecc_uncorrected : device->ecc_corrected;
	return result;
}

EXPORT(nvmlDeviceGetComputeRunningProcesses_v3)(nvmlDevice_t device, unsigned *count, struct nvml_process *processes)
{
	nvmlReturn_t result = enter(device, SIM_NO_PROCESSES);
	unsigned found = 0, room = *count;

	if (result)
		return result;
	for (int i = 0; i < SIM_PROCESSES; i++) {
		const struct sim_process *process = &page->processes[i];

		if (!is_on(process, device))
			continue;
		if (processes && found < room)
			processes[found] = (struct nvml_process){process->pid, process->used_bytes, NO_INSTANCE,
								 NO_INSTANCE};
		found++;
	}
	*count = found;
	return found > room || (found && !processes) ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

static void read_field(nvmlDevice_t device, struct nvml_field *field)
{
	field->timestamp_us = (int64_t)time(NULL) * 1000000;
	field->latency_us = 1;
	field->result = enter(device, 0);
	if (field->result)
		return;
	switch (field->id) {
	case 3: /* volatile single-bit ECC errors */
		field->type = 3;
		field->value.u64 = device->ecc_corrected;
		break;
	case 4: /* volatile double-bit ECC errors */
		field->type = 3;
		field->value.u64 = device->ecc_uncorrected;
		break;
	case 83: /* energy since the driver was loaded, mJ */
		field->type = 3;
		field->value.u64 = device->energy_millijoules;
		break;
	case 186: /* power now, mW */
		field->type = 1;
		field->value.u32 = device->power_milliwatts;
		break;
	default:
		field->result = NVML_ERROR_NOT_SUPPORTED;
	}
}

EXPORT(nvmlDeviceGetFieldValues)(nvmlDevice_t device, int count, struct nvml_field *fields)
{
	nvmlReturn_t result = enter(device, 0);

	for (int i = 0; !result && i < count; i++)
		read_field(device, &fields[i]);
	return result;
}

EXPORT(nvmlDeviceGetMigMode)(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
	nvmlReturn_t result = enter(device, 0);

	if (!result)
		*current = *pending = 0;
	return result;
}

EXPORT(nvmlGpmQueryDeviceSupport)(nvmlDevice_t device, struct nvml_gpm_support *support)
{
	nvmlReturn_t result = enter(device, 0);

	if (!result)
		support->is_supported = 0;
	return result;
}

EXPORT(nvmlEventSetCreate)(struct nvml_event_set **set)
{
	if (!users)
		return NVML_ERROR_UNINITIALIZED;
	*set = calloc(1, sizeof(**set));
	if (!*set)
		return NVML_ERROR_MEMORY;
	(*set)->seen = __atomic_load_n(&page->xid_count, __ATOMIC_ACQUIRE);
	return NVML_SUCCESS;
}

EXPORT(nvmlDeviceGetSupportedEventTypes)(nvmlDevice_t device, unsigned long long *types)
{
	nvmlReturn_t result = enter(device, 0);

	if (!result)
		*types = EVENT_TYPE_XID;
	return result;
}

EXPORT(nvmlDeviceRegisterEvents)(nvmlDevice_t device, unsigned long long types, struct nvml_event_set *set)
{
	nvmlReturn_t result = enter(device, 0);

	if (result)
		return result;
	if (types & ~EVENT_TYPE_XID)
		return NVML_ERROR_NOT_SUPPORTED;
	set->devices |= 1ULL << index_of(device);
	return NVML_SUCCESS;
}

static int next_xid(struct nvml_event_set *set, struct nvml_event_data *data)
{
	while (set->seen != __atomic_load_n(&page->xid_count, __ATOMIC_ACQUIRE)) {
		const struct sim_xid *xid = &page->xids[set->seen++ % SIM_XIDS];

		if (!(set->devices >> xid->device & 1))
			continue;
		*data = (struct nvml_event_data){
			&page->devices[xid->device], EVENT_TYPE_XID, xid->code, NO_INSTANCE, NO_INSTANCE,
		};
		return 1;
	}
	return 0;
}

EXPORT(nvmlEventSetWait_v2)(struct nvml_event_set *set, struct nvml_event_data *data, unsigned timeout_ms)
{
	uint64_t left_ns = timeout_ms * 1000000ULL;

	if (!users)
		return NVML_ERROR_UNINITIALIZED;
	for (;;) {
		uint64_t step = left_ns < EVENT_POLL_NS ? left_ns : EVENT_POLL_NS;

		if (next_xid(set, data))
			return NVML_SUCCESS;
		if (!step)
			return NVML_ERROR_TIMEOUT;
		pause_ns(step);
		left_ns -= step;
	}
}

EXPORT(nvmlEventSetFree)(struct nvml_event_set *set)
{
	free(set);
	return NVML_SUCCESS;
}
