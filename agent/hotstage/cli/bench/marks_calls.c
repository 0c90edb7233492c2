// SPDX-License-Identifier: Apache-2.0
/*
 * The target of `bench marks` from C: pinned to one CPU, it marks in slices, one of each kind a round, and prints what
 * each took.
 *
 *   marks_calls LIBRARY CPU CALLS   ->   `ready WATCHED`, then after each line on stdin: `ns ns ns ...`
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "hotstage_marks.h"

#define MEMBERS 8

#define FUNCTIONS(X)          \
	X(hotstage_is_watched)    \
	X(hotstage_request_begin) \
	X(hotstage_request_end)   \
	X(hotstage_request_hash)  \
	X(hotstage_stage_begin)   \
	X(hotstage_stage_end)     \
	X(hotstage_span_begin)    \
	X(hotstage_span_end)      \
	X(hotstage_batch_begin)   \
	X(hotstage_batch_end)     \
	X(hotstage_tokens)

#define X(name) static __typeof__(name) *p_##name;
FUNCTIONS(X)
#undef X

static struct hotstage_batch_member members[MEMBERS];
static uint64_t request;

static void stage(void)
{
	struct hotstage_scope scope;

	p_hotstage_stage_begin(&scope, HOTSTAGE_STAGE_VISION_ENCODE, HOTSTAGE_MODALITY_IMAGE, request, 1024);
	p_hotstage_stage_end(&scope);
}

static void span(void)
{
	struct hotstage_scope scope;

	p_hotstage_span_begin(&scope, HOTSTAGE_STAGE_QUEUE, HOTSTAGE_MODALITY_IMAGE, request, 1024);
	p_hotstage_span_end(&scope);
}

static void tokens(void)
{
	p_hotstage_tokens(request, 17);
}

static void batch(void)
{
	struct hotstage_batch_scope scope;

	p_hotstage_batch_begin(&scope, members, MEMBERS, HOTSTAGE_MODALITY_MIXED, 0);
	p_hotstage_batch_end(&scope);
}

static void whole_request(void)
{
	uint64_t other = p_hotstage_request_begin("c-other", "/v1/vision", "i-0", "vlm", NULL);

	p_hotstage_request_end(other, HOTSTAGE_OUTCOME_OK, 17);
}

static void (*const KINDS[])(void) = {stage, span, tokens, batch, whole_request};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t slice_ns(void (*kind)(void), unsigned calls)
{
	uint64_t began;

	kind();
	began = now_ns();
	for (unsigned i = 0; i < calls; i++)
		kind();
	return now_ns() - began;
}

static int find_functions(const char *path)
{
	void *library = dlopen(path, RTLD_NOW);

	if (!library)
		return 0;
#define X(name)                                              \
	p_##name = (__typeof__(p_##name))dlsym(library, #name); \
	if (!p_##name)                                       \
		return 0;
	FUNCTIONS(X)
#undef X
	return 1;
}

int main(int argc, char **argv)
{
	unsigned calls;
	cpu_set_t cpus;
	char line[16], id[16];

	if (argc < 4 || !find_functions(argv[1]))
		return 2;
	calls = (unsigned)atoi(argv[3]);
	CPU_ZERO(&cpus);
	CPU_SET((unsigned)atoi(argv[2]), &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus))
		return 2;
	request = p_hotstage_request_begin("c", "/v1/vision", "i-0", "vlm", NULL);
	for (unsigned i = 0; i < MEMBERS; i++) {
		snprintf(id, sizeof(id), "c-%u", i);
		members[i].request_hash = p_hotstage_request_begin(id, "/v1/vision", "i-0", "vlm", NULL);
		members[i].tokens = 4;
		members[i].stage = HOTSTAGE_STAGE_LLM_DECODE;
		members[i].modality = HOTSTAGE_MODALITY_IMAGE;
	}
	printf("ready %d\n", p_hotstage_is_watched());
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		for (unsigned kind = 0; kind < sizeof(KINDS) / sizeof(*KINDS); kind++)
			printf("%lu ", (unsigned long)slice_ns(KINDS[kind], calls));
		putchar('\n');
		fflush(stdout);
	}
	return 0;
}
