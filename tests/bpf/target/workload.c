// SPDX-License-Identifier: Apache-2.0
/*
 * A process that makes calls with known answers. It reads commands from stdin, one a line, and answers each with
 * `ok` when the calls are made; it ends with its stdin. Numbers are in the tests, not here.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "target.h"

#define WORD(stage, modality) ((uint64_t)(stage) | (uint64_t)(modality) << 8)
#define NO_WORD WORD(255, 5)

static void launch(uint64_t count, uint64_t stream)
{
	for (uint64_t i = 0; i < count; i++)
		cuLaunchKernel(0, 1, 1, 1, 32, 1, 1, 0, stream, 0, 0);
}

/* Looks a function up by its name and launches it; `how` 1 by its kernel, 2 by the kernel's function. */
static void launch_named(const char *name, uint64_t count, uint64_t stream, uint64_t how)
{
	struct launch_config config = {.stream = stream};
	void *function = 0;

	if (!how) {
		cuModuleGetFunction(&function, 0, name);
	} else {
		cuLibraryGetKernel(&function, 0, name);
		if (how == 2)
			cuKernelGetFunction(&function, function);
	}
	for (uint64_t i = 0; i < count; i++) {
		if (how)
			cuLaunchKernelEx(&config, function, 0, 0);
		else
			cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, 0, 0);
	}
}

/* Launches `kernels` functions in turn: layer_0, layer_1, .. */
static void cycle(uint64_t launches, uint64_t kernels)
{
	void *functions[64];
	char name[32];

	kernels = kernels < 64 ? kernels : 64;
	for (uint64_t i = 0; i < kernels; i++) {
		snprintf(name, sizeof(name), "layer_%u", (unsigned)i);
		cuModuleGetFunction(&functions[i], 0, name);
	}
	for (uint64_t i = 0; i < launches; i++)
		cuLaunchKernel(functions[i % kernels], 1, 1, 1, 32, 1, 1, 0, 0, 0, 0);
}

/* Each launch is of another function. */
static void flood(uint64_t launches)
{
	char name[32];

	for (uint64_t i = 0; i < launches; i++) {
		snprintf(name, sizeof(name), "flood_%llu", (unsigned long long)i);
		launch_named(name, 1, 0, 0);
	}
}

static void launch_function(uint64_t count, uint64_t handle)
{
	for (uint64_t i = 0; i < count; i++)
		cuLaunchKernel((void *)handle, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0);
}

/* A step of decode: a graph, a few kernels, the tokens to the host, a wait. */
static void decode(uint64_t steps, uint64_t launches)
{
	char tokens[64];

	for (uint64_t i = 0; i < steps; i++) {
		cuGraphLaunch(0, 0);
		launch(launches, 0);
		cuMemcpyDtoH_v2(tokens, 1, sizeof(tokens));
	}
}

/* A step of prefill: its input to the device, a long burst, a wait. */
static void prefill(uint64_t steps, uint64_t launches)
{
	for (uint64_t i = 0; i < steps; i++) {
		cuMemcpyHtoD_v2(1, "input", 4096);
		launch(launches, 0);
		cuStreamSynchronize(0);
	}
}

/* What a model launches eagerly, and what comes back for it; that copy waits. */
static void burst(const char *how, uint64_t launches, uint64_t blocks, uint64_t output)
{
	struct launch_config config = {.grid = {(uint32_t)blocks, 1, 1}};

	for (uint64_t i = 0; i < launches; i++) {
		if (!strcmp(how, "ex"))
			cuLaunchKernelEx(&config, 0, 0, 0);
		else
			cuLaunchKernel(0, (unsigned)blocks, 1, 1, 32, 1, 1, 0, 0, 0, 0);
	}
	cuMemcpyDtoH_v2(0, 1, output);
}

static void launch_ex(uint64_t count, uint64_t stream)
{
	struct launch_config config = {.stream = stream};

	for (uint64_t i = 0; i < count; i++)
		cuLaunchKernelEx(&config, 0, 0, 0);
}

/* A call whose caller a stack names. `event` 0 fails. */
__attribute__((noinline)) static int wait_for_event(uint64_t event)
{
	int result = cuEventSynchronize(event);

	__asm__ volatile("" : : : "memory"); /* no tail call */
	return result;
}

static void call(const char *name, uint64_t count, uint64_t argument)
{
	uint64_t out = 0, pitch = 0;

	for (uint64_t i = 0; i < count; i++) {
		if (!strcmp(name, "alloc"))
			cuMemAlloc_v2(&out, argument);
		else if (!strcmp(name, "pitch"))
			cuMemAllocPitch_v2(&out, &pitch, argument, 3, 4);
		else if (!strcmp(name, "free"))
			cuMemFree_v2(argument);
		else if (!strcmp(name, "copy"))
			cuMemcpyHtoD_v2(1, name, argument);
		else if (!strcmp(name, "memset"))
			cuMemsetD32_v2(1, 0, argument);
		else if (!strcmp(name, "wait"))
			cuStreamSynchronize(argument);
		else if (!strcmp(name, "event"))
			cuEventSynchronize(argument);
		else if (!strcmp(name, "waited_event"))
			wait_for_event(argument);
		else if (!strcmp(name, "context"))
			cuCtxSynchronize();
		else if (!strcmp(name, "ptsz"))
			cuLaunchKernel_ptsz(0, 1, 1, 1, 1, 1, 1, 0, argument, 0, 0);
		else if (!strcmp(name, "graph"))
			cuGraphLaunch(0, argument);
	}
}

