// SPDX-License-Identifier: Apache-2.0
/*
 * A server of many requests whose states follow from their numbers. It reads commands from stdin, one a line, and
 * answers each with `ok` when all is said; it ends with its stdin. Numbers are in the tests, not here.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "target.h"

#define WORD(stage, modality) ((uint64_t)(stage) | (uint64_t)(modality) << 8)
#define NO_WORD WORD(255, 5)
#define FIRST 100000 /* hash of request 0 */

struct batch_member {
	uint64_t request_hash;
	uint32_t tokens;
	uint8_t stage, modality;
	uint16_t pad;
};

struct hotstage_batch {
	uint32_t version, size;
	uint64_t batch_id, word;
	uint32_t tokens_total;
	uint16_t members, members_total;
	struct batch_member member[64];
};

void hotstage_mark_stage_name(uint64_t stage, const char *name);
void hotstage_mark_batch_begin(uint64_t batch_id, uint64_t word);
void hotstage_mark_batch_end(const struct hotstage_batch *batch, uint64_t restored);
void hotstage_mark_embedding(uint64_t request_hash, uint64_t word, const void *data, uint64_t shape);

static void launch(uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		cuLaunchKernel(0, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0);
}

static void begin(uint64_t number)
{
	struct hotstage_request request = {.version = 1, .size = sizeof(request), .request_hash = FIRST + number};

	snprintf(request.id, sizeof(request.id), "r-%llu", (unsigned long long)number);
	strcpy(request.endpoint, "/v1/chat");
	hotstage_mark_request_begin(&request, FIRST + number);
}

/*
 * One thread, as under asyncio: every request is at its own step, and each step of one is followed by a step of
 * another. Steps 0 to 3 are spans, step 4 is synchronous work: 1 to 7 launches. Request n stops after 1 to 5 steps.
 */
static void step(uint64_t number, uint64_t at)
{
	uint64_t word = WORD(3 + at, number % 4);

	if (at < 4) {
		hotstage_mark_span_begin(word, FIRST + number, number);
		return;
	}
	hotstage_mark_stage_begin(word, FIRST + number, number);
	launch(number % 7 + 1);
	hotstage_mark_stage_end(word, FIRST + number, NO_WORD, number);
}

static void interleave(uint64_t count)
{
	for (uint64_t n = 0; n < count; n++)
		begin(n);
	for (uint64_t at = 0; at < 5; at++)
		for (uint64_t i = 0; i < count; i++) {
			uint64_t n = (i * 7919 + at * 31) % count; /* another order in each round */

			if (at > n % 5)
				continue;
			if (at && at - 1 < 4)
				hotstage_mark_span_end(WORD(3 + at - 1, n % 4), FIRST + n, n);
			step(n, at);
		}
}

/* Members 0 to count - 1, member n with n + 1 tokens in stage 12 or 13, and so many launches and bytes for all. */
static void batch(uint64_t id, uint64_t count, uint64_t launches)
{
	static struct hotstage_batch part;
	uint64_t word = WORD(13, 0);

	hotstage_mark_batch_begin(id, word);
	launch(launches);
	cuMemcpyHtoD_v2(1, "", 1000);
	for (uint64_t done = 0; done < count; done += part.members) {
		uint64_t left = count - done;

		part = (struct hotstage_batch){.version = 1, .size = sizeof(part), .batch_id = id, .word = word};
		part.tokens_total = (uint32_t)(count * (count + 1) / 2);
		part.members_total = (uint16_t)count;
		part.members = left < 64 ? left : 64;
		for (uint64_t i = 0; i < part.members; i++)
			part.member[i] = (struct batch_member){.request_hash = FIRST + done + i,
							       .tokens = (uint32_t)(done + i + 1),
							       .stage = (done + i) % 2 ? 13 : 12};
		hotstage_mark_batch_end(&part, NO_WORD);
	}
}

/* Within a batch of request 1: work for request 0 by name, and for a part of the batch; before, between, after. */
static void nested(uint64_t id)
{
	struct hotstage_batch part = {.version = 1, .size = sizeof(part), .batch_id = id, .tokens_total = 1, .members = 1};

	part.member[0] = (struct batch_member){.request_hash = FIRST + 1, .tokens = 1, .stage = 12};
	hotstage_mark_batch_begin(id, WORD(13, 0));
	launch(10);
	hotstage_mark_stage_begin(WORD(8, 1), FIRST, 0);
	launch(2);
	hotstage_mark_stage_end(WORD(8, 1), FIRST, WORD(13, 0), 0);
	launch(20);
	hotstage_mark_stage_begin(WORD(9, 1), 0, 0);
	launch(1);
	hotstage_mark_stage_end(WORD(9, 1), 0, WORD(13, 0), 0);
	launch(40);
	hotstage_mark_batch_end(&part, NO_WORD);
}

/* What no server would say. */
static void lie(uint64_t id, uint64_t parts, uint64_t members)
{
	struct hotstage_batch part = {.version = 1, .batch_id = id, .tokens_total = 1, .members = (uint16_t)members};

	for (int i = 0; i < 64; i++)
		part.member[i] = (struct batch_member){.request_hash = FIRST, .tokens = 0xffffffff, .stage = 12};
	hotstage_mark_batch_begin(id, WORD(13, 0));
	launch(10);
	for (uint64_t i = 0; i < parts; i++)
		hotstage_mark_batch_end(&part, NO_WORD);
	hotstage_mark_batch_end((struct hotstage_batch *)8, NO_WORD);
	part.batch_id = id + 1;
	hotstage_mark_batch_end(&part, NO_WORD);
}

