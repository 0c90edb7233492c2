// SPDX-License-Identifier: Apache-2.0
/*
 * Two processes on one CPU that hand a byte to and fro: each round trip is two context switches. Says its child's pid,
 * then for each number of round trips on stdin how many nanoseconds they took.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		exit(3);
}

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

int main(int count, char **arguments)
{
	int there[2], back[2], rounds;
	long long began_ns;
	char byte = 0;
	pid_t child;

	if (count != 2 || pipe(there) || pipe(back))
		return 3;
	pin(atoi(arguments[1]));
	child = fork();
	if (child == 0) {
		close(there[1]);
		while (read(there[0], &byte, 1) == 1)
			if (write(back[1], &byte, 1) != 1)
				break;
		return 0;
	}
	setvbuf(stdout, 0, _IOLBF, 0);
	printf("%d\n", (int)child);
	while (scanf("%d", &rounds) == 1) {
		began_ns = now_ns();
		for (int i = 0; i < rounds; i++)
			if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
				return 3;
		printf("%lld\n", now_ns() - began_ns);
	}
	return 0;
}
