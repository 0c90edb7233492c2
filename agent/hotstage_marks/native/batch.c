// SPDX-License-Identifier: Apache-2.0
/*
 * Batches: one frame of the thread, the spans of the members, and at the end who had how much of it.
 *
 * The watcher notes what the thread does between begin and end; sharing it out by tokens is its business.
 */
#include "stack.h"

#define MAX_TOLD 4096
#define STAGES (HOTSTAGE_STAGE_LAST_OWN + 1)

static uint64_t last_batch_id;

static uint64_t word_of_member(const struct hotstage_batch_member *member)
{
	return hotstage_word(member->stage, member->modality);
}

/* A member without tokens has a share, too. */
static uint32_t weight_of(const struct hotstage_batch_member *member)
{
	return member->tokens ? member->tokens : 1;
}

/* The stage with most of the tokens, at a tie the one that comes first in the pipeline. */
static uint64_t sum_up(struct hotstage_batch_scope *scope)
{
	uint64_t tokens[STAGES] = {0}, total = 0, most = 0;

	for (uint32_t i = 0; i < scope->count; i++) {
		const struct hotstage_batch_member *member = &scope->members[i];

		tokens[word_of_member(member) & 0xff] += weight_of(member);
		total += weight_of(member);
	}
	for (uint64_t stage = 1; stage < STAGES; stage++)
		if (tokens[stage] > tokens[most])
			most = stage;
	scope->tokens_total = total > UINT32_MAX ? UINT32_MAX : (uint32_t)total;
	return most;
}

static uint32_t told_count(const struct hotstage_batch_scope *scope)
{
	return scope->count < MAX_TOLD ? scope->count : MAX_TOLD;
}

static void tell_spans(const struct hotstage_batch_scope *scope,
		       void (*tell)(uint64_t word, uint64_t request_hash, uint64_t tokens))
{
	if (scope->flags & HOTSTAGE_BATCH_WITHOUT_SPANS)
		return;
	for (uint32_t i = 0; i < told_count(scope); i++) {
		const struct hotstage_batch_member *member = &scope->members[i];

		if (member->request_hash)
			tell(word_of_member(member), member->request_hash, member->tokens);
	}
}

EXPORT void hotstage_batch_begin(struct hotstage_batch_scope *scope, const struct hotstage_batch_member *members,
				 uint32_t count, uint64_t modality, uint32_t flags)
{
	uint64_t stage;

	*scope = (struct hotstage_batch_scope){.members = members, .count = count, .flags = flags};
	if (!members || !count || !hotstage_is_watched())
		return;
	scope->is_open = 1;
	stage = sum_up(scope);
	if (count > MAX_TOLD)
		hotstage_left_out(HOTSTAGE_COUNT_MEMBERS_CUT, count - MAX_TOLD);
	tell_spans(scope, hotstage_mark_span_begin);
	if (hotstage_is_in_batch()) {
		hotstage_left_out(HOTSTAGE_COUNT_BATCHES_NESTED, 1);
		hotstage_stage_begin(&scope->stage, stage, modality, 0, scope->tokens_total);
	} else if (hotstage_push(&scope->stage, hotstage_word(stage, modality), 0, scope->tokens_total, 1)) {
		scope->batch_id = __atomic_add_fetch(&last_batch_id, 1, __ATOMIC_RELAXED);
		hotstage_mark_batch_begin(scope->batch_id, scope->stage.word);
	} else {
		hotstage_left_out(HOTSTAGE_COUNT_BATCHES_BROKEN, 1);
	}
}

static void tell_parts(const struct hotstage_batch_scope *scope, uint64_t restored_word)
{
	uint32_t told = told_count(scope);
	struct hotstage_batch batch = {
		.version = 1,
		.size = sizeof(batch),
		.batch_id = scope->batch_id,
		.word = scope->stage.word,
		.tokens_total = scope->tokens_total,
		.members_total = (uint16_t)told,
	};

	for (uint32_t first = 0; first < told; first += HOTSTAGE_BATCH_PART) {
		batch.members = (uint16_t)(told - first < HOTSTAGE_BATCH_PART ? told - first : HOTSTAGE_BATCH_PART);
		for (uint32_t i = 0; i < batch.members; i++) {
			const struct hotstage_batch_member *member = &scope->members[first + i];
			uint64_t word = word_of_member(member);

			batch.member[i] = (struct hotstage_batch_member){
				.request_hash = member->request_hash,
				.tokens = weight_of(member),
				.stage = (uint8_t)word,
				.modality = (uint8_t)(word >> 8),
			};
		}
		hotstage_mark_batch_end(&batch, restored_word);
	}
}

EXPORT void hotstage_batch_end(struct hotstage_batch_scope *scope)
{
	uint64_t restored;

	if (!scope->is_open)
		return;
	scope->is_open = 0;
	if (!scope->batch_id)
		hotstage_stage_end(&scope->stage);
	else if (hotstage_pop(&scope->stage, &restored))
		tell_parts(scope, restored);
	else
		hotstage_left_out(HOTSTAGE_COUNT_BATCHES_BROKEN, 1);
	tell_spans(scope, hotstage_mark_span_end);
}
