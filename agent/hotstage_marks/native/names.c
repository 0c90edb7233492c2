// SPDX-License-Identifier: Apache-2.0
/*
 * The names of the stages: the pinned ones, and a table of 32 for those that the server makes up.
 *
 * The table is filled without a lock, first come: a slot belongs to the hash that was put there by compare-and-exchange,
 * and whoever has that name may write it. A slot is never given back, so an id means one name for the process's life.
 */
#include <pthread.h>
#include <time.h>

#include "core.h"

#define OWN_STAGES (HOTSTAGE_STAGE_LAST_OWN - HOTSTAGE_STAGE_FIRST_OWN + 1)
#define RETELL_SECONDS 10 /* a watcher may have been replaced by another while nobody looked */

struct own_stage {
	uint64_t hash; /* of the clean name; 0 free */
	uint32_t is_named;
	uint32_t told_s; /* when the watcher was last told, 0 never */
	char name[HOTSTAGE_NAME_SIZE];
};

static struct own_stage own_stages[OWN_STAGES];

static const char *const PINNED[] = {
	"gateway",	 "media_fetch",	 "media_decode", "preprocess", "tokenize",    "queue",
	"model_load",	 "lora_apply",	 "vision_encode", "audio_encode", "video_encode", "cross_modal_align",
	"llm_prefill",	 "llm_decode",	 "kv_transfer",	 "sample",     "detokenize",  "other",
};

_Static_assert(sizeof(PINNED) / sizeof(*PINNED) == HOTSTAGE_STAGE_OTHER + 1, "one name a stage");

/* Bytes of the character that begins here, 0 where none does: nothing overlong, no surrogate, no control character. */
static size_t character_at(const unsigned char *text)
{
	size_t size = text[0] < 0x80 ? 1 : text[0] < 0xc2 ? 0 : text[0] < 0xe0 ? 2 : text[0] < 0xf0 ? 3 : text[0] < 0xf5 ? 4 : 0;

	for (size_t i = 1; i < size; i++)
		if ((text[i] & 0xc0) != 0x80)
			return 0; /* also at the end of the string */
	if (size == 1)
		return text[0] >= 0x20 && text[0] != 0x7f;
	if ((text[0] == 0xc2 && text[1] < 0xa0) || (text[0] == 0xe0 && text[1] < 0xa0) ||
	    (text[0] == 0xed && text[1] > 0x9f) || (text[0] == 0xf0 && text[1] < 0x90) ||
	    (text[0] == 0xf4 && text[1] > 0x8f))
		return 0;
	return size;
}

/* Into a zeroed field; what is no printable UTF-8 becomes `_`, byte by byte. Returns the length. */
static size_t clean_name(char field[HOTSTAGE_NAME_SIZE], const char *name)
{
	const unsigned char *text = (const unsigned char *)name;
	size_t length = 0;

	while (*text) {
		size_t size = character_at(text);

		if (length + (size ? size : 1) >= HOTSTAGE_NAME_SIZE)
			break;
		memcpy(field + length, size ? (const char *)text : "_", size ? size : 1);
		length += size ? size : 1;
		text += size ? size : 1;
	}
	return length;
}

EXPORT uint64_t hotstage_stage_id(const char *name)
{
	char clean[HOTSTAGE_NAME_SIZE] = "";
	uint64_t hash = hotstage_hash(clean, name ? clean_name(clean, name) : 0);

	if (!hash)
		return HOTSTAGE_STAGE_OTHER;
	for (uint64_t id = 0; id <= HOTSTAGE_STAGE_OTHER; id++)
		if (!strcmp(clean, PINNED[id]))
			return id;
	for (uint64_t i = 0; i < OWN_STAGES; i++) {
		struct own_stage *own = &own_stages[i];
		uint64_t held = 0;

		if (!__atomic_compare_exchange_n(&own->hash, &held, hash, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) &&
		    held != hash)
			continue;
		if (!__atomic_load_n(&own->is_named, __ATOMIC_ACQUIRE)) { /* two at once write the same bytes */
			memcpy(own->name, clean, sizeof(clean));
			__atomic_store_n(&own->is_named, 1, __ATOMIC_RELEASE);
		}
		return HOTSTAGE_STAGE_FIRST_OWN + i;
	}
	hotstage_left_out(HOTSTAGE_COUNT_STAGES_REFUSED, 1);
	return HOTSTAGE_STAGE_OTHER;
}

static struct own_stage *own_stage(uint64_t stage)
{
	struct own_stage *own;

	if (stage < HOTSTAGE_STAGE_FIRST_OWN || stage > HOTSTAGE_STAGE_LAST_OWN)
		return NULL;
	own = &own_stages[stage - HOTSTAGE_STAGE_FIRST_OWN];
	return __atomic_load_n(&own->is_named, __ATOMIC_ACQUIRE) ? own : NULL;
}

EXPORT const char *hotstage_stage_name(uint64_t stage)
{
	const struct own_stage *own = own_stage(stage);

	return stage <= HOTSTAGE_STAGE_OTHER ? PINNED[stage] : own ? own->name : NULL;
}

/* Once for each watcher, so that one that comes later learns the name at its next use. */
static void tell_name(struct own_stage *own)
{
	uint32_t told_s = __atomic_load_n(&own->told_s, __ATOMIC_RELAXED), now_s;
	struct timespec now;

	if (!hotstage_names_are_watched()) {
		if (told_s)
			__atomic_store_n(&own->told_s, 0, __ATOMIC_RELAXED);
		return;
	}
	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	now_s = (uint32_t)now.tv_sec + 1;
	if (told_s && now_s - told_s < RETELL_SECONDS)
		return;
	__atomic_store_n(&own->told_s, now_s, __ATOMIC_RELAXED);
	hotstage_mark_stage_name(HOTSTAGE_STAGE_FIRST_OWN + (uint64_t)(own - own_stages), own->name);
}

static uint64_t word_of_lora(uint64_t stage, uint64_t modality)
{
	uint64_t module = stage >> 32;

	if (module > HOTSTAGE_LORA_OTHER)
		module = HOTSTAGE_LORA_OTHER;
	return HOTSTAGE_WORD((stage & 0xffffffff) | module << 32, modality);
}

uint64_t hotstage_word_of_other(uint64_t stage, uint64_t modality)
{
	uint64_t source = (stage & 0xff0000000000) == HOTSTAGE_FROM_NVTX ? HOTSTAGE_FROM_NVTX : 0;
	struct own_stage *own;

	stage -= source;
	own = own_stage(stage);
	if (own)
		tell_name(own);
	if (own || stage <= HOTSTAGE_STAGE_OTHER)
		return HOTSTAGE_WORD(stage, modality) | source;
	if ((stage & 0xffff) == HOTSTAGE_STAGE_LORA_APPLY && stage < 1ULL << 40)
		return word_of_lora(stage, modality) | source;
	return HOTSTAGE_WORD(HOTSTAGE_STAGE_OTHER, modality) | source;
}

/* A forked child is another process: nobody has been told what its ids mean. */
static void forget_told(void)
{
	for (int i = 0; i < OWN_STAGES; i++)
		__atomic_store_n(&own_stages[i].told_s, 0, __ATOMIC_RELAXED);
}

__attribute__((constructor)) static void follow_forks(void)
{
	pthread_atfork(NULL, NULL, forget_told);
}
