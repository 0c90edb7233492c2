// SPDX-License-Identifier: Apache-2.0
/*
 * The target of `bench overhead`: pinned to one CPU, it calls each twin in slices, round robin, and prints what every
 * slice took. It waits for a line on stdin, so that everything is attached before the first slice.
 *
 *   slices LIBRARY CPU ROUNDS CALLS HEAD STAGE_WORD NAME[+UNDO|~[WAIT]]...   ->   one line a name: NAME ns ns ns ...
 *
 * The main thread has a mark. Slices of NAME~ are made by a thread without one, those of NAME~WAIT with a wait after
 * every HEAD calls, which is not part of the time.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
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
	twin *wait;
	int is_unmarked;
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

/* With a grid of x, 1, 1. */
static void launch(const struct variant *variant)
{
	uint64_t out = (uint64_t)(uintptr_t)&allocated;

	variant->function(out, 0 - out, 1, 1, 1, 1, 1, 0, 0);
}

static void wait_for_all(const struct variant *variant)
{
	if (variant->wait)
		variant->wait(0, 0, 0, 0, 0, 0, 0, 0, 0);
}

static uint64_t unmarked_slice_ns(const struct variant *variant, unsigned calls, unsigned head)
{
	uint64_t began, taken = 0;

	launch(variant);
	wait_for_all(variant);
	for (unsigned made = 0; made < calls; made += head) {
		began = now_ns();
		for (unsigned i = 0; i < head; i++)
			launch(variant);
		taken += now_ns() - began;
		wait_for_all(variant);
	}
	return taken;
}

static struct {
	sem_t is_asked, is_done;
	const struct variant *variant;
	unsigned calls, head;
	uint64_t ns;
} unmarked;

static void *make_unmarked_slices(void *nothing)
{
	for (;;) {
		sem_wait(&unmarked.is_asked);
		unmarked.ns = unmarked_slice_ns(unmarked.variant, unmarked.calls, unmarked.head);
		sem_post(&unmarked.is_done);
	}
	return nothing;
}

static uint64_t ask_for_slice_ns(const struct variant *variant)
{
	unmarked.variant = variant;
	sem_post(&unmarked.is_asked);
	sem_wait(&unmarked.is_done);
	return unmarked.ns;
}

/* `NAME`, `NAME+UNDO`, `NAME~` or `NAME~WAIT`. */
static int find(void *library, char *names, struct variant *variant)
{
	char *undo = strchr(names, '+'), *wait = strchr(names, '~');

	if (undo)
		*undo = 0;
	if (wait)
		*wait = 0;
	variant->is_unmarked = wait != 0;
	variant->wait = wait && wait[1] ? (twin *)dlsym(library, wait + 1) : 0;
	if (wait && wait[1] && !variant->wait)
		return 0;
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
	pthread_t thread;
	char line[16];

	if (argc < 8)
		return 2;
	library = dlopen(argv[1], RTLD_NOW);
	rounds = (unsigned)atoi(argv[3]);
	calls = (unsigned)atoi(argv[4]);
	unmarked.calls = calls;
	unmarked.head = (unsigned)atoi(argv[5]);
	count = (unsigned)argc - 7;
	variants = calloc(count, sizeof(*variants));
	taken = calloc((size_t)count * rounds, sizeof(*taken));
	if (!library || !variants || !taken || !rounds || !unmarked.head)
		return 2;
	for (unsigned i = 0; i < count; i++)
		if (!find(library, argv[7 + i], &variants[i]))
			return 2;
	mark = (twin *)dlsym(library, "hotstage_mark_stage_begin");
	CPU_ZERO(&cpus);
	CPU_SET((unsigned)atoi(argv[2]), &cpus);
	if (!mark || sched_setaffinity(0, sizeof(cpus), &cpus))
		return 2;
	if (sem_init(&unmarked.is_asked, 0, 0) || sem_init(&unmarked.is_done, 0, 0) ||
	    pthread_create(&thread, 0, make_unmarked_slices, 0))
		return 2;

	puts("ready");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 1;
	mark((uint64_t)atoi(argv[6]), 0, 0, 0, 0, 0, 0, 0, 0);
	for (unsigned round = 0; round < rounds; round++)
		for (unsigned i = 0; i < count; i++)
			taken[(size_t)i * rounds + round] = variants[i].is_unmarked
								    ? ask_for_slice_ns(&variants[i])
								    : slice_ns(&variants[i], calls);
	for (unsigned i = 0; i < count; i++) {
		printf("%s", argv[7 + i]);
		for (unsigned round = 0; round < rounds; round++)
			printf(" %lu", (unsigned long)taken[(size_t)i * rounds + round]);
		putchar('\n');
	}
	return 0;
}
