// SPDX-License-Identifier: Apache-2.0
/* A libnvidia-ml.so.1 of two GPUs for tests. It does what the words in the file $NVML_STUB_STATE say, at each call. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct pci { char legacy[16]; unsigned domain, bus, device, device_id, subsystem; char id[32]; };
struct memory { unsigned long long total, free, used; };
struct rates { unsigned gpu, memory; };
struct event { void *device; unsigned long long type, data; unsigned gpu, compute; };

static int says(const char *word)
{
	char text[256] = "";
	FILE *file = fopen(getenv("NVML_STUB_STATE") ?: "", "r");

	if (file) {
		text[fread(text, 1, sizeof(text) - 1, file)] = 0;
		fclose(file);
	}
	return strstr(text, word) != NULL;
}

static int answer(void *device)
{
	while (says("hang"))
		usleep(10000);
	if (says("slow"))
		usleep(30000);
	if (says("mismatch"))
		return 18;
	return says("lost") && device == (void *)2 ? 15 : 0;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; return says("refused") ? 9 : 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return code == 18 ? "Driver/library version mismatch" : "stub error"; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { snprintf(text, size, "550.stub"); return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
	*device = (void *)(long)(index + 1);
	return says("absent") && index == 1 ? 15 : 0;
}
int nvmlDeviceGetUUID(void *device, char *text, unsigned size) { snprintf(text, size, "GPU-%ld", (long)device); return 0; }
int nvmlDeviceGetName(void *device, char *text, unsigned size) { (void)device; snprintf(text, size, "Stub"); return 0; }
int nvmlDeviceGetPciInfo_v3(void *device, struct pci *pci)
{
	snprintf(pci->id, sizeof(pci->id), "00000000:%02lX:00.0", 0x64 + (long)device);
	return 0;
}
int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory)
{
	*memory = (struct memory){80ULL << 30, 79ULL << 30, 1ULL << 30};
	return answer(device);
}
int nvmlDeviceGetUtilizationRates(void *device, struct rates *rates)
{
	*rates = (struct rates){42, 17};
	return answer(device);
}
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts)
{
	*milliwatts = 123456;
	return says("nopower") ? 3 : answer(device);
}
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts) { *milliwatts = 700000; return answer(device); }
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius) { (void)sensor; *celsius = 61; return answer(device); }
int nvmlDeviceGetClockInfo(void *device, int type, unsigned *mhz) { *mhz = type == 2 ? 2619 : 1980; return answer(device); }
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *mj) { *mj = 5000; return answer(device); }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *mask) { *mask = 0x40; return answer(device); }
int nvmlEventSetCreate(void **set) { *set = (void *)9; return 0; }
int nvmlEventSetFree(void *set) { (void)set; return 0; }
int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set) { (void)device; (void)types; (void)set; return 0; }
int nvmlEventSetWait_v2(void *set, struct event *event, unsigned timeout_ms)
{
	(void)set;
	(void)timeout_ms;
	if (!says("xid")) {
		usleep(20000);
		return 10;
	}
	*event = (struct event){(void *)2, 8, 79, 0, 0};
	usleep(100000);
	return 0;
}
