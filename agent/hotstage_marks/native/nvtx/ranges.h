// SPDX-License-Identifier: Apache-2.0
/* Open ranges: nested ones on each thread, started ones of the process; what each becomes in marks. */
#ifndef HOTSTAGE_NVTX_RANGES_H
#define HOTSTAGE_NVTX_RANGES_H

#include <stdint.h>

#include "../../include/hotstage_marks.h"
#include "names.h"

#define MAX_OPEN 16 /* matched push/pop ranges open at once on a thread: as deep as the marks' own stack */

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

extern __thread struct thread_ranges thread_ranges __attribute__((visibility("hidden")));

/* Depth of the range in its domain, from 0, as NVTX wants it. */
int range_push(struct thread_ranges *thread, uint32_t domain, const struct named *named);
int range_pop(struct thread_ranges *thread, uint32_t domain);

/* An id that is never 0; any thread may end it. */
uint64_t range_start(const struct thread_ranges *thread, const struct named *named);
void range_end(uint64_t id);

void range_count(enum counter counter);
uint64_t range_counter(enum counter counter);

#endif
