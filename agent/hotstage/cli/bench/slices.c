// SPDX-License-Identifier: Apache-2.0
/*
 * The target of `bench overhead`: pinned to one CPU, it calls each twin in slices, round robin, and prints what every
 * slice took. It waits for a line on stdin, so that everything is attached before the first slice.
 *
 *   slices LIBRARY CPU ROUNDS CALLS STAGE_WORD NAME...   ->   one line a name: NAME ns ns ns ...
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* As many arguments as cuLaunchKernel, so that what the probe reads from the stack is there. */
typedef uint64_t twin(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t slice_ns(twin *function, unsigned calls)
{
	uint64_t began;

	function(0, 0, 0, 0, 0, 0, 0, 0, 0);
	began = now_ns();
	for (unsigned i = 0; i < calls; i++)
		function(0, 0, 0, 0, 0, 0, 0, 0, 0);
	return now_ns() - began;
}

int main(int argc, char **argv)
{
	unsigned rounds, calls, count;
	uint64_t *taken;
	cpu_set_t cpus;
	twin **functions, *mark;
	void *library;
	char line[16];

	if (argc < 7)
		return 2;
	library = dlopen(argv[1], RTLD_NOW);
	rounds = (unsigned)atoi(argv[3]);
	calls = (unsigned)atoi(argv[4]);
	count = (unsigned)argc - 6;
	functions = calloc(count, sizeof(*functions));
	taken = calloc((size_t)count * rounds, sizeof(*taken));
	if (!library || !functions || !taken || !rounds)
		return 2;
	for (unsigned i = 0; i < count; i++) {
		functions[i] = (twin *)dlsym(library, argv[6 + i]);
		if (!functions[i])
			return 2;
	}
	mark = (twin *)dlsym(library, "hotstage_mark_stage_begin");
	CPU_ZERO(&cpus);
	CPU_SET((unsigned)atoi(argv[2]), &cpus);
	if (!mark || sched_setaffinity(0, sizeof(cpus), &cpus))
		return 2;

	puts("ready");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 1;
	mark((uint64_t)atoi(argv[5]), 0, 0, 0, 0, 0, 0, 0, 0);
	for (unsigned round = 0; round < rounds; round++)
		for (unsigned i = 0; i < count; i++)
			taken[(size_t)i * rounds + round] = slice_ns(functions[i], calls);
	for (unsigned i = 0; i < count; i++) {
		printf("%s", argv[6 + i]);
		for (unsigned round = 0; round < rounds; round++)
			printf(" %lu", (unsigned long)taken[(size_t)i * rounds + round]);
		putchar('\n');
	}
	return 0;
}
