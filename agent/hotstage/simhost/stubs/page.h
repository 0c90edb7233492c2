// SPDX-License-Identifier: Apache-2.0
/*
 * The page that the simulated host, its servers' libcuda and everybody's libnvidia-ml share: one file, mapped.
 * Its twin in Python is simhost/page.py; the sizes are compared at start. Who writes what stands beside each field.
 */
#ifndef HOTSTAGE_SIMHOST_PAGE_H
#define HOTSTAGE_SIMHOST_PAGE_H

#include <stdint.h>

#define SIM_PAGE_MAGIC 0x47534853u
#define SIM_PAGE_FILE "simhost.page"
#define SIM_PAGE_VARIABLE "HOTSTAGE_SIM_PAGE"
#define SIM_DEVICES 8
#define SIM_PROCESSES 32
#define SIM_XIDS 16

/* Bits of sim_device.unsupported: NVML answers "not supported" for these. */
#define SIM_NO_UTILIZATION 0x1u
#define SIM_NO_POWER 0x2u
#define SIM_NO_TEMPERATURE 0x4u
#define SIM_NO_ECC 0x8u
#define SIM_NO_PROCESSES 0x10u
#define SIM_NO_CLOCKS 0x20u
#define SIM_NO_ENERGY 0x40u
#define SIM_NO_MEMORY 0x80u

struct sim_device { /* written by the host */
	char uuid[48];
	char name[64];
	char pci_bus_id[32];
	uint64_t total_bytes;
	uint64_t reserved_bytes;
	double factor;		/* all work on the device takes this many times as long */
	uint32_t hang;		/* not 0: no wait for the device returns */
	uint32_t lost;		/* not 0: NVML says that the GPU is lost */
	uint32_t unsupported;
	uint32_t utilization_percent;
	uint32_t memory_percent;
	uint32_t power_milliwatts;
	uint32_t temperature_celsius;
	uint32_t sm_clock_mhz;
	uint32_t memory_clock_mhz;
	uint32_t clock_reasons;
	uint64_t energy_millijoules;
	uint64_t ecc_corrected;
	uint64_t ecc_uncorrected;
};

struct sim_process { /* written by libcuda: one process on one device */
	uint32_t pid;	 /* 0: free */
	uint32_t device;
	uint64_t used_bytes; /* allocated */
	uint64_t held_bytes; /* of the device, in whole pages */
	uint64_t peak_bytes;
	uint64_t largest_free_bytes;
	uint64_t busy_ns; /* sum of the work given to the device */
	uint64_t failed_allocations;
};

struct sim_xid { /* written by the host */
	uint32_t device;
	uint32_t code;
	uint64_t at_ns;
};

struct sim_page {
	uint32_t magic;
	uint32_t version;
	uint32_t device_count;
	uint32_t xid_count; /* ever; the last one is xids[(xid_count - 1) % SIM_XIDS] */
	uint64_t nvml_delay_ns; /* every NVML call takes this much longer */
	struct sim_device devices[SIM_DEVICES];
	struct sim_process processes[SIM_PROCESSES];
	struct sim_xid xids[SIM_XIDS];
};

_Static_assert(sizeof(struct sim_device) == 232, "page.py says the same");
_Static_assert(sizeof(struct sim_process) == 56, "page.py says the same");
_Static_assert(sizeof(struct sim_page) == 24 + 8 * 232 + 32 * 56 + 16 * 16, "page.py says the same");

/* The page of the file that the variable names, else of the one beside this library, else one private GPU. */
struct sim_page *sim_page_open(void);

/* The folder of the shared page's file, "" for the private one. */
const char *sim_page_folder(void);

#endif
