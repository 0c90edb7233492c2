// SPDX-License-Identifier: Apache-2.0
/* The bounded stack of stages that each thread has; a batch is a frame on it like any other stage. */
#ifndef HOTSTAGE_MARKS_STACK_H
#define HOTSTAGE_MARKS_STACK_H

#include "core.h"

/* A new frame and the scope for it, without a mark; 0 when the stack is full, and then the scope is a closed one. */
HIDDEN int hotstage_push(struct hotstage_scope *scope, uint64_t word, uint64_t request_hash, uint64_t tokens,
			 int is_batch);

/*
 * Closes what was begun above the scope and takes its frame off, without a mark for the scope itself; 0 when it is not
 * there any more: an outer end has closed it, or this is another thread.
 */
HIDDEN int hotstage_pop(struct hotstage_scope *scope, uint64_t *restored_word);

HIDDEN int hotstage_is_in_batch(void); /* whether a frame of this thread is a batch */

#endif
