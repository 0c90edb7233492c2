// SPDX-License-Identifier: Apache-2.0
/*
 * libhotstage_nvtx.so: the NVTX ranges of an untouched program become marks.
 *
 * A program that contains NVTX loads the library that NVTX_INJECTION64_PATH names at its first NVTX call, and asks it
 * for functions to call from then on. Ranges that a rule knows (nvtx_rules.txt) become marks through
 * libhotstage_marks.so, whose probe points a watcher knows already; all others cost a few instructions.
 *
 * This runs inside other people's programs: no call here allocates, locks, waits, prints (but for the user's own
 * rules file) or fails. Domains, open ranges, names are bounded; what does not fit is left out and counted. No other
 * injection library is loaded or called. Markers (nvtxMark) have no duration and so no stage: they stay no-ops.
 */
#include <pthread.h>
#include <string.h>

#include "../../include/hotstage_marks.h"
#include "abi.h"
#include "names.h"

#define EXPORT __attribute__((visibility("default")))
#define MAX_OPEN 16  /* matched push/pop ranges open at once on a thread: as deep as the marks' own stack */
#define MAX_DEPTH 64 /* ranges of one domain on a thread, matched or not; deeper ones are not looked at */
#define MAX_STARTED 4096
#define TRACKED (1ULL << 63)

enum counter {
	COUNT_TOO_DEEP = 0,	    /* matched, but MAX_OPEN or MAX_DEPTH were open already */
	COUNT_UNBALANCED = 1,	    /* a pop or an end without its begin */
	COUNT_NO_REQUEST = 2,	    /* a matched start/end range without a request: nobody's span */
	COUNT_TOO_MANY_STARTED = 3, /* matched, but MAX_STARTED were open already */
	COUNT_TOO_MANY_DOMAINS = 4,
	COUNTERS = 5,
};

struct open_range {
	struct hotstage_scope scope;
	uint64_t request_hash; /* of this range, or of the one around it */
	uint8_t domain;
	uint8_t is_request;
};

struct domain_ranges {
	uint64_t matched; /* a bit for each open range, the newest lowest */
	uint32_t depth;
};

struct thread_ranges {
	uint32_t open_count;
	struct domain_ranges domains[MAX_DOMAINS];
	struct open_range open[MAX_OPEN];
	struct seen_names seen;
};

struct started_range {
	uint64_t id; /* 0 free, 1 being filled in or emptied */
	uint64_t request_hash;
	struct hotstage_scope scope;
	uint32_t is_request;
};

static __thread struct thread_ranges thread_ranges;
static struct started_range started[MAX_STARTED];
static uint64_t next_id = 1;
static uint64_t counters[COUNTERS];
static pthread_once_t loaded = PTHREAD_ONCE_INIT;

static void count(enum counter counter)
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
		count(COUNT_TOO_DEEP);
		return 0;
	}
	range->request_hash = request_of(named, thread);
	range->domain = (uint8_t)domain;
	range->is_request = (uint8_t)is_request;
	thread->open_count++;
	if (is_request)
		hotstage_request_begin(named->id, NULL, NULL, NULL, NULL);
	else
		hotstage_stage_begin(&range->scope, DECISION_STAGE(named->result), DECISION_MODALITY(named->result),
				     range->request_hash, 0);
	return 1;
}

