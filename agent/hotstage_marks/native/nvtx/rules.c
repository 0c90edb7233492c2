// SPDX-License-Identifier: Apache-2.0
/*
 * The rules: parsed once, into a fixed table; matched from the top, without regular expressions.
 *
 * Two sources of one format, which nvtx_rules.txt explains: the user's file, then the shipped table, compiled in.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../include/hotstage_marks.h"
#include "rules.h"

#define RULES_VARIABLE "HOTSTAGE_NVTX_RULES"
#define MAX_FILE (64 << 10)
#define MAX_COMPLAINTS 5
#define MAX_WORDS 7
#define MAX_PATTERN 48
#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* The table as it is in the file; the assembler finds it by the include path of the compiler's call. */
__asm__(".pushsection .rodata\n"
	"shipped_rules:\n"
	"\t.incbin \"nvtx_rules.txt\"\n"
	"shipped_rules_end:\n"
	"\t.popsection\n");
extern const char shipped_rules[] __attribute__((visibility("hidden")));
extern const char shipped_rules_end[] __attribute__((visibility("hidden")));

enum match { MATCH_ALL, MATCH_EXACT, MATCH_PREFIX, MATCH_SUFFIX, MATCH_CONTAINS, MATCH_WORD };

struct rule {
	decision result;
	uint8_t match;
	uint8_t length;
	char pattern[MAX_PATTERN];
	char domain[MAX_PATTERN]; /* "-": without a name; "*" at either end: anything */
};

static const char *const STAGES[] = {
	"gateway",	"media_fetch",	 "media_decode", "preprocess",		"tokenize",    "queue",
	"model_load",	"lora_apply",	 "vision_encode", "audio_encode",	"video_encode", "cross_modal_align",
	"llm_prefill",	"llm_decode",	 "kv_transfer",	 "sample",		"detokenize",  "other",
};
static const char *const MODALITIES[] = {"text", "image", "audio", "video", "mixed", "unknown"};
static const char *const MATCHES[] = {"all", "exact", "prefix", "suffix", "contains", "word"};

_Static_assert(COUNT_OF(STAGES) == HOTSTAGE_STAGE_OTHER + 1, "one name for each stage");
_Static_assert(COUNT_OF(MODALITIES) == HOTSTAGE_MODALITY_UNKNOWN + 1, "one name for each modality");

static struct rule rules[MAX_RULES];
static uint32_t rule_count;
static int folds_numbers = 1;

static char lower(char letter)
{
	return letter >= 'A' && letter <= 'Z' ? (char)(letter | 0x20) : letter;
}

static int is_digit(char letter)
{
	return letter >= '0' && letter <= '9';
}

static int is_word_part(char letter)
{
	return is_digit(letter) || (letter >= 'a' && letter <= 'z') || letter & 0x80;
}

static int index_of(const char *name, const char *const *names, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (!strcmp(names[i], name))
			return (int)i;
	return -1;
}

/* Cuts the line into words in place; "quoted words" may hold blanks. -1: a quote is not closed, or too many. */
static int split(char *line, char **words)
{
	int count = 0;

	for (char *at = line; *at;) {
		char end = ' ';

		if (*at == ' ' || *at == '\t' || *at == '\r') {
			at++;
			continue;
		}
		if (*at == '#')
			break;
		if (count == MAX_WORDS)
			return -1;
		if (*at == '"') {
			end = '"';
			at++;
		}
		words[count++] = at;
		while (*at && *at != end && !(end == ' ' && (*at == '\t' || *at == '\r')))
			at++;
		if (end == '"' && !*at)
			return -1;
		if (*at)
			*at++ = 0;
	}
	return count;
}

static const char *copy_lower(char *to, const char *text)
{
	size_t length = strlen(text);

	if (!length || length >= MAX_PATTERN)
		return "a domain or text is empty or too long";
	for (size_t i = 0; i <= length; i++)
		to[i] = lower(text[i]);
	return NULL;
}

