/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slow_calls LIBRARY THREADS NS: after a line on its input each thread waits on a stream once in 10.5 ms, and
 * spends NS of CPU for each, the wait and the waking included. Ends with its input.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define PERIOD_NS 10500000

static int (*wait_for)(void *);
static long cpu_ns;

static long now(clockid_t clock)
{
	struct timespec at;

	clock_gettime(clock, &at);
	return at.tv_sec * 1000000000L + at.tv_nsec;
}

static void *work(void *nothing)
{
	long due = now(CLOCK_MONOTONIC), spent = now(CLOCK_THREAD_CPUTIME_ID);

	for (;;) {
		struct timespec at = {.tv_sec = due / 1000000000L, .tv_nsec = due % 1000000000L};

		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, 0);
		wait_for(0);
		spent += cpu_ns;
		while (now(CLOCK_THREAD_CPUTIME_ID) < spent)
			;
		due += PERIOD_NS;
	}
	return nothing;
}

int main(int argc, char **argv)
{
	void *library = argc == 4 ? dlopen(argv[1], RTLD_NOW) : 0;
	pthread_t thread;

	if (!library)
		return 2;
	wait_for = (int (*)(void *))dlsym(library, "cuStreamSynchronize");
	cpu_ns = atol(argv[3]);
	if (getchar() == EOF)
		return 1;
	for (int at = 0; at < atoi(argv[2]); at++)
		pthread_create(&thread, 0, work, 0);
	while (getchar() != EOF)
		;
	return 0;
}
