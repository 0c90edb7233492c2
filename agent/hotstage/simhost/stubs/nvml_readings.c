// SPDX-License-Identifier: Apache-2.0
/* Simulated libnvidia-ml: memory, load, heat, power, clocks, errors, processes. */
#include "nvml_sim.h"

#include <time.h>

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
struct nvml_process {
	uint32_t pid;
	uint64_t used_bytes;
	uint32_t gpu_instance, compute_instance;
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

static uint64_t used_bytes(const struct sim_device *device)
{
	uint64_t used = 0;

	for (int i = 0; i < SIM_PROCESSES; i++)
		if (nvml_is_on(&nvml_page->processes[i], device))
			used += nvml_page->processes[i].held_bytes;
	return used;
}

EXPORT(nvmlDeviceGetMemoryInfo)(nvmlDevice_t device, struct nvml_memory *memory)
{
	nvmlReturn_t result = nvml_enter(device, SIM_NO_MEMORY);

	if (result)
		return result;
	memory->total = device->total_bytes;
	memory->used = used_bytes(device) + device->reserved_bytes; /* as the real one: v1 counts it as used */
	memory->free = memory->total - memory->used;
	return NVML_SUCCESS;
}

EXPORT(nvmlDeviceGetMemoryInfo_v2)(nvmlDevice_t device, struct nvml_memory_v2 *memory)
{
	nvmlReturn_t result = nvml_enter(device, SIM_NO_MEMORY);

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
	nvmlReturn_t result = nvml_enter(device, SIM_NO_UTILIZATION);

	if (!result)
		*rates = (struct nvml_utilization){device->utilization_percent, device->memory_percent};
	return result;
}

EXPORT(nvmlDeviceGetTemperature)(nvmlDevice_t device, int sensor, unsigned *celsius)
{
	nvmlReturn_t result = nvml_enter(device, SIM_NO_TEMPERATURE);

	(void)sensor;
	if (!result)
		*celsius = device->temperature_celsius;
	return result;
}

EXPORT(nvmlDeviceGetTemperatureV)(nvmlDevice_t device, struct nvml_temperature *temperature)
{
	nvmlReturn_t result = nvml_enter(device, SIM_NO_TEMPERATURE);

	if (!result)
		temperature->celsius = (int32_t)device->temperature_celsius;
	return result;
}

EXPORT(nvmlDeviceGetPowerUsage)(nvmlDevice_t device, unsigned *milliwatts)
{
	nvmlReturn_t result = nvml_enter(device, SIM_NO_POWER);

	if (!result)
		*milliwatts = device->power_milliwatts;
	return result;
}

EXPORT(nvmlDeviceGetEnforcedPowerLimit)(nvmlDevice_t device, unsigned *milliwatts)
{
	nvmlReturn_t result = nvml_enter(device, SIM_NO_POWER);

	if (!result)
		*milliwatts = 400000;
	return result;
}

EXPORT(nvmlDeviceGetTotalEnergyConsumption)(nvmlDevice_t device, unsigned long long *millijoules)
{
	nvmlReturn_t result = nvml_enter(device, SIM_NO_ENERGY);

	if (!result)
		*millijoules = device->energy_millijoules;
	return result;
}

EXPORT(nvmlDeviceGetClockInfo)(nvmlDevice_t device, int type, unsigned *mhz)
{
	nvmlReturn_t result = nvml_enter(device, SIM_NO_CLOCKS);

	if (!result) /* 2 is the memory clock; graphics and SM go together */
		*mhz = type == 2 ? device->memory_clock_mhz : device->sm_clock_mhz;
	return result;
}

EXPORT(nvmlDeviceGetMaxClockInfo)(nvmlDevice_t device, int type, unsigned *mhz)
{
	nvmlReturn_t result = nvml_enter(device, SIM_NO_CLOCKS);

	if (!result)
		*mhz = type == 2 ? 1593 : 1410;
	return result;
}

EXPORT(nvmlDeviceGetCurrentClocksEventReasons)(nvmlDevice_t device, unsigned long long *reasons)
{
	nvmlReturn_t result = nvml_enter(device, SIM_NO_CLOCKS);

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
	nvmlReturn_t result = nvml_enter(device, SIM_NO_ECC);

	(void)counter; /* volatile and aggregate are one: the simulated driver is never reloaded */
	if (!result)
		*count = kind ? device->ecc_uncorrected : device->ecc_corrected;
	return result;
}

EXPORT(nvmlDeviceGetComputeRunningProcesses_v3)(nvmlDevice_t device, unsigned *count, struct nvml_process *processes)
{
	nvmlReturn_t result = nvml_enter(device, SIM_NO_PROCESSES);
	unsigned found = 0, room = *count;

	if (result)
		return result;
	for (int i = 0; i < SIM_PROCESSES; i++) {
		const struct sim_process *process = &nvml_page->processes[i];

		if (!nvml_is_on(process, device))
			continue;
		if (processes && found < room)
			processes[found] = (struct nvml_process){process->pid, process->held_bytes, NO_INSTANCE,
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
	field->result = nvml_enter(device, 0);
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
	nvmlReturn_t result = nvml_enter(device, 0);

	for (int i = 0; !result && i < count; i++)
		read_field(device, &fields[i]);
	return result;
}

EXPORT(nvmlDeviceGetMigMode)(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
	nvmlReturn_t result = nvml_enter(device, 0);

	if (!result)
		*current = *pending = 0;
	return result;
}

EXPORT(nvmlGpmQueryDeviceSupport)(nvmlDevice_t device, struct nvml_gpm_support *support)
{
	nvmlReturn_t result = nvml_enter(device, 0);

	if (!result)
		support->is_supported = 0;
	return result;
}
