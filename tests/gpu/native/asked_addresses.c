// SPDX-License-Identifier: Apache-2.0
/*
 * LD_PRELOAD: writes down which entry points of libcuda a process really obtains, through cuGetProcAddress or dlsym.
 *
 * One line each into $HOTSTAGE_ASKED_ADDRESSES: how, name, version, flags, address within its file, file. Only look-ups
 * are recorded, no call and no argument; what they get is passed on unchanged.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void *(*dlsym_function)(void *, const char *);
typedef int (*get_v1)(const char *, void **, int, uint64_t);
typedef int (*get_v2)(const char *, void **, int, uint64_t, int *);

static dlsym_function real_dlsym;
static get_v1 real_get_v1;
static get_v2 real_get_v2;
static int out = -1;

__attribute__((constructor)) static void open_out(void)
{
	const char *path = getenv("HOTSTAGE_ASKED_ADDRESSES");

	if (path && out < 0)
		out = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

static void tell(const char *how, const char *name, int version, uint64_t flags, void *address)
{
	Dl_info info;
	char line[512];
	int length;

	if (out < 0 || !address)
		return;
	if (!dladdr(address, &info) || !info.dli_fname)
		return;
	length = snprintf(line, sizeof(line), "%s %s %d %llu %llu %s\n", how, name, version, (unsigned long long)flags,
			  (unsigned long long)((char *)address - (char *)info.dli_fbase), info.dli_fname);
	if (length > 0 && length < (int)sizeof(line) && write(out, line, (size_t)length) < 0)
		out = -1;
}

static int asked_v1(const char *name, void **address, int version, uint64_t flags)
{
	int result = real_get_v1(name, address, version, flags);

	if (!result && address)
		tell("cuGetProcAddress", name, version, flags, *address);
	return result;
}

static int asked_v2(const char *name, void **address, int version, uint64_t flags, int *status)
{
	int result = real_get_v2(name, address, version, flags, status);

	if (result || !address)
		return result;
	tell("cuGetProcAddress_v2", name, version, flags, *address);
	/* A newer one may be obtained by the older one's name: it is ours from here on, too. */
	if (!strcmp(name, "cuGetProcAddress") && *address == (void *)real_get_v2)
		*address = (void *)asked_v2;
	return result;
}

static void *answer(const char *name, void *found)
{
	if (!strcmp(name, "cuGetProcAddress_v2")) {
		real_get_v2 = (get_v2)found;
		return (void *)asked_v2;
	}
	if (!strcmp(name, "cuGetProcAddress")) {
		real_get_v1 = (get_v1)found;
		return (void *)asked_v1;
	}
	tell("dlsym", name, 0, 0, found);
	return found;
}

__attribute__((visibility("default"))) void *dlsym(void *handle, const char *name)
{
	if (!real_dlsym) {
		real_dlsym = (dlsym_function)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
		if (!real_dlsym)
			real_dlsym = (dlsym_function)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
	}
	if (name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z') {
		void *found = real_dlsym(handle, name);

		return found ? answer(name, found) : found;
	}
	/* A tail call: for RTLD_NEXT the real one must see its caller's return address, not one in here. */
	return real_dlsym(handle, name);
}
