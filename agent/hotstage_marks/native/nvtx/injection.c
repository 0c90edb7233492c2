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
#include "abi.h"
#include "names.h"
#include "ranges.h"

#define EXPORT __attribute__((visibility("default")))

/* What the program calls. A domain's handle is its index. */

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
	return domain >= MAX_DOMAINS;
}

static int on_push_a(const char *text)
{
	struct thread_ranges *thread = &thread_ranges;
	struct named named;

	name_of_text(&named, &thread->seen, 0, text);
	return range_push(thread, 0, &named);
}

static int on_push_w(const wchar_t *text)
{
	struct named named;

	name_of_wide(&named, 0, text);
	return range_push(&thread_ranges, 0, &named);
}

static int on_domain_push_ex(uintptr_t domain, const struct abi_event *event)
{
	struct thread_ranges *thread;
	struct named named;

	if (is_ignored(domain))
		return ABI_NO_PUSH_POP_TRACKING;
	thread = &thread_ranges;
	name_of_event(&named, thread, (uint32_t)domain, event);
	return range_push(thread, (uint32_t)domain, &named);
}

static int on_push_ex(const struct abi_event *event)
{
	return on_domain_push_ex(0, event);
}

static int on_domain_pop(uintptr_t domain)
{
	return is_ignored(domain) ? ABI_NO_PUSH_POP_TRACKING : range_pop(&thread_ranges, (uint32_t)domain);
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
	return range_start(thread, &named);
}

static uint64_t on_start_w(const wchar_t *text)
{
	struct named named;

	name_of_wide(&named, 0, text);
	return range_start(&thread_ranges, &named);
}

static uint64_t on_domain_start_ex(uintptr_t domain, const struct abi_event *event)
{
	struct thread_ranges *thread = &thread_ranges;
	struct named named = {.result = RULE_NOTHING};

	if (!is_ignored(domain))
		name_of_event(&named, thread, (uint32_t)domain, event);
	return range_start(thread, &named);
}

static uint64_t on_start_ex(const struct abi_event *event)
{
	return on_domain_start_ex(0, event);
}

static void on_domain_end(uintptr_t domain, uint64_t id)
{
	(void)domain;
	range_end(id);
}

static uintptr_t domain_handle(int domain)
{
	if (domain == DOMAIN_NO_ROOM)
		range_count(COUNT_TOO_MANY_DOMAINS);
	return (uintptr_t)domain;
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
	{ABI_RANGE_START_W, (abi_function)on_start_w},	 {ABI_RANGE_END, (abi_function)range_end},
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

/* When the library is loaded: before any thread can ask, and without a lock that a forked child could inherit. */
__attribute__((constructor)) static void load(void)
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
	replace(callbacks, ABI_MODULE_CORE, CORE, sizeof(CORE) / sizeof(CORE[0]));
	replace(callbacks, ABI_MODULE_CORE2, CORE2, sizeof(CORE2) / sizeof(CORE2[0]));
	return 1;
}

/* How often something was left out, by `enum counter`; as many as fit. For who looks into a program. */
EXPORT void hotstage_nvtx_counters(uint64_t *values, size_t length)
{
	for (size_t i = 0; i < length && i < COUNTERS; i++)
		values[i] = range_counter((enum counter)i);
}

/* What the rules in force say of a name in a domain ("": without a name): see DECISION in rules.h. */
EXPORT uint32_t hotstage_nvtx_explain(const char *domain, const char *name)
{
	struct named named = {.result = RULE_NOTHING};
	int index = domain_of_name(domain);

	if (!is_ignored((uintptr_t)index))
		name_of_text(&named, &thread_ranges.seen, (uint32_t)index, name);
	return named.result;
}

EXPORT const char *hotstage_nvtx_stage(uint32_t result)
{
	return rules_stage_name(result);
}

EXPORT const char *hotstage_nvtx_modality(uint32_t result)
{
	return rules_modality_name(result);
}
