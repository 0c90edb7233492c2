// SPDX-License-Identifier: Apache-2.0
/*
 * Launches an empty kernel in a loop and says how long it took: the least work that a launch probe can be added to.
 *
 * Without CUDA's headers; `slice LAUNCHES` on the input is answered by `LAUNCHES NANOSECONDS`. The stream is waited for
 * every 512 launches, so that the queue never fills; those waits are inside the time, with and without a watcher.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BATCH 512

typedef int (*launch_function)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
			       void **, void **);

static void *library;

static void *find(const char *name)
{
	void *found = dlsym(library, name);

	if (!found) {
		fprintf(stderr, "launch_loop: libcuda has no %s\n", name);
		exit(1);
	}
	return found;
}

static void must(int result, const char *what)
{
	if (result) {
		fprintf(stderr, "launch_loop: %s failed with %d\n", what, result);
		exit(1);
	}
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

int main(int count, char **arguments)
{
	void *context, *module, *function, *stream;
	launch_function launch;
	int (*synchronize)(void *);
	long launches;

	library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library || count != 2) {
		fprintf(stderr, "usage: launch_loop PTX (and libcuda.so.1 must be found)\n");
		return 1;
	}
	must(((int (*)(unsigned))find("cuInit"))(0), "cuInit");
	must(((int (*)(void **, int))find("cuDevicePrimaryCtxRetain"))(&context, 0), "cuDevicePrimaryCtxRetain");
	must(((int (*)(void *))find("cuCtxSetCurrent"))(context), "cuCtxSetCurrent");
	must(((int (*)(void **, const void *))find("cuModuleLoadData"))(&module, arguments[1]), "cuModuleLoadData");
	must(((int (*)(void **, void *, const char *))find("cuModuleGetFunction"))(&function, module, "empty"),
	     "cuModuleGetFunction");
	must(((int (*)(void **, unsigned))find("cuStreamCreate"))(&stream, 1), "cuStreamCreate");
	launch = (launch_function)find("cuLaunchKernel");
	synchronize = (int (*)(void *))find("cuStreamSynchronize");
	puts("ready");
	fflush(stdout);
	while (scanf(" slice %ld", &launches) == 1) {
		uint64_t began = now_ns();

		for (long i = 0; i < launches; i++) {
			must(launch(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL), "cuLaunchKernel");
			if (i % BATCH == BATCH - 1)
				must(synchronize(stream), "cuStreamSynchronize");
		}
		must(synchronize(stream), "cuStreamSynchronize");
		printf("%ld %llu\n", launches, (unsigned long long)(now_ns() - began));
		fflush(stdout);
	}
	return 0;
}
