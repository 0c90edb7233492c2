// SPDX-License-Identifier: Apache-2.0
/* From what a program says, a string or a handle, to what the rules say of it; and the ids of requests in names. */
#ifndef HOTSTAGE_NVTX_NAMES_H
#define HOTSTAGE_NVTX_NAMES_H

#include <stddef.h>
#include <stdint.h>
#include <wchar.h>

#include "rules.h"

#define MAX_DOMAINS 32
#define MAX_ID 64

/* What a range's name says: the stage, and the request's id where the rule finds one in the name. */
struct named {
	decision result;
	char id[MAX_ID]; /* "": none */
};

/*
 * Domain 0 has no name. Index of the domain of this name, made when it is new; domains of one name are one, and last
 * as long as the process. Of an index from MAX_DOMAINS on nothing is ever said.
 */
#define DOMAIN_IGNORED MAX_DOMAINS
#define DOMAIN_NO_ROOM (MAX_DOMAINS + 1)
int domain_of_name(const char *name);
void domains_load(void); /* after rules_load() */

/* The names that a thread has used last, by their addresses: a copy of each, and what the rules say of it. */
#define SEEN 64
#define SEEN_TEXT 51

struct seen_name {
	const char *text;
	decision result;
	uint8_t domain;
	char copy[SEEN_TEXT];
};

struct seen_names {
	struct seen_name names[SEEN];
};

_Static_assert(sizeof(struct seen_name) == 64, "a line of the cache each");

void name_of_text(struct named *named, struct seen_names *seen, uint32_t domain, const char *text);
void name_of_wide(struct named *named, uint32_t domain, const wchar_t *text);

/* To UTF-8, cut where the rules stop to look; NULL is empty. `to` holds MAX_TEXT bytes. */
void text_of_wide(char *to, const wchar_t *text);

/* A registered string's handle carries the answer in itself: no table, however many a program registers. */
uintptr_t handle_of_text(uint32_t domain, const char *text);
uintptr_t handle_of_wide(uint32_t domain, const wchar_t *text);
uintptr_t handle_of_nothing(void);
void name_of_handle(struct named *named, uintptr_t handle);

#endif