static const char *parse_what(struct rule *rule, char **words)
{
	int match = index_of(words[2], MATCHES, COUNT_OF(MATCHES));
	const char *problem = copy_lower(rule->pattern, words[3]);

	if (match < MATCH_EXACT)
		return "a match is one of exact prefix suffix contains word";
	if (problem)
		return problem;
	rule->match = (uint8_t)match;
	rule->length = (uint8_t)strlen(rule->pattern);
	return NULL;
}

static const char *parse_result(struct rule *rule, char **words, int count)
{
	int has_id = count == 7 && !strcmp(words[6], "id");
	int stage = count > 5 ? index_of(words[4], STAGES, COUNT_OF(STAGES)) : -1;
	int modality = count > 5 ? index_of(words[5], MODALITIES, COUNT_OF(MODALITIES)) : -1;

	if (stage < 0 || modality < 0 || (count == 7 && !has_id))
		return "a stage line ends in a stage, a modality and perhaps `id`";
	if (has_id && rule->match != MATCH_PREFIX)
		return "an id needs a prefix before it";
	rule->result = DECISION(RULE_STAGE, stage, modality, has_id ? rule->length : 0);
	return NULL;
}

/* NULL, or what is wrong with the line. */
static const char *parse(struct rule *rule, char **words, int count)
{
	const char *problem;

	memset(rule, 0, sizeof(*rule));
	if (count < 2)
		return "a line is: stage|request|ignore DOMAIN MATCH TEXT …";
	problem = copy_lower(rule->domain, words[1]);
	if (!problem && count > 2)
		problem = count == 3 ? "a text is missing" : parse_what(rule, words);
	if (problem)
		return problem;
	if (!strcmp(words[0], "ignore"))
		return count == 2 || count == 4 ? NULL : "an ignore line ends after the text";
	if (count < 4)
		return "a match and a text are missing";
	if (!strcmp(words[0], "stage"))
		return parse_result(rule, words, count);
	if (strcmp(words[0], "request"))
		return "a line begins with stage, request or ignore";
	if (count != 4 || rule->match != MATCH_PREFIX)
		return "a request line is: request DOMAIN prefix TEXT";
	rule->result = DECISION(RULE_REQUEST, 0, 0, rule->length);
	return NULL;
}

/* A lone 0 inside a pattern stands for itself however numbers are folded; other digits do not. */
static int tells_numbers_apart(const struct rule *rule)
{
	for (uint32_t i = 0; i < rule->length; i++) {
		if (!is_digit(rule->pattern[i]))
			continue;
		if (rule->pattern[i] != '0' || !i || i + 1 == rule->length || is_digit(rule->pattern[i - 1]) ||
		    is_digit(rule->pattern[i + 1]))
			return 1;
	}
	return 0;
}

static void read_lines(char *text, const char *source)
{
	int complaints = 0, number = 0;

	for (char *line = text, *next; line; line = next) {
		char *words[MAX_WORDS];
		const char *problem = NULL;
		int count;

		next = strchr(line, '\n');
		if (next)
			*next++ = 0;
		number++;
		count = split(line, words);
		if (!count)
			continue;
		if (rule_count == MAX_RULES)
			problem = "too many rules";
		else if (count < 0)
			problem = "a quote is not closed, or there are too many words";
		else
			problem = parse(&rules[rule_count], words, count);
		if (!problem)
			folds_numbers &= !tells_numbers_apart(&rules[rule_count++]);
		else if (complaints++ < MAX_COMPLAINTS)
			dprintf(2, "hotstage-marks: %s:%d: %s; line left out\n", source, number, problem);
	}
}

static void read_file(const char *path, char *text)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t length = fd < 0 ? -1 : read(fd, text, MAX_FILE);

	if (fd >= 0)
		close(fd);
	if (length < 0 || length == MAX_FILE) {
		dprintf(2, "hotstage-marks: %s (from " RULES_VARIABLE ") cannot be read or is over %d bytes: only the "
			   "shipped rules are used\n", path, MAX_FILE);
		return;
	}
	text[length] = 0;
	read_lines(text, path);
}

void rules_load(void)
{
	static char text[MAX_FILE + 1];
	const char *path = secure_getenv(RULES_VARIABLE);
	size_t shipped = (size_t)(shipped_rules_end - shipped_rules);

	if (path && *path)
		read_file(path, text);
	if (shipped > MAX_FILE)
		shipped = MAX_FILE;
	memcpy(text, shipped_rules, shipped);
	text[shipped] = 0;
	read_lines(text, "the shipped rules");
}

