// SPDX-License-Identifier: Apache-2.0
/*
 * Ranges to marks, in fixed memory. A push/pop range is a stage of its thread; a start/end range may end on another
 * thread, so it is a span of a request, or a request itself.
 */
#include <stddef.h>

#include "abi.h"
#include "ranges.h"

#define MAX_DEPTH 64 /* ranges of one domain on a thread, matched or not; deeper ones are not looked at */
#define MAX_STARTED 4096
#define TRACKED (1ULL << 63)

struct started_range {
	uint64_t id; /* 0 free, 1 being filled in or emptied */
	uint64_t request_hash;
	struct hotstage_scope scope;
	uint32_t is_request;
};

__thread struct thread_ranges thread_ranges;
static struct started_range started[MAX_STARTED];
static uint64_t next_id = 1;
static uint64_t counters[COUNTERS];

void range_count(enum counter counter)
{
	__atomic_fetch_add(&counters[counter], 1, __ATOMIC_RELAXED);
}

static uint64_t request_around(const struct thread_ranges *thread)
{
	return thread->open_count ? thread->open[thread->open_count - 1].request_hash : 0;
}

static uint64_t request_of(const struct named *named, const struct thread_ranges *thread)
{
	return named->id[0] ? hotstage_request_hash(named->id) : request_around(thread);
}

static int open_range(struct thread_ranges *thread, uint32_t domain, const struct named *named)
{
	struct open_range *range = &thread->open[thread->open_count];
	int is_request = DECISION_ACTION(named->result) == RULE_REQUEST;

	if (is_request && !named->id[0])
		return 0;
	if (thread->open_count == MAX_OPEN) {
		range_count(COUNT_TOO_DEEP);
		return 0;
	}
	range->request_hash = request_of(named, thread);
	range->domain = (uint8_t)domain;
	range->is_request = (uint8_t)is_request;
	thread->open_count++;
	if (is_request)
		hotstage_request_begin(named->id, NULL, NULL, NULL, NULL);
	else
		hotstage_stage_begin(&range->scope, DECISION_STAGE(named->result) | HOTSTAGE_FROM_NVTX, DECISION_MODALITY(named->result),
				     range->request_hash, 0);
	return 1;
}

static void begin_again(struct open_range *range)
{
	uint64_t word = range->scope.word;

	hotstage_stage_begin(&range->scope, (word & 0xff) | HOTSTAGE_FROM_NVTX, word >> 8 & 0xff, range->request_hash, 0);
}

/* The domain's newest matched range. Ranges of other domains need not nest: those above it stay open. */
static void close_range(struct thread_ranges *thread, uint32_t domain)
{
	uint32_t at = thread->open_count;
	int was_request;

	while (at && thread->open[at - 1].domain != domain)
		at--;
	if (!at--)
		return;
	was_request = thread->open[at].is_request;
	if (was_request)
		hotstage_request_end(thread->open[at].request_hash, HOTSTAGE_OUTCOME_OK, 0);
	else
		hotstage_stage_end(&thread->open[at].scope); /* and the stages above it */
	thread->open_count--;
	for (uint32_t i = at; i < thread->open_count; i++) {
		thread->open[i] = thread->open[i + 1];
		if (!was_request && !thread->open[i].is_request)
			begin_again(&thread->open[i]);
	}
}

int range_push(struct thread_ranges *thread, uint32_t domain, const struct named *named)
{
	struct domain_ranges *ranges = &thread->domains[domain];
	int is_matched = DECISION_ACTION(named->result) != RULE_NOTHING;

	if (ranges->depth < MAX_DEPTH) {
		ranges->matched <<= 1;
		if (is_matched && open_range(thread, domain, named))
			ranges->matched |= 1;
	} else if (is_matched) {
		range_count(COUNT_TOO_DEEP);
	}
	return (int)ranges->depth++;
}

int range_pop(struct thread_ranges *thread, uint32_t domain)
{
	struct domain_ranges *ranges = &thread->domains[domain];

	if (!ranges->depth) {
		range_count(COUNT_UNBALANCED);
		return ABI_NO_PUSH_POP_TRACKING;
	}
	if (--ranges->depth < MAX_DEPTH) {
		int was_matched = ranges->matched & 1;

		ranges->matched >>= 1;
		if (was_matched)
			close_range(thread, domain);
	}
	return (int)ranges->depth;
}

/* A free place that is now ours, or NULL. */
static struct started_range *take_place(uint64_t number)
{
	for (uint32_t i = 0; i < 64; i++) {
		struct started_range *range = &started[(number + i) % MAX_STARTED];
		uint64_t is_free = 0;

		if (__atomic_compare_exchange_n(&range->id, &is_free, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			return range;
	}
	return NULL;
}

/* A start/end range belongs to no thread: it says something only of the request that its name or its thread names. */
uint64_t range_start(const struct thread_ranges *thread, const struct named *named)
{
	uint64_t number = __atomic_fetch_add(&next_id, 1, __ATOMIC_RELAXED), id;
	struct started_range *range;
	uint64_t request_hash;

	if (DECISION_ACTION(named->result) == RULE_NOTHING)
		return number;
	request_hash = request_of(named, thread);
	range = request_hash ? take_place(number) : NULL;
	if (!range) {
		range_count(request_hash ? COUNT_TOO_MANY_STARTED : COUNT_NO_REQUEST);
		return number;
	}
	range->request_hash = request_hash;
	range->is_request = DECISION_ACTION(named->result) == RULE_REQUEST;
	if (range->is_request)
		hotstage_request_begin(named->id, NULL, NULL, NULL, NULL);
	else
		hotstage_span_begin(&range->scope, DECISION_STAGE(named->result) | HOTSTAGE_FROM_NVTX, DECISION_MODALITY(named->result),
				    request_hash, 0);
	id = TRACKED | (number << 12 & ~TRACKED) | (uint64_t)(range - started);
	__atomic_store_n(&range->id, id, __ATOMIC_RELEASE);
	return id;
}

void range_end(uint64_t id)
{
	struct started_range *range = &started[id % MAX_STARTED];

	if (!(id & TRACKED))
		return;
	if (!__atomic_compare_exchange_n(&range->id, &id, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
		range_count(COUNT_UNBALANCED);
		return;
	}
	if (range->is_request)
		hotstage_request_end(range->request_hash, HOTSTAGE_OUTCOME_OK, 0);
	else
		hotstage_span_end(&range->scope);
	__atomic_store_n(&range->id, 0, __ATOMIC_RELEASE);
}

uint64_t range_counter(enum counter counter)
{
	return __atomic_load_n(&counters[counter], __ATOMIC_RELAXED);
}
