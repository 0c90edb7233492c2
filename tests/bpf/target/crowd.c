// SPDX-License-Identifier: Apache-2.0
/*
 * A server that holds many requests at once, each in a state that follows from its number, while others come and go
 * and threads launch. It speaks the shipped marks library. `crowd THREADS HELD LAUNCHERS PASSERS`: answers `ok` when
 * all are held; then, a line on stdin each: `load` begins, `calm` ends the launches and the passing requests, with
 * `ok`; it ends with its stdin. The same numbers are in the test.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hotstage_marks.h"

#define WAYS 6 /* stages that a request may have behind it */
#define FIRST_OPEN 8

int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
		   unsigned shared_bytes, uint64_t stream, void **arguments, void **extra);

static atomic_int held, loaded;
static int threads, requests;
static pthread_mutex_t ended = PTHREAD_MUTEX_INITIALIZER; /* held until the end: what its waiters wait for */

static uint64_t begin(const char *name, int number, uint64_t digest)
{
	char id[32];

	snprintf(id, sizeof(id), "%s-%d", name, number);
	return hotstage_request_begin_with_digest(id, "/v1/crowd", "i-0", "vlm", NULL, digest);
}

static void hold(int number)
{
	struct hotstage_scope scope;
	uint64_t request = begin("held", number, 1000 + number);

	for (int stage = 0; stage < number % WAYS; stage++) {
		hotstage_span_begin(&scope, stage, number % 4, request, number);
		hotstage_span_end(&scope);
	}
	hotstage_span_begin(&scope, FIRST_OPEN + number % WAYS, number % 4, request, number);
}

/* Holds its share; its last request it works for itself. */
static void *server(void *argument)
{
	int first = (int)(intptr_t)argument, number = first;
	struct hotstage_scope scope;
	uint64_t request;

	for (; number + threads < requests; number += threads)
		hold(number);
	request = begin("held", number, 1000 + number);
	hotstage_stage_begin(&scope, FIRST_OPEN + number % WAYS, number % 4, request, number);
	for (int launch = 0; launch < 10 + first; launch++)
		cuLaunchKernel(0, 1, 1, 1, 32, 1, 1, 0, 0x5550, 0, 0);
	atomic_fetch_add(&held, 1);
	pthread_mutex_lock(&ended);
	return NULL;
}

static void *launcher(void *unused)
{
	struct hotstage_scope scope;

	hotstage_stage_begin(&scope, HOTSTAGE_STAGE_LLM_DECODE, HOTSTAGE_MODALITY_TEXT, 0, 0);
	while (atomic_load(&loaded))
		cuLaunchKernel(0, 1, 1, 1, 32, 1, 1, 0, 0x7770, 0, 0);
	hotstage_stage_end(&scope);
	return unused;
}

static void *passer(void *argument)
{
	struct hotstage_scope scope;

	for (int number = (int)(intptr_t)argument; atomic_load(&loaded); number += 64) {
		uint64_t request = begin("passing", number, 0);

		hotstage_stage_begin(&scope, HOTSTAGE_STAGE_TOKENIZE, HOTSTAGE_MODALITY_TEXT, request, 3);
		cuLaunchKernel(0, 1, 1, 1, 32, 1, 1, 0, 0x7770, 0, 0);
		hotstage_stage_end(&scope);
		hotstage_request_end(request, HOTSTAGE_OUTCOME_OK, 1);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t crowd[64], busy[64];
	int launchers, passers, each;
	char line[32];

	if (argc != 5)
		return 3;
	threads = atoi(argv[1]), requests = atoi(argv[2]), launchers = atoi(argv[3]), passers = atoi(argv[4]);
	setvbuf(stdout, 0, _IOLBF, 0);
	pthread_mutex_lock(&ended);
	for (each = 0; each < threads; each++)
		pthread_create(&crowd[each], 0, server, (void *)(intptr_t)each);
	while (atomic_load(&held) < threads)
		sched_yield();
	puts("ok");
	while (fgets(line, sizeof(line), stdin)) {
		if (!strcmp(line, "load\n")) {
			atomic_store(&loaded, 1);
			for (each = 0; each < launchers + passers; each++)
				pthread_create(&busy[each], 0, each < launchers ? launcher : passer,
					       (void *)(intptr_t)each);
		} else if (atomic_exchange(&loaded, 0)) {
			for (each = 0; each < launchers + passers; each++)
				pthread_join(busy[each], 0);
		}
		puts("ok");
	}
	return 0;
}