static int domain_fits(const char *pattern, const char *domain, uint32_t length)
{
	uint32_t size = (uint32_t)strlen(pattern);
	int open_start = pattern[0] == '*', open_end = size > 1 && pattern[size - 1] == '*';

	if (!strcmp(pattern, "*"))
		return 1;
	if (!strcmp(pattern, "-"))
		return !length;
	pattern += open_start;
	size -= (uint32_t)(open_start + open_end);
	if (size > length)
		return 0;
	if (open_start && open_end)
		return memmem(domain, length, pattern, size) != NULL;
	if (open_start)
		return !memcmp(domain + length - size, pattern, size);
	return (open_end || size == length) && !memcmp(domain, pattern, size);
}

/* A domain that a line ignores is left alone by the lines for all domains; lines that name it still hold. */
void rules_of_domain(struct rule_set *set, const char *domain)
{
	char name[MAX_TEXT];
	uint32_t length = 0;
	int is_named = 0;

	memset(set, 0, sizeof(*set));
	for (; domain[length] && length < MAX_TEXT - 1; length++)
		name[length] = lower(domain[length]);
	name[length] = 0;
	for (uint32_t i = 0; i < rule_count; i++)
		set->is_ignored |= rules[i].match == MATCH_ALL && domain_fits(rules[i].domain, name, length);
	for (uint32_t i = 0; i < rule_count; i++) {
		const struct rule *rule = &rules[i];
		int is_for_all = !strcmp(rule->domain, "*");

		if (rule->match == MATCH_ALL || (set->is_ignored && is_for_all) ||
		    !domain_fits(rule->domain, name, length))
			continue;
		set->bits[i / 64] |= 1ULL << i % 64;
		is_named |= rule->result && !is_for_all;
	}
	set->is_ignored &= !is_named;
}

static int has_word(const char *text, uint32_t length, const struct rule *rule)
{
	const char *at = text, *end = text + length;

	while ((at = memmem(at, (size_t)(end - at), rule->pattern, rule->length))) {
		const char *after = at + rule->length;

		if ((at == text || !is_word_part(at[-1])) && (after == end || !is_word_part(*after)))
			return 1;
		at++;
	}
	return 0;
}

static int fits(const struct rule *rule, const char *text, uint32_t length, int is_cut)
{
	if (rule->length > length)
		return 0;
	switch (rule->match) {
	case MATCH_EXACT:
		return !is_cut && rule->length == length && !memcmp(text, rule->pattern, length);
	case MATCH_PREFIX:
		return !memcmp(text, rule->pattern, rule->length);
	case MATCH_SUFFIX:
		return !is_cut && !memcmp(text + length - rule->length, rule->pattern, rule->length);
	case MATCH_CONTAINS:
		return memmem(text, length, rule->pattern, rule->length) != NULL;
	default:
		return has_word(text, length, rule);
	}
}

decision rules_decide(const struct rule_set *set, const char *text, uint32_t length, int is_cut)
{
	for (uint32_t block = 0; block < MAX_RULES / 64; block++) {
		for (uint64_t left = set->bits[block]; left; left &= left - 1) {
			const struct rule *rule = &rules[block * 64 + (uint32_t)__builtin_ctzll(left)];

			if (fits(rule, text, length, is_cut))
				return rule->result;
		}
	}
	return DECISION(RULE_NOTHING, 0, 0, 0);
}

const char *rules_stage_name(decision result)
{
	uint32_t stage = DECISION_STAGE(result);

	return STAGES[stage < COUNT_OF(STAGES) ? stage : HOTSTAGE_STAGE_OTHER];
}

const char *rules_modality_name(decision result)
{
	uint32_t modality = DECISION_MODALITY(result);

	return MODALITIES[modality < COUNT_OF(MODALITIES) ? modality : HOTSTAGE_MODALITY_UNKNOWN];
}

int rules_fold_numbers(void)
{
	return folds_numbers;
}
