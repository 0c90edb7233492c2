// SPDX-License-Identifier: Apache-2.0
/* A process that calls the three, as commands on stdin say: a verb and three numbers a line. */
#define _GNU_SOURCE
#include "layers.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t communicators[32];

/* Two host functions as a program has them: by their addresses the runtime is asked to launch kernels. */
EXPORT void layers_first_kernel(void) {}
EXPORT void layers_second_kernel(void) {}

static void copy(int kind, size_t bytes, uint64_t stream)
{
	struct layers_parameters box = {.extent = {bytes, 3, 5}, .kind = kind};
	char to[8], from[8] = {0};

	cudaMemcpyAsync(to, from, bytes, kind, stream);
	cudaMemcpy(to, from, 2 * bytes, kind);
	cudaMemcpy2D(to, 8, from, 8, bytes, 7, kind);
	cudaMemcpy2DArrayToArray(to, 0, 0, from, 0, 0, bytes, 9, kind);
	cudaMemcpy3D(&box);
}

static void launch_host_function(int which, unsigned blocks)
{
	struct layers_dim3 grid = {blocks, 1, 1}, one = {1, 1, 1};

	cudaLaunchKernel(which ? layers_second_kernel : layers_first_kernel, grid, one, 0, 0, 0);
}

static void use_device(int device)
{
	struct layers_properties properties;
	uint64_t out;

	cudaGetDeviceProperties(&properties, device);
	cudaSetDevice(device);
	cudaMalloc(&out, 4096);
}

static void launch_handles(void)
{
	struct layers_dim3 one = {1, 1, 1};
	uint64_t first, named;

	__cudaRegisterFunction(0, (const char *)layers_first_kernel, 0, "_Z9registeredPf", 0, 0, 0, 0, 0, 0);
	__cudaGetKernel(&first, layers_first_kernel);
	cudaLibraryGetKernel(&named, 0x7000, "of_library");
	cudaLaunchKernel((void *)first, one, one, 0, 0, 0);
	cudaLaunchKernel((void *)named, one, one, 0, 0, 0);
	cudaLaunchKernel(layers_second_kernel, one, one, 0, 0, 0);
}

/* A thread that makes communicators in a group and ends in it; where an id is wanted, only if it has that one. */
struct left_group {
	uint64_t made;
	pid_t wanted, tid;
};

static void *leave_in_group(void *argument)
{
	static uint64_t stands_at[16];
	struct left_group *left = argument;
	struct layers_id id = {"id"};

	left->tid = gettid();
	if (left->wanted && left->tid != left->wanted)
		return 0;
	ncclGroupStart();
	for (uint64_t i = 0; i < left->made && i < 16; i++)
		ncclCommInitRank(&stands_at[i], 8, id, 5);
	return 0;
}

/* `wanted` 0: any id. */
static void end_in_group(uint64_t made, pid_t wanted)
{
	struct left_group left = {.made = made, .wanted = wanted};
	int fd = wanted ? open("/proc/sys/kernel/ns_last_pid", O_WRONLY) : -1;
	pthread_t thread;

	for (int i = 0; i < 200 && (!left.tid || (wanted && left.tid != wanted)); i++) {
		if (wanted && dprintf(fd, "%d", wanted - 1) < 0)
			exit(4);
		if (pthread_create(&thread, 0, leave_in_group, &left) || pthread_join(thread, 0))
			exit(5);
	}
	if (wanted && (close(fd) || left.tid != wanted))
		exit(6);
}

