// SPDX-License-Identifier: Apache-2.0
/*
 * A process that captures and launches, as commands on stdin say: a verb, a count, a stream and a slot a line. Slots
 * keep a graph and what was made of it.
 */
#include "graphs.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static uint64_t graphs[16], executables[16];

struct launches {
	uint64_t count, stream;
};

static void *launch(void *argument)
{
	const struct launches *made = argument;

	for (uint64_t i = 0; i < made->count; i++)
		cuLaunchKernel((void *)1, 1, 1, 1, 1, 1, 1, 0, made->stream, 0, 0);
	return 0;
}

static void launch_elsewhere(struct launches *made)
{
	pthread_t thread;

	if (!pthread_create(&thread, 0, launch, made))
		pthread_join(thread, 0);
}

static void capture_many(uint64_t count, uint64_t stream)
{
	for (uint64_t i = 0; i < count; i++) {
		cuStreamBeginCapture_v2(stream, 0);
		cuStreamEndCapture(stream, &graphs[0]);
	}
}

static void run(const char *verb, uint64_t count, uint64_t stream, uint64_t slot)
{
	struct launches made = {count, stream};

	if (!strcmp(verb, "launch"))
		launch(&made);
	else if (!strcmp(verb, "elsewhere"))
		launch_elsewhere(&made);
	else if (!strcmp(verb, "begin"))
		cuStreamBeginCapture_v2(stream, 0);
	else if (!strcmp(verb, "into"))
		cuStreamBeginCaptureToGraph(stream, graphs[slot], 0, 0, 0, 0);
	else if (!strcmp(verb, "join"))
		cuStreamWaitEvent(stream, 1, 0);
	else if (!strcmp(verb, "end"))
		cuStreamEndCapture(stream, &graphs[slot]);
	else if (!strcmp(verb, "by-hand"))
		graphs[slot] = 0x300000;
	else if (!strcmp(verb, "instantiate"))
		cuGraphInstantiateWithFlags(&executables[slot], graphs[slot], 0);
	else if (!strcmp(verb, "destroy"))
		cuGraphExecDestroy(executables[slot]);
	else if (!strcmp(verb, "forget"))
		cuGraphDestroy(graphs[slot]);
	else if (!strcmp(verb, "many"))
		capture_many(count, stream);
	else if (!strcmp(verb, "replay"))
		for (uint64_t i = 0; i < count; i++)
			cuGraphLaunch(executables[slot], stream);
}

int main(void)
{
	unsigned long long count, stream, slot;
	char verb[32];

	puts("ok");
	fflush(stdout);
	while (scanf("%31s %llu %llu %llu", verb, &count, &stream, &slot) == 4) {
		run(verb, count, stream, slot & 15);
		puts("ok");
		fflush(stdout);
	}
	return 0;
}