static void begin_again(struct open_range *range)
{
	uint64_t word = range->scope.word;

	hotstage_stage_begin(&range->scope, word & 0xff, word >> 8 & 0xff, range->request_hash, 0);
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

static int push(struct thread_ranges *thread, uint32_t domain, const struct named *named)
{
	struct domain_ranges *ranges = &thread->domains[domain];
	int is_matched = DECISION_ACTION(named->result) != RULE_NOTHING;

	if (ranges->depth < MAX_DEPTH) {
		ranges->matched <<= 1;
		if (is_matched && open_range(thread, domain, named))
			ranges->matched |= 1;
	} else if (is_matched) {
		count(COUNT_TOO_DEEP);
	}
	return (int)ranges->depth++;
}

static int pop(uint32_t domain)
{
	struct thread_ranges *thread = &thread_ranges;
	struct domain_ranges *ranges = &thread->domains[domain];

	if (!ranges->depth) {
		count(COUNT_UNBALANCED);
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
static uint64_t start(const struct thread_ranges *thread, const struct named *named)
{
	uint64_t number = __atomic_fetch_add(&next_id, 1, __ATOMIC_RELAXED), id;
	struct started_range *range;
	uint64_t request_hash;

	if (DECISION_ACTION(named->result) == RULE_NOTHING)
		return number;
	request_hash = request_of(named, thread);
	range = request_hash ? take_place(number) : NULL;
	if (!range) {
		count(request_hash ? COUNT_TOO_MANY_STARTED : COUNT_NO_REQUEST);
		return number;
	}
	range->request_hash = request_hash;
	range->is_request = DECISION_ACTION(named->result) == RULE_REQUEST;
	if (range->is_request)
		hotstage_request_begin(named->id, NULL, NULL, NULL, NULL);
	else
		hotstage_span_begin(&range->scope, DECISION_STAGE(named->result), DECISION_MODALITY(named->result),
				    request_hash, 0);
	id = TRACKED | (number << 12 & ~TRACKED) | (uint64_t)(range - started);
	__atomic_store_n(&range->id, id, __ATOMIC_RELEASE);
	return id;
}

static void finish(uint64_t id)
{
	struct started_range *range = &started[id % MAX_STARTED];

	if (!(id & TRACKED))
		return;
	if (!__atomic_compare_exchange_n(&range->id, &id, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
		count(COUNT_UNBALANCED);
		return;
	}
	if (range->is_request)
		hotstage_request_end(range->request_hash, HOTSTAGE_OUTCOME_OK, 0);
	else
		hotstage_span_end(&range->scope);
	__atomic_store_n(&range->id, 0, __ATOMIC_RELEASE);
}

/* What the program calls. A domain's handle is its index; -1, no room for it, is ignored as a library's is. */

static void name_of_event(struct named *named, struct thread_ranges *thread, uint32_t domain,
			  const struct abi_event *event)
{
	named->result = RULE_NOTHING;
	named->id[0] = 0;
	if (!event || event->size < sizeof(*event))
		return;
	if (event->message_type == ABI_MESSAGE_REGISTERED)
		name_of_handle(named, (uintptr_t)event->message);
	else if (event->message_type == ABI_MESSAGE_ASCII)
		name_of_text(named, &thread->seen, domain, event->message);
	else if (event->message_type == ABI_MESSAGE_UNICODE)
		name_of_wide(named, domain, event->message);
}

static int is_ignored(uintptr_t domain)
{
	return domain >= MAX_DOMAINS || domain_is_ignored((uint32_t)domain);
}

static int on_push_a(const char *text)
{
	struct thread_ranges *thread = &thread_ranges;
	struct named named;

	name_of_text(&named, &thread->seen, 0, text);
	return push(thread, 0, &named);
}

static int on_push_w(const wchar_t *text)
{
	struct named named;

	name_of_wide(&named, 0, text);
	return push(&thread_ranges, 0, &named);
}

static int on_domain_push_ex(uintptr_t domain, const struct abi_event *event)
{
	struct thread_ranges *thread;
	struct named named;

	if (is_ignored(domain))
		return ABI_NO_PUSH_POP_TRACKING;
	thread = &thread_ranges;
	name_of_event(&named, thread, (uint32_t)domain, event);
	return push(thread, (uint32_t)domain, &named);
}

static int on_push_ex(const struct abi_event *event)
{
	return on_domain_push_ex(0, event);
}

static int on_domain_pop(uintptr_t domain)
{
	return is_ignored(domain) ? ABI_NO_PUSH_POP_TRACKING : pop((uint32_t)domain);
}

static int on_pop(void)
{
	return on_domain_pop(0);
}

static uint64_t on_start_a(const char *text)
{
	struct thread_ranges *thread = &thread_ranges;
	struct named named;

	name_of_text(&named, &thread->seen, 0, text);
	return start(thread, &named);
}

static uint64_t on_start_w(const wchar_t *text)
{
	struct named named;

	name_of_wide(&named, 0, text);
	return start(&thread_ranges, &named);
}

static uint64_t on_domain_start_ex(uintptr_t domain, const struct abi_event *event)
{
	struct thread_ranges *thread = &thread_ranges;
	struct named named = {.result = RULE_NOTHING};

	if (!is_ignored(domain))
		name_of_event(&named, thread, (uint32_t)domain, event);
	return start(thread, &named);
}

static uint64_t on_start_ex(const struct abi_event *event)
{
	return on_domain_start_ex(0, event);
}

static void on_domain_end(uintptr_t domain, uint64_t id)
{
	(void)domain;
	finish(id);
}

static uintptr_t domain_handle(int domain)
{
	if (domain < 0)
		count(COUNT_TOO_MANY_DOMAINS);
	return domain < 0 ? MAX_DOMAINS : (uintptr_t)domain;
}

static uintptr_t on_domain_create_a(const char *name)
{
	return domain_handle(domain_of_name(name));
}

static uintptr_t on_domain_create_w(const wchar_t *name)
{
	char narrowed[MAX_TEXT];

	text_of_wide(narrowed, name);
	return domain_handle(domain_of_name(narrowed));
}

static uintptr_t on_register_a(uintptr_t domain, const char *text)
{
	return is_ignored(domain) ? handle_of_nothing() : handle_of_text((uint32_t)domain, text);
}

static uintptr_t on_register_w(uintptr_t domain, const wchar_t *text)
{
	return is_ignored(domain) ? handle_of_nothing() : handle_of_wide((uint32_t)domain, text);
}

struct replacement {
	uint32_t index;
	abi_function function;
};

static const struct replacement CORE[] = {
	{ABI_RANGE_START_EX, (abi_function)on_start_ex}, {ABI_RANGE_START_A, (abi_function)on_start_a},
	{ABI_RANGE_START_W, (abi_function)on_start_w},	 {ABI_RANGE_END, (abi_function)finish},
	{ABI_RANGE_PUSH_EX, (abi_function)on_push_ex},	 {ABI_RANGE_PUSH_A, (abi_function)on_push_a},
	{ABI_RANGE_PUSH_W, (abi_function)on_push_w},	 {ABI_RANGE_POP, (abi_function)on_pop},
};

static const struct replacement CORE2[] = {
	{ABI_DOMAIN_RANGE_START_EX, (abi_function)on_domain_start_ex},
	{ABI_DOMAIN_RANGE_END, (abi_function)on_domain_end},
	{ABI_DOMAIN_RANGE_PUSH_EX, (abi_function)on_domain_push_ex},
	{ABI_DOMAIN_RANGE_POP, (abi_function)on_domain_pop},
	{ABI_DOMAIN_REGISTER_STRING_A, (abi_function)on_register_a},
	{ABI_DOMAIN_REGISTER_STRING_W, (abi_function)on_register_w},
	{ABI_DOMAIN_CREATE_A, (abi_function)on_domain_create_a},
	{ABI_DOMAIN_CREATE_W, (abi_function)on_domain_create_w},
};

static void replace(const struct abi_callbacks *callbacks, int module, const struct replacement *list, size_t length)
{
	abi_function **table = NULL;
	unsigned int size = 0;

	if (!callbacks->module_table(module, &table, &size) || !table)
		return;
	for (size_t i = 0; i < length; i++)
		if (list[i].index < size && table[list[i].index])
			*table[list[i].index] = list[i].function;
}

static void load(void)
{
	rules_load();
	domains_load();
}

/*
 * Called by each part of the program that contains NVTX (it is header-only), once, before its first NVTX call returns.
 * 0 makes that part's NVTX do nothing, as without an injection.
 */
EXPORT int InitializeInjectionNvtx2(abi_get_export_table get_export_table)
{
	const struct abi_callbacks *callbacks =
		get_export_table ? get_export_table(ABI_EXPORT_TABLE_CALLBACKS) : NULL;

	if (!callbacks || callbacks->struct_size < sizeof(*callbacks) || !callbacks->module_table)
		return 0;
	pthread_once(&loaded, load);
	replace(callbacks, ABI_MODULE_CORE, CORE, sizeof(CORE) / sizeof(CORE[0]));
	replace(callbacks, ABI_MODULE_CORE2, CORE2, sizeof(CORE2) / sizeof(CORE2[0]));
	return 1;
}

/* How often something was left out, by `enum counter`; as many as fit. For tests, and for who looks into a program. */
EXPORT void hotstage_nvtx_counters(uint64_t *values, size_t length)
{
	for (size_t i = 0; i < length && i < COUNTERS; i++)
		values[i] = __atomic_load_n(&counters[i], __ATOMIC_RELAXED);
}

/* What the rules in force say of a name in a domain ("": without a name): see DECISION in rules.h. */
EXPORT uint32_t hotstage_nvtx_explain(const char *domain, const char *name)
{
	struct named named = {.result = RULE_NOTHING};
	int index;

	pthread_once(&loaded, load);
	index = domain_of_name(domain);
	if (index >= 0 && !domain_is_ignored((uint32_t)index))
		name_of_text(&named, &thread_ranges.seen, (uint32_t)index, name);
	return named.result;
}