/* Leaves calls by longjmp, `count` times. */
static void escape(uint64_t count, uint64_t how)
{
	jmp_buf here;

	for (volatile uint64_t i = 0; i < count; i++) {
		target_escape = &here;
		if (!setjmp(here))
			cuStreamSynchronize(how);
	}
}

struct job {
	uint64_t launches, waits;
};

static void *work(void *argument)
{
	const struct job *job = argument;

	launch(job->launches, 0);
	call("wait", job->waits, 0);
	return 0;
}

static void threads(uint64_t count, uint64_t launches, uint64_t waits)
{
	pthread_t running[64];
	struct job job = {launches, waits};

	for (uint64_t i = 0; i < count && i < 64; i++)
		pthread_create(&running[i], 0, work, &job);
	for (uint64_t i = 0; i < count && i < 64; i++)
		pthread_join(running[i], 0);
}

static void begin(const char *id, uint64_t hash)
{
	struct hotstage_request request = {.version = 1, .size = sizeof(request), .request_hash = hash};

	strncpy(request.id, id, sizeof(request.id) - 1);
	strcpy(request.endpoint, "/v1/encode");
	strcpy(request.instance, "i-0");
	strcpy(request.model, "vlm");
	strcpy(request.traceparent, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
	request.input_digest = ~hash;
	hotstage_mark_request_begin(&request, hash);
}

static void device(uint64_t ordinal)
{
	uint64_t context;
	unsigned char uuid[16];

	cuDeviceGetUuid_v2(uuid, (int)ordinal);
	cuDevicePrimaryCtxRetain(&context, (int)ordinal);
	cuCtxSetCurrent(context);
}

static void pushed(uint64_t ordinal, uint64_t launches)
{
	uint64_t context;

	cuDevicePrimaryCtxRetain(&context, (int)ordinal);
	cuCtxPushCurrent_v2(context);
	launch(launches, 0);
	cuCtxPopCurrent_v2(&context);
}

static void obey(const char *verb, const char *name, uint64_t a, uint64_t b, uint64_t c)
{
	if (!strcmp(verb, "launch"))
		launch(a, b);
	else if (!strcmp(verb, "named"))
		launch_named(name, a, b, c);
	else if (!strcmp(verb, "function"))
		launch_function(a, b);
	else if (!strcmp(verb, "cycle"))
		cycle(a, b);
	else if (!strcmp(verb, "flood"))
		flood(a);
	else if (!strcmp(verb, "decode"))
		decode(a, b);
	else if (!strcmp(verb, "prefill"))
		prefill(a, b);
	else if (!strcmp(verb, "burst"))
		burst(name, a, b, c);
	else if (!strcmp(verb, "stream"))
		cuStreamCreateWithPriority(&(uint64_t){0}, (unsigned)a, -(int)b);
	else if (!strcmp(verb, "launch_ex"))
		launch_ex(a, b);
	else if (!strcmp(verb, "call"))
		call(name, a, b);
	else if (!strcmp(verb, "escape"))
		escape(a, b);
	else if (!strcmp(verb, "threads"))
		threads(a, b, c);
	else if (!strcmp(verb, "stage_begin"))
		hotstage_mark_stage_begin(a, b, c);
	else if (!strcmp(verb, "stage_end"))
		hotstage_mark_stage_end(a, b, NO_WORD, c);
	else if (!strcmp(verb, "span_begin"))
		hotstage_mark_span_begin(a, b, c);
	else if (!strcmp(verb, "span_end"))
		hotstage_mark_span_end(a, b, c);
	else if (!strcmp(verb, "tokens"))
		hotstage_mark_tokens(a, b, c);
	else if (!strcmp(verb, "begin"))
		begin(name, a);
	else if (!strcmp(verb, "end"))
		hotstage_mark_request_end(a, b, c);
	else if (!strcmp(verb, "device"))
		device(a);
	else if (!strcmp(verb, "pushed"))
		pushed(a, b);
	else if (!strcmp(verb, "bad_config"))
		cuLaunchKernelEx((const struct launch_config *)1, 0, 0, 0);
	else
		exit(3);
}

int main(void)
{
	char line[640], verb[32], name[512];
	unsigned long long a, b, c;

	setvbuf(stdin, 0, _IONBF, 0);
	setvbuf(stdout, 0, _IOLBF, 0);
	puts("ok");
	while (fgets(line, sizeof(line), stdin)) {
		a = b = c = 0;
		if (sscanf(line, "%31s %511s %llu %llu %llu", verb, name, &a, &b, &c) < 2) /* e.g. "launch - 3" */
			exit(3);
		obey(verb, name, a, b, c);
		puts("ok");
	}
	return 0;
}
