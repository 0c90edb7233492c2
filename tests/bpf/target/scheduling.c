// SPDX-License-Identifier: Apache-2.0
/*
 * A process that uses, gives up and waits for the CPU as told, from one thread that is in the GPU path. Commands from
 * stdin, one a line, each answered with `ok`.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "target.h"

#define WORD(stage, modality) ((uint64_t)(stage) | (uint64_t)(modality) << 8)

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static uint64_t cpu_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void spin(uint64_t for_us)
{
	uint64_t until = cpu_us() + for_us;

	while (cpu_us() < until)
		;
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

static void *hold(void *for_us)
{
	pthread_mutex_lock(&mutex);
	*(volatile uint64_t *)for_us |= 1ULL << 63;
	usleep((useconds_t)(*(uint64_t *)for_us & ~(1ULL << 63)));
	pthread_mutex_unlock(&mutex);
	return 0;
}

/* Waits for a mutex that another thread holds. */
static void blocked(uint64_t for_us)
{
	pthread_t other;
	volatile uint64_t told = for_us;

	pthread_create(&other, 0, hold, (void *)&told);
	while (!(told >> 63))
		sched_yield();
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
	pthread_join(other, 0);
}

static void *short_life(void *unused)
{
	cuLaunchKernel(0, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0);
	usleep(1);
	usleep(1);
	return unused;
}

static void short_lives(uint64_t count)
{
	pthread_t one;

	for (uint64_t i = 0; i < count; i++) {
		pthread_create(&one, 0, short_life, 0);
		pthread_join(one, 0);
	}
}

static void touch(uint64_t mib)
{
	size_t bytes = mib << 20;
	char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (size_t i = 0; memory != MAP_FAILED && i < bytes; i += 4096)
		memory[i] = 1;
	munmap(memory, bytes);
}

/* Touches so many fresh pages in that stage, and writes what getrusage says of it into a file. */
static void faults(const char *path, uint64_t pages, uint64_t stage)
{
	size_t bytes = pages * 4096;
	char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct rusage before, after;
	FILE *file;

	if (memory == MAP_FAILED || madvise(memory, bytes, MADV_NOHUGEPAGE))
		exit(3);
	hotstage_mark_stage_begin(WORD(stage, 1), 0, 0);
	getrusage(RUSAGE_THREAD, &before);
	for (size_t i = 0; i < bytes; i += 4096)
		memory[i] = 1;
	getrusage(RUSAGE_THREAD, &after);
	hotstage_mark_stage_begin(WORD(0, 0), 0, 0);
	munmap(memory, bytes);
	file = fopen(path, "w");
	fprintf(file, "%ld", after.ru_minflt - before.ru_minflt + after.ru_majflt - before.ru_majflt);
	fclose(file);
}

/* Reads a file again and again: its pages are what a small cgroup has to give back. */
static void reread(const char *path, uint64_t times)
{
	static char buffer[1 << 20];

	for (uint64_t i = 0; i < times; i++) {
		FILE *file = fopen(path, "r");

		while (file && fread(buffer, 1, sizeof(buffer), file))
			;
		if (file)
			fclose(file);
	}
}

static void obey(const char *verb, const char *name, uint64_t a, uint64_t b)
{
	if (!strcmp(verb, "launch"))
		cuLaunchKernel(0, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0);
	else if (!strcmp(verb, "stage"))
		hotstage_mark_stage_begin(WORD(a, b), 0, 0);
	else if (!strcmp(verb, "spin"))
		spin(a);
	else if (!strcmp(verb, "pin"))
		pin((int)a);
	else if (!strcmp(verb, "sleep"))
		for (uint64_t i = 0; i < a; i++)
			usleep((useconds_t)b);
	else if (!strcmp(verb, "yield"))
		for (uint64_t i = 0; i < a; i++)
			sched_yield();
	else if (!strcmp(verb, "mutex"))
		blocked(a);
	else if (!strcmp(verb, "block"))
		cuStreamSynchronize(TARGET_BLOCK);
	else if (!strcmp(verb, "lives"))
		short_lives(a);
	else if (!strcmp(verb, "touch"))
		touch(a);
	else if (!strcmp(verb, "faults"))
		faults(name, a, b);
	else if (!strcmp(verb, "reread"))
		reread(name, a);
	else
		exit(3);
}

int main(void)
{
	char line[640], verb[32], name[512];
	unsigned long long a, b;

	setvbuf(stdin, 0, _IONBF, 0);
	setvbuf(stdout, 0, _IOLBF, 0);
	puts("ok");
	while (fgets(line, sizeof(line), stdin)) {
		a = b = 0;
		if (sscanf(line, "%31s %511s %llu %llu", verb, name, &a, &b) < 2)
			exit(3);
		obey(verb, name, a, b);
		puts("ok");
	}
	return 0;
}
