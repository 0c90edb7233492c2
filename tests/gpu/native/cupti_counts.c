// SPDX-License-Identifier: Apache-2.0
/*
 * Counts driver calls by name as CUPTI sees them: the second opinion on hotstage's counts.
 *
 * Loaded by the driver at cuInit through CUDA_INJECTION64_PATH. CUPTI itself is opened from $HOTSTAGE_CUPTI_LIBRARY.
 * The counts go to $HOTSTAGE_CUPTI_COUNTS, one `name count` a line, when the process ends or asks for them. An own
 * declaration of the few parts of cupti.h that are needed stands below; -DHOTSTAGE_CUPTI_HEADERS compares them with
 * the real ones.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef HOTSTAGE_CUPTI_HEADERS
#include <stddef.h>

#include <cupti.h>
_Static_assert(CUPTI_CB_DOMAIN_DRIVER_API == 1, "the domain of driver calls");
_Static_assert(CUPTI_API_ENTER == 0, "the entry of a call");
_Static_assert(offsetof(CUpti_CallbackData, callbackSite) == 0, "where the site of a callback stands");
_Static_assert(offsetof(CUpti_CallbackData, functionName) == 8, "where the name of a callback stands");
#endif

#define DOMAIN_DRIVER_API 1 /* CUPTI_CB_DOMAIN_DRIVER_API, cupti_callbacks.h */
#define SITE_ENTER 0	    /* CUPTI_API_ENTER */
#define CALLS_MAX 4096

struct callback_data { /* the head of CUpti_CallbackData */
	int site;
	const char *name;
};

typedef void (*callback)(void *user, int domain, uint32_t id, const struct callback_data *data);

static uint64_t counts[CALLS_MAX];
static const char *names[CALLS_MAX];
static uint64_t beyond; /* calls with a larger id than there is room for */
static int status = -1; /* CUPTI's answer to the subscription; -1: never asked */

static void on_call(void *user, int domain, uint32_t id, const struct callback_data *data)
{
	(void)user;
	if (domain != DOMAIN_DRIVER_API || data->site != SITE_ENTER)
		return;
	if (id >= CALLS_MAX) {
		__atomic_fetch_add(&beyond, 1, __ATOMIC_RELAXED);
		return;
	}
	__atomic_store_n(&names[id], data->name, __ATOMIC_RELAXED); /* a constant of CUPTI's */
	__atomic_fetch_add(&counts[id], 1, __ATOMIC_RELAXED);
}

/* Write what was counted until now; 0, or -1 when the file cannot be written. Makes no CUDA call. */
__attribute__((visibility("default"))) int hotstage_cupti_write(void)
{
	const char *path = getenv("HOTSTAGE_CUPTI_COUNTS");
	FILE *file = path ? fopen(path, "w") : NULL;

	if (!file)
		return -1;
	fprintf(file, "#status %d\n#beyond %llu\n", status, (unsigned long long)beyond);
	for (int id = 0; id < CALLS_MAX; id++) {
		uint64_t count = __atomic_load_n(&counts[id], __ATOMIC_RELAXED);

		if (count)
			fprintf(file, "%s %llu\n", names[id], (unsigned long long)count);
	}
	return fclose(file);
}

static void write_at_exit(void)
{
	hotstage_cupti_write();
}

/* Called by the driver; 1 means success. */
__attribute__((visibility("default"))) int InitializeInjection(void)
{
	static void *subscriber;
	const char *path = getenv("HOTSTAGE_CUPTI_LIBRARY");
	void *cupti = dlopen(path ? path : "libcupti.so", RTLD_NOW | RTLD_LOCAL);
	int (*subscribe)(void **, callback, void *);
	int (*enable_domain)(uint32_t, void *, int);

	if (!cupti)
		return 1; /* the status stays -1: the reader says that CUPTI was not there */
	subscribe = (int (*)(void **, callback, void *))dlsym(cupti, "cuptiSubscribe");
	enable_domain = (int (*)(uint32_t, void *, int))dlsym(cupti, "cuptiEnableDomain");
	if (!subscribe || !enable_domain)
		return 1;
	status = subscribe(&subscriber, on_call, NULL);
	if (!status)
		status = enable_domain(1, subscriber, DOMAIN_DRIVER_API);
	atexit(write_at_exit);
	return 1;
}
