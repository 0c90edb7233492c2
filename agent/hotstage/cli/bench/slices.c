// SPDX-License-Identifier: Apache-2.0
/*
 * The target of `bench overhead`: pinned to one CPU, it calls each twin in slices, round robin, and prints what every
 * slice took. It waits for a line on stdin, so that everything is attached before the first slice.
 *
 *   slices LIBRARY CPU ROUNDS CALLS STAGE_WORD NAME[+UNDO]...   ->   one line a name: NAME ns ns ns ...
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* As many arguments as cuLaunchKernel, so that what the probe reads from the stack is there. */
typedef uint64_t twin(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* A twin returns the sum of its first two arguments. What an allocation would write there is there already. */
static uint64_t allocated = 1 << 20;

struct variant {
	twin *function, *undo; /* `undo` frees what `function` allocates, or is 0 */
};

static void call(const struct variant *variant)
{
	uint64_t out = (uint64_t)(uintptr_t)&allocated;

	variant->function(out, 0 - out, 0, 0, 0, 0, 0, 0, 0);
	if (variant->undo)
		variant->undo(allocated, 0 - allocated, 0, 0, 0, 0, 0, 0, 0);
}

static uint64_t slice_ns(const struct variant *variant, unsigned calls)
{
	uint64_t began;

	call(variant);
	began = now_ns();
	for (unsigned i = 0; i < calls; i++)
		call(variant);
	return now_ns() - began;
}

/* `NAME`, or `NAME+UNDO`. */
static int find(void *library, char *names, struct variant *variant)
{
	char *undo = strchr(names, '+');

	if (undo)
		*undo = 0;
	variant->function = (twin *)dlsym(library, names);
	variant->undo = undo ? (twin *)dlsym(library, undo + 1) : 0;
	return variant->function && !undo == !variant->undo;
}

int main(int argc, char **argv)
{
	unsigned rounds, calls, count;
	uint64_t *taken;
	cpu_set_t cpus;
	struct variant *variants;
	twin *mark;
	void *library;
	char line[16];

	if (argc < 7)
		return 2;
	library = dlopen(argv[1], RTLD_NOW);
	rounds = (unsigned)atoi(argv[3]);
	calls = (unsigned)atoi(argv[4]);
	count = (unsigned)argc - 6;
	variants = calloc(count, sizeof(*variants));
	taken = calloc((size_t)count * rounds, sizeof(*taken));
	if (!library || !variants || !taken || !rounds)
		return 2;
	for (unsigned i = 0; i < count; i++)
		if (!find(library, argv[6 + i], &variants[i]))
			return 2;
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
			taken[(size_t)i * rounds + round] = slice_ns(&variants[i], calls);
	for (unsigned i = 0; i < count; i++) {
		printf("%s", argv[6 + i]);
		for (unsigned round = 0; round < rounds; round++)
			printf(" %lu", (unsigned long)taken[(size_t)i * rounds + round]);
		putchar('\n');
	}
	return 0;
}
