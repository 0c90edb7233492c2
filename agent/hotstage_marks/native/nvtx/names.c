// SPDX-License-Identifier: Apache-2.0
/*
 * Names to stages, remembered in fixed memory: nothing here allocates, locks or waits.
 *
 * Three memories, each of which may forget: by pointer on each thread (the text is compared, so that another name at
 * the same address is another name), by content for the process (one word an entry, so that it cannot tear; 44 bits of
 * the hash stand for the text), and the ids of requests in registered names, of which the last 4,096 are kept.
 */
#include <string.h>

#include "names.h"

#define REMEMBERED 4096
#define KEPT_IDS 4096

struct domain {
	struct rule_set rules;
	uint32_t state; /* 0 free, 1 being filled in, 2 there */
	char name[MAX_TEXT];
};

struct kept_id {
	uint32_t generation; /* 0: being written */
	char id[MAX_ID];
};

static struct domain domains[MAX_DOMAINS];
static uint64_t remembered[REMEMBERED]; /* tag 32 | decision 32; 0: nothing */
static struct kept_id kept_ids[KEPT_IDS];
static uint32_t kept_count;

void domains_load(void)
{
	rules_of_domain(&domains[0].rules, "");
	domains[0].state = 2;
}

int domain_of_name(const char *name)
{
	size_t length = name ? strnlen(name, MAX_TEXT - 1) : 0;
	char copy[MAX_TEXT] = {0};
	struct rule_set rules;

	if (!length)
		return 0;
	memcpy(copy, name, length);
	rules_of_domain(&rules, copy);
	if (rules.is_ignored)
		return DOMAIN_IGNORED;
	for (uint32_t i = 1; i < MAX_DOMAINS; i++) {
		struct domain *domain = &domains[i];
		uint32_t state = 0;

		if (__atomic_compare_exchange_n(&domain->state, &state, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE)) {
			memcpy(domain->name, copy, MAX_TEXT);
			domain->rules = rules;
			__atomic_store_n(&domain->state, 2, __ATOMIC_RELEASE);
			return (int)i;
		}
		if (state == 2 && !memcmp(domain->name, copy, MAX_TEXT))
			return (int)i;
	}
	return DOMAIN_NO_ROOM;
}

static int is_digit(char letter)
{
	return letter >= '0' && letter <= '9';
}

/* In lower case and bounded, with the hash by which it is remembered: numbers other than 0 may count as one. */
struct text {
	uint64_t hash;
	uint32_t length;
	int is_cut;
	char lower[MAX_TEXT];
};

static void read_text(struct text *read, uint32_t domain, const char *text)
{
	int folds = rules_fold_numbers(), is_in_number = 0;
	uint64_t hash = 0xcbf29ce484222325ULL ^ domain;
	uint32_t i = 0;

	for (; i < MAX_TEXT && text[i]; i++) {
		char letter = text[i];

		if (letter >= 'A' && letter <= 'Z')
			letter |= 0x20;
		read->lower[i] = letter;
		if (folds && is_digit(letter)) {
			if (is_in_number)
				continue;
			is_in_number = 1;
			letter = letter == '0' && !(i + 1 < MAX_TEXT && is_digit(text[i + 1])) ? '0' : '1';
		} else {
			is_in_number = 0;
		}
		hash = (hash ^ (unsigned char)letter) * 0x100000001b3ULL;
	}
	read->length = i;
	read->is_cut = i == MAX_TEXT;
	read->hash = hash ^ hash >> 29;
}

static decision decide(uint32_t domain, const char *text)
{
	struct text read;
	uint64_t *slot, word;
	decision result;

	read_text(&read, domain, text);
	slot = &remembered[read.hash % REMEMBERED];
	word = __atomic_load_n(slot, __ATOMIC_RELAXED);
	if (word && word >> 32 == (read.hash >> 32 | 1))
		return (decision)word;
	result = rules_decide(&domains[domain].rules, read.lower, read.length, read.is_cut);
	__atomic_store_n(slot, (read.hash >> 32 | 1) << 32 | result, __ATOMIC_RELAXED);
	return result;
}

static void find_id(struct named *named, const char *text)
{
	uint32_t at = DECISION_ID_OFFSET(named->result), length = 0;

	named->id[0] = 0;
	/* The prefix was there when the rule was asked; a hash that only looks the same must not lead out of the text. */
	if (!at || strnlen(text, at) < at)
		return;
	for (text += at; length < MAX_ID - 1 && text[length] > ' '; length++)
		named->id[length] = text[length];
	named->id[length] = 0;
}