static void run(const char *verb, uint64_t count, uint64_t a, uint64_t b)
{
	struct layers_dim3 one = {1, 1, 1};
	struct layers_id id = {"id"};
	struct layers_shape shape = {.width_2d = a, .height_2d = b, .width_3d = a, .height_3d = b, .depth_3d = 3};
	size_t sizes[128];
	uint64_t out;
	int left_out[] = {6, 1, 3}, many[20] = {0}, answer;

	for (size_t i = 0; i < 128; i++)
		sizes[i] = a;
	for (uint64_t i = 0; i < count; i++) {
		if (!strcmp(verb, "driver"))
			cuMemAlloc_v2(&out, a);
		else if (!strcmp(verb, "runtime"))
			cudaMalloc(&out, a);
		else if (!strcmp(verb, "sync"))
			cudaStreamSynchronize(a);
		else if (!strcmp(verb, "launch"))
			cudaLaunchKernel((void *)a, one, one, 0, 0, b);
		else if (!strcmp(verb, "copy"))
			copy((int)a, b, 0);
		else if (!strcmp(verb, "copyalone"))
			copy((int)a, b, 1);
		else if (!strcmp(verb, "drivercopy"))
			cuMemcpyAsync(1, 2, a, b);
		else if (!strcmp(verb, "kernel"))
			launch_host_function((int)a, (unsigned)b);
		else if (!strcmp(verb, "handles"))
			launch_handles();
		else if (!strcmp(verb, "device"))
			use_device((int)a);
		else if (!strcmp(verb, "copy2d"))
			cuMemcpy2D_v2(&shape);
		else if (!strcmp(verb, "copy3d"))
			cuMemcpy3DAsync_v2(&shape, 0);
		else if (!strcmp(verb, "batch"))
			cuMemcpyBatchAsync(0, 0, sizes, b, 0, 0, 0, 0, 0);
		else if (!strcmp(verb, "init"))
			ncclCommInitRank(&communicators[i], (int)a, id, (int)b);
		else if (!strcmp(verb, "all"))
			ncclCommInitAll(communicators, (int)a, 0);
		else if (!strcmp(verb, "split"))
			ncclCommSplit(communicators[a], (int)b, 0, &communicators[a + 1], 0);
		else if (!strcmp(verb, "scalable"))
			ncclCommInitRankScalable(&communicators[0], (int)a, (int)b, 1, &id, 0);
		else if (!strcmp(verb, "shrink"))
			ncclCommShrink(communicators[a], left_out, 3, &communicators[b], 0, 0);
		else if (!strcmp(verb, "shrink_far"))
			ncclCommShrink(communicators[a], many, 20, &communicators[b], 0, 0);
		else if (!strcmp(verb, "grow"))
			ncclCommGrow(communicators[a], (int)b, 0, -1, &communicators[a + 1], 0);
		else if (!strcmp(verb, "join"))
			ncclCommGrow(0, (int)a, &id, (int)b, &communicators[0], 0);
		else if (!strcmp(verb, "ask"))
			ncclCommCount(communicators[a], &answer), ncclCommUserRank(communicators[a], &answer);
		else if (!strcmp(verb, "ask_device"))
			ncclCommCuDevice(communicators[a], &answer);
		else if (!strcmp(verb, "ask_none"))
			ncclCommCount(0, &answer);
		else if (!strcmp(verb, "group"))
			ncclGroupStart();
		else if (!strcmp(verb, "group_end"))
			ncclGroupEnd();
		else if (!strcmp(verb, "group_dropped"))
			ncclGroupSimulateEnd(0);
		else if (!strcmp(verb, "left_group")) /* communicators, the thread's id */
			end_in_group(a, (pid_t)b);
		else if (!strcmp(verb, "destroy"))
			ncclCommDestroy(communicators[a]);
		else if (!strcmp(verb, "allreduce"))
			ncclAllReduce(0, 0, a, (int)b, 0, communicators[0], 5);
		else if (!strcmp(verb, "busy"))
			ncclAllReduce(0, 0, a, (int)b, 0, communicators[0], 7);
		else if (!strcmp(verb, "bad"))
			ncclAllReduce(0, 0, a, (int)b, 0, 0, 5);
		else if (!strcmp(verb, "reduce"))
			ncclReduce(0, 0, a, (int)b, 0, 0, communicators[0], 5);
	}
}

int main(void)
{
	unsigned long long count, a, b;
	char verb[32];

	puts("ok");
	fflush(stdout);
	while (scanf("%31s %llu %llu %llu", verb, &count, &a, &b) == 4) {
		run(verb, count, a, b);
		puts("ok");
		fflush(stdout);
	}
	return 0;
}
