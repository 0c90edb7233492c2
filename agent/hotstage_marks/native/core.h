// SPDX-License-Identifier: Apache-2.0
/* Shared by the parts of the library, and by the Python extension that stands on it. */
#ifndef HOTSTAGE_MARKS_CORE_H
#define HOTSTAGE_MARKS_CORE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "../include/hotstage_marks.h"

#define EXPORT __attribute__((visibility("default")))
#define HIDDEN __attribute__((visibility("hidden")))

#define HOTSTAGE_WORD(stage, modality) ((uint64_t)(stage) | (uint64_t)(modality) << 8)
#define HOTSTAGE_NO_WORD HOTSTAGE_WORD(HOTSTAGE_STAGE_NONE, HOTSTAGE_MODALITY_UNKNOWN)
#define HOTSTAGE_NAME_SIZE 32

_Static_assert(sizeof(struct hotstage_request) == 256, "the kernel copies 256 bytes");
_Static_assert(sizeof(struct hotstage_batch) == 1056, "the kernel copies 1056 bytes");

/* FNV-1a 64; an empty id is no request. */
static inline uint64_t hotstage_hash(const char *bytes, size_t length)
{
	uint64_t hash = 0xcbf29ce484222325ULL;

	for (size_t i = 0; i < length; i++)
		hash = (hash ^ (unsigned char)bytes[i]) * 0x100000001b3ULL;
	return !length ? 0 : hash ? hash : 1;
}

/* Copies into a zeroed field, leaving one NUL, never cutting through a UTF-8 character. */
static inline void hotstage_copy(char *field, size_t size, const char *bytes, size_t length)
{
	if (length > size - 1) {
		length = size - 1;
		while (length && ((unsigned char)bytes[length] & 0xc0) == 0x80)
			length--;
	}
	if (length)
		memcpy(field, bytes, length);
}

/* A stage that is not pinned: one of the server's own, whose name the watcher is told, more bits, or `other`. Exported for the extension. */
EXPORT uint64_t hotstage_word_of_other(uint64_t stage, uint64_t modality);
HIDDEN int hotstage_names_are_watched(void);

/* What a probe point is given; `stage` may carry LoRA's bits. */
static inline uint64_t hotstage_word(uint64_t stage, uint64_t modality)
{
	if (modality > HOTSTAGE_MODALITY_UNKNOWN)
		modality = HOTSTAGE_MODALITY_UNKNOWN;
	return stage <= HOTSTAGE_STAGE_OTHER ? HOTSTAGE_WORD(stage, modality) : hotstage_word_of_other(stage, modality);
}

/* What was left out: enum hotstage_count. The extension counts here, too. */
EXPORT void hotstage_left_out(uint64_t which, uint64_t count);

#endif
