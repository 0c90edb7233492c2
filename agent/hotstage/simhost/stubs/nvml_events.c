// SPDX-License-Identifier: Apache-2.0
/* Simulated libnvidia-ml: event sets; the only event is an XID, in the order in which the host raised them. */
#include "nvml_sim.h"

#include <stdlib.h>

#define EVENT_TYPE_XID 0x8ULL
#define EVENT_POLL_NS 5000000ULL

struct nvml_event_data {
	nvmlDevice_t device;
	uint64_t type, data;
	uint32_t gpu_instance, compute_instance;
};
struct nvml_event_set {
	uint32_t seen;	   /* XIDs delivered or passed over so far */
	uint64_t devices; /* bit per registered device */
};

EXPORT(nvmlEventSetCreate)(struct nvml_event_set **set)
{
	if (!nvml_users)
		return NVML_ERROR_UNINITIALIZED;
	*set = calloc(1, sizeof(**set));
	if (!*set)
		return NVML_ERROR_MEMORY;
	(*set)->seen = __atomic_load_n(&nvml_page->xid_count, __ATOMIC_ACQUIRE);
	return NVML_SUCCESS;
}

EXPORT(nvmlDeviceGetSupportedEventTypes)(nvmlDevice_t device, unsigned long long *types)
{
	nvmlReturn_t result = nvml_enter(device, 0);

	if (!result)
		*types = EVENT_TYPE_XID;
	return result;
}

EXPORT(nvmlDeviceRegisterEvents)(nvmlDevice_t device, unsigned long long types, struct nvml_event_set *set)
{
	nvmlReturn_t result = nvml_enter(device, 0);

	if (result)
		return result;
	if (types & ~EVENT_TYPE_XID)
		return NVML_ERROR_NOT_SUPPORTED;
	set->devices |= 1ULL << nvml_index_of(device);
	return NVML_SUCCESS;
}

static int next_xid(struct nvml_event_set *set, struct nvml_event_data *data)
{
	while (set->seen != __atomic_load_n(&nvml_page->xid_count, __ATOMIC_ACQUIRE)) {
		const struct sim_xid *xid = &nvml_page->xids[set->seen++ % SIM_XIDS];

		if (!(set->devices >> xid->device & 1))
			continue;
		*data = (struct nvml_event_data){
			&nvml_page->devices[xid->device], EVENT_TYPE_XID, xid->code, NO_INSTANCE, NO_INSTANCE,
		};
		return 1;
	}
	return 0;
}

EXPORT(nvmlEventSetWait_v2)(struct nvml_event_set *set, struct nvml_event_data *data, unsigned timeout_ms)
{
	uint64_t left_ns = timeout_ms * 1000000ULL;

	if (!nvml_users)
		return NVML_ERROR_UNINITIALIZED;
	for (;;) {
		uint64_t step = left_ns < EVENT_POLL_NS ? left_ns : EVENT_POLL_NS;

		if (next_xid(set, data))
			return NVML_SUCCESS;
		if (!step)
			return NVML_ERROR_TIMEOUT;
		nvml_pause(step);
		left_ns -= step;
	}
}

EXPORT(nvmlEventSetFree)(struct nvml_event_set *set)
{
	free(set);
	return NVML_SUCCESS;
}

/* PyTorch looks these up when an allocation fails, and does without them where they are not supported. */
#define NOT_SUPPORTED(name)                                     \
	EXPORT(name)(nvmlDevice_t device)                       \
	{                                                       \
		nvmlReturn_t result = nvml_enter(device, 0);    \
                                                                \
		return result ? result : NVML_ERROR_NOT_SUPPORTED; \
	}
NOT_SUPPORTED(nvmlDeviceGetComputeRunningProcesses)
NOT_SUPPORTED(nvmlDeviceGetGpuFabricInfoV)
NOT_SUPPORTED(nvmlDeviceGetNvLinkRemoteDeviceType)
NOT_SUPPORTED(nvmlDeviceGetNvLinkRemotePciInfo_v2)
