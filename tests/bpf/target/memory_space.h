// SPDX-License-Identifier: Apache-2.0
/* Of the target's library: what it has given out. */
#include "memory.h"

#define BODY(name) __attribute__((visibility("hidden"))) int body_##name
#define SLOTS 65536
#define SLOT_BYTES (1ULL << 30)

struct item {
	uint64_t bytes, context, handle, holds;
	uint32_t kind, stage;
};

struct space {
	uint64_t base;
	uint32_t used, free_count;
	uint32_t free[SLOTS];
	struct item items[SLOTS];
};

#pragma GCC visibility push(hidden)
extern struct space pointers, handles, arrays;
extern __thread uint64_t captured_stream; /* of the calling thread, 0 = none is captured */

/* 0, or the error that the program asked for; `out` is where it is. */
int allocate(struct space *space, uint64_t *out, uint64_t bytes, uint32_t kind);

/* One hold less; what is held no more is gone. */
int release(struct space *space, uint64_t address);

struct item *item_at(struct space *space, uint64_t address);
#pragma GCC visibility pop
