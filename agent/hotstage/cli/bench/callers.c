// SPDX-License-Identifier: Apache-2.0
/*
 * The target of `bench counting`: THREADS threads that each make LAUNCHES launches and WAITS waits as fast as they can.
 *
 *   callers LIBRARY THREADS LAUNCHES WAITS   ->   `ready`, then after each `go` on stdin: `made CALLS NANOSECONDS`
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef uint64_t twin(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

static twin *launch, *wait_for;
static unsigned launches, waits;

static void *work(void *unused)
{
	for (unsigned i = 0; i < launches; i++)
		launch(0, 0, 0, 0, 0, 0, 0, 0, 0);
	for (unsigned i = 0; i < waits; i++)
		wait_for(0, 0, 0, 0, 0, 0, 0, 0, 0);
	return unused;
}

int main(int argc, char **argv)
{
	struct timespec began, ended;
	pthread_t running[64];
	unsigned threads;
	void *library;
	char line[16];

	if (argc < 5)
		return 2;
	library = dlopen(argv[1], RTLD_NOW);
	threads = (unsigned)atoi(argv[2]);
	launches = (unsigned)atoi(argv[3]);
	waits = (unsigned)atoi(argv[4]);
	if (!library || threads > 64)
		return 2;
	launch = (twin *)dlsym(library, "twin_launch");
	wait_for = (twin *)dlsym(library, "twin_timed");
	if (!launch || !wait_for)
		return 2;
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin) && !strcmp(line, "go\n")) {
		clock_gettime(CLOCK_MONOTONIC, &began);
		for (unsigned i = 0; i < threads; i++)
			if (pthread_create(&running[i], 0, work, 0))
				return 1;
		for (unsigned i = 0; i < threads; i++)
			pthread_join(running[i], 0);
		clock_gettime(CLOCK_MONOTONIC, &ended);
		printf("made %llu %lld\n", (unsigned long long)threads * (launches + waits),
		       (long long)(ended.tv_sec - began.tv_sec) * 1000000000 + ended.tv_nsec - began.tv_nsec);
		fflush(stdout);
	}
	/* It stays until the counts are read: a thread's state goes with its process. */
	return 0;
}