static void *burst(void *argument)
{
	const uint64_t *range = argument;

	for (uint64_t n = range[0]; n < range[1]; n++) {
		begin(n);
		hotstage_mark_span_begin(WORD(12, 0), FIRST + n, 1);
		hotstage_mark_span_end(WORD(12, 0), FIRST + n, 1);
		hotstage_mark_request_end(FIRST + n, 0, 1);
	}
	return 0;
}

static void bursts(uint64_t count, uint64_t threads)
{
	pthread_t running[8];
	uint64_t ranges[8][2];

	for (uint64_t i = 0; i < threads && i < 8; i++) {
		ranges[i][0] = count / threads * i;
		ranges[i][1] = i + 1 == threads ? count : count / threads * (i + 1);
		pthread_create(&running[i], 0, burst, ranges[i]);
	}
	for (uint64_t i = 0; i < threads && i < 8; i++)
		pthread_join(running[i], 0);
}

static void names(uint64_t count, uint64_t first_id, uint64_t ids)
{
	char name[32] = "";

	for (uint64_t i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "made-up-%llu", (unsigned long long)i);
		hotstage_mark_stage_name(first_id + i % ids, name);
	}
}

/* A megabyte without an end where a name and a record are expected: only what fits is read. */
static void megabyte(uint64_t number)
{
	char *text = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memset(text, 'x', 1 << 20);
	hotstage_mark_stage_name(40, text);
	hotstage_mark_request_begin((struct hotstage_request *)text, FIRST + number);
	munmap(text, 1 << 20);
}

/* All stages and modalities that a word can say, each with a launch. */
static void words(void)
{
	for (uint64_t word = 0; word < 65536; word++) {
		hotstage_mark_stage_begin(word, 0, 0);
		launch(1);
	}
	hotstage_mark_stage_end(0, 0, NO_WORD, 0);
}

/* `begins` of a span without an end in between, then as many ends. */
static void spans(uint64_t number, uint64_t word, uint64_t begins)
{
	for (uint64_t i = 0; i < begins; i++)
		hotstage_mark_span_begin(word, FIRST + number, 1);
	for (uint64_t i = 0; i < begins; i++)
		hotstage_mark_span_end(word, FIRST + number, 1);
}

static void spin(uint64_t milliseconds)
{
	struct timespec began, now;

	clock_gettime(CLOCK_MONOTONIC, &began);
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while ((uint64_t)((now.tv_sec - began.tv_sec) * 1000 + (now.tv_nsec - began.tv_nsec) / 1000000) < milliseconds);
}

static void obey(const char *verb, uint64_t a, uint64_t b, uint64_t c)
{
	if (!strcmp(verb, "begin"))
		begin(a);
	else if (!strcmp(verb, "end"))
		hotstage_mark_request_end(FIRST + a, b, c);
	else if (!strcmp(verb, "stage_begin"))
		hotstage_mark_stage_begin(b, FIRST + a, c);
	else if (!strcmp(verb, "stage_end"))
		hotstage_mark_stage_end(b, FIRST + a, NO_WORD, c);
	else if (!strcmp(verb, "span_begin"))
		hotstage_mark_span_begin(b, FIRST + a, c);
	else if (!strcmp(verb, "span_end"))
		hotstage_mark_span_end(b, FIRST + a, c);
	else if (!strcmp(verb, "tokens"))
		hotstage_mark_tokens(FIRST + a, b, c);
	else if (!strcmp(verb, "embedding"))
		hotstage_mark_embedding(FIRST + a, b, verb, c);
	else if (!strcmp(verb, "context"))
		cuCtxSetCurrent(a);
	else if (!strcmp(verb, "retain"))
		cuDevicePrimaryCtxRetain(&c, (int)a);
	else if (!strcmp(verb, "launch"))
		launch(a);
	else if (!strcmp(verb, "block")) /* until a byte comes in */
		cuStreamSynchronize(TARGET_BLOCK);
	else if (!strcmp(verb, "interleave"))
		interleave(a);
	else if (!strcmp(verb, "batch"))
		batch(a, b, c);
	else if (!strcmp(verb, "nested"))
		nested(a);
	else if (!strcmp(verb, "lie"))
		lie(a, b, c);
	else if (!strcmp(verb, "burst"))
		bursts(a, b);
	else if (!strcmp(verb, "names"))
		names(a, b, c);
	else if (!strcmp(verb, "megabyte"))
		megabyte(a);
	else if (!strcmp(verb, "words"))
		words();
	else if (!strcmp(verb, "spans"))
		spans(a, b, c);
	else if (!strcmp(verb, "pairs"))
		for (uint64_t i = 0; i < c; i++)
			spans(a, b, 1);
	else if (!strcmp(verb, "spin"))
		spin(a);
	else
		exit(3);
}

int main(void)
{
	char line[256], verb[32];
	unsigned long long a, b, c;

	setvbuf(stdin, 0, _IONBF, 0);
	setvbuf(stdout, 0, _IOLBF, 0);
	puts("ok");
	while (fgets(line, sizeof(line), stdin)) {
		a = b = c = 0;
		if (sscanf(line, "%31s %llu %llu %llu", verb, &a, &b, &c) < 1)
			exit(3);
		obey(verb, a, b, c);
		puts("ok");
	}
	return 0;
}