void name_of_text(struct named *named, struct seen_names *seen, uint32_t domain, const char *text)
{
	struct seen_name *entry = &seen->names[((uintptr_t)text ^ (uintptr_t)text >> 6) % SEEN];

	named->id[0] = 0;
	named->result = RULE_NOTHING;
	if (!text)
		return;
	if (entry->text == text && entry->domain == domain && !strcmp(entry->copy, text)) {
		named->result = entry->result;
	} else {
		size_t length = strnlen(text, SEEN_TEXT);

		named->result = decide(domain, text);
		if (length < SEEN_TEXT) {
			memcpy(entry->copy, text, length + 1);
			entry->text = text;
			entry->domain = (uint8_t)domain;
			entry->result = named->result;
		}
	}
	if (DECISION_ID_OFFSET(named->result))
		find_id(named, text);
}

void text_of_wide(char *to, const wchar_t *text)
{
	uint32_t length = 0;

	for (; text && *text && length < MAX_TEXT - 4; text++) {
		uint32_t code = (uint32_t)*text;

		if (code < 0x80) {
			to[length++] = (char)code;
		} else if (code < 0x800) {
			to[length++] = (char)(0xc0 | code >> 6);
			to[length++] = (char)(0x80 | (code & 0x3f));
		} else {
			to[length++] = (char)(0xe0 | (code >> 12 & 0xf));
			to[length++] = (char)(0x80 | (code >> 6 & 0x3f));
			to[length++] = (char)(0x80 | (code & 0x3f));
		}
	}
	to[length] = 0;
}

void name_of_wide(struct named *named, uint32_t domain, const wchar_t *text)
{
	char narrowed[MAX_TEXT];

	text_of_wide(narrowed, text);
	named->result = decide(domain, narrowed);
	find_id(named, narrowed);
}

/*
 * A handle: bit 0 always; action, stage and modality from bit 8; of a name with an id, where it is kept from bit 32
 * and since when from bit 44.
 */
#define HANDLE_MARK 1U
#define HANDLE_HAS_ID 2U
#define GENERATIONS (1U << 20)

static uintptr_t keep_id(const struct named *named)
{
	uint32_t number = __atomic_fetch_add(&kept_count, 1, __ATOMIC_RELAXED);
	uint32_t generation = number / KEPT_IDS % (GENERATIONS - 1) + 1;
	struct kept_id *kept = &kept_ids[number % KEPT_IDS];

	__atomic_store_n(&kept->generation, 0, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	memcpy(kept->id, named->id, MAX_ID);
	__atomic_store_n(&kept->generation, generation, __ATOMIC_RELEASE);
	return (uintptr_t)(number % KEPT_IDS) << 32 | (uintptr_t)generation << 44 | HANDLE_HAS_ID;
}

static uintptr_t handle_of(const struct named *named)
{
	uintptr_t handle = (uintptr_t)(named->result & 0xffffff) << 8 | HANDLE_MARK;

	return DECISION_ID_OFFSET(named->result) ? handle | keep_id(named) : handle;
}

uintptr_t handle_of_nothing(void)
{
	return HANDLE_MARK;
}

uintptr_t handle_of_text(uint32_t domain, const char *text)
{
	struct named named = {.result = decide(domain, text ? text : "")};

	find_id(&named, text ? text : "");
	return handle_of(&named);
}

uintptr_t handle_of_wide(uint32_t domain, const wchar_t *text)
{
	struct named named;

	name_of_wide(&named, domain, text);
	return handle_of(&named);
}

void name_of_handle(struct named *named, uintptr_t handle)
{
	const struct kept_id *kept = &kept_ids[handle >> 32 & (KEPT_IDS - 1)];
	uint32_t generation = (uint32_t)(handle >> 44);

	named->result = (decision)(handle >> 8 & 0xffffff);
	named->id[0] = 0;
	if (!(handle & HANDLE_MARK))
		named->result = RULE_NOTHING;
	if (!(handle & HANDLE_HAS_ID) || !(handle & HANDLE_MARK))
		return;
	if (__atomic_load_n(&kept->generation, __ATOMIC_ACQUIRE) == generation) {
		memcpy(named->id, kept->id, MAX_ID);
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (__atomic_load_n(&kept->generation, __ATOMIC_RELAXED) == generation)
			return;
	}
	/* Forgotten since: a range whose request nobody knows says nothing. */
	named->result = RULE_NOTHING;
	named->id[0] = 0;
}
