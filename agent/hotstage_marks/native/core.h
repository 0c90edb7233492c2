// SPDX-License-Identifier: Apache-2.0
/* Shared by marks.c and the Python extension: the same requests, from strings that carry their length. */
#ifndef HOTSTAGE_MARKS_CORE_H
#define HOTSTAGE_MARKS_CORE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "../include/hotstage_marks.h"

#define HOTSTAGE_WORD(stage, modality) ((uint64_t)(stage) | (uint64_t)(modality) << 8)
#define HOTSTAGE_NO_WORD HOTSTAGE_WORD(HOTSTAGE_STAGE_NONE, HOTSTAGE_MODALITY_UNKNOWN)

_Static_assert(sizeof(struct hotstage_request) == 256, "the kernel copies 256 bytes");

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

/* The word of the stage that this thread is in, or HOTSTAGE_NO_WORD. */
__attribute__((visibility("hidden"))) uint64_t hotstage_thread_word(void);

#endif
