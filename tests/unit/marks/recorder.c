// SPDX-License-Identifier: Apache-2.0
/* Probe points that remember: linked instead of the weakened ones, so that a test sees what a watcher would. */
#include "hotstage_marks.h"

#include <string.h>

struct mark {
	uint64_t point, values[4];
};

__attribute__((visibility("default"))) struct mark recorded[4096];
__attribute__((visibility("default"))) uint64_t recorded_count;
__attribute__((visibility("default"))) struct hotstage_request recorded_request;
__attribute__((visibility("default"))) struct hotstage_batch recorded_parts[64];
__attribute__((visibility("default"))) uint64_t recorded_part_count;
__attribute__((visibility("default"))) char recorded_name[32];

static void record(uint64_t point, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
	recorded[recorded_count++ % 4096] = (struct mark){point, {a, b, c, d}};
}

void hotstage_mark_stage_begin(uint64_t word, uint64_t request, uint64_t tokens)
{
	record(1, word, request, tokens, 0);
}

void hotstage_mark_stage_end(uint64_t word, uint64_t request, uint64_t restored, uint64_t tokens)
{
	record(2, word, request, restored, tokens);
}

void hotstage_mark_span_begin(uint64_t word, uint64_t request, uint64_t tokens)
{
	record(3, word, request, tokens, 0);
}

void hotstage_mark_span_end(uint64_t word, uint64_t request, uint64_t tokens)
{
	record(4, word, request, tokens, 0);
}

void hotstage_mark_request_begin(const struct hotstage_request *request, uint64_t hash)
{
	recorded_request = *request;
	record(5, hash, 0, 0, 0);
}

void hotstage_mark_request_end(uint64_t hash, uint64_t outcome, uint64_t output_tokens)
{
	record(6, hash, outcome, output_tokens, 0);
}

void hotstage_mark_tokens(uint64_t hash, uint64_t word, uint64_t tokens)
{
	record(7, hash, word, tokens, 0);
}

void hotstage_mark_stage_name(uint64_t stage, const char *name)
{
	memcpy(recorded_name, name, sizeof(recorded_name));
	record(8, stage, 0, 0, 0);
}

void hotstage_mark_batch_begin(uint64_t batch_id, uint64_t word)
{
	record(9, batch_id, word, 0, 0);
}

void hotstage_mark_batch_end(const struct hotstage_batch *batch, uint64_t restored)
{
	recorded_parts[recorded_part_count++ % 64] = *batch;
	record(10, batch->batch_id, restored, batch->members, 0);
}

void hotstage_mark_embedding(uint64_t request, uint64_t word, const void *data, uint64_t shape)
{
	record(11, request, word, (uint64_t)(uintptr_t)data, shape);
}
