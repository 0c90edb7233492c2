// SPDX-License-Identifier: Apache-2.0
/* What the parts of the simulated libnvidia-ml share. */
#ifndef HOTSTAGE_SIMHOST_NVML_SIM_H
#define HOTSTAGE_SIMHOST_NVML_SIM_H

#include <stdint.h>

#include "page.h"

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

#define NO_INSTANCE 0xffffffffu
#define EXPORT(name) __attribute__((visibility("default"))) nvmlReturn_t name

extern struct sim_page *nvml_page;
extern int nvml_users;

/* Every call passes here: the slowness of the driver, whether it was initialised, whether the GPU is there. */
nvmlReturn_t nvml_enter(const struct sim_device *device, uint32_t feature);
uint32_t nvml_index_of(const struct sim_device *device);
int nvml_is_on(const struct sim_process *process, const struct sim_device *device);
void nvml_pause(uint64_t ns);

#endif
