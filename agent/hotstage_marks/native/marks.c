// SPDX-License-Identifier: Apache-2.0
/* Stages, spans and requests: the thread's bounded stack of stages above the probe points. */
#include "stack.h"

#define MAX_DEPTH 16

struct frame {
	uint64_t word;
	uint64_t request_hash;
	uint64_t tokens;
	uint64_t sequence; /* of its begin; the highest bit says that it is a batch */
};

struct stage_stack {
	uint64_t sequence; /* counts begins: tells a frame from an earlier one at the same depth */
	uint32_t depth;
	struct frame frames[MAX_DEPTH];
};

#define IS_BATCH (1ULL << 63)

static __thread struct stage_stack thread_stages;
static uint64_t left_out[HOTSTAGE_COUNTS];

EXPORT void hotstage_left_out(uint64_t which, uint64_t count)
{
	if (which < HOTSTAGE_COUNTS)
		__atomic_fetch_add(&left_out[which], count, __ATOMIC_RELAXED);
}

EXPORT uint64_t hotstage_statistic(uint64_t which)
{
	return which < HOTSTAGE_COUNTS ? __atomic_load_n(&left_out[which], __ATOMIC_RELAXED) : 0;
}

static uint64_t word_below(const struct stage_stack *stages, uint32_t depth)
{
	return depth > 1 ? stages->frames[depth - 2].word : HOTSTAGE_NO_WORD;
}

int hotstage_push(struct hotstage_scope *scope, uint64_t word, uint64_t request_hash, uint64_t tokens, int is_batch)
{
	struct stage_stack *stages = &thread_stages;

	if (stages->depth >= MAX_DEPTH) {
		scope->is_open = 0;
		return 0;
	}
	*scope = (struct hotstage_scope){
		.word = word,
		.request_hash = request_hash,
		.tokens = tokens,
		.sequence = ++stages->sequence | (is_batch ? IS_BATCH : 0),
		.owner = stages,
		.depth = ++stages->depth,
		.is_open = 1,
	};
	stages->frames[scope->depth - 1] = (struct frame){word, request_hash, tokens, scope->sequence};
	return 1;
}

int hotstage_pop(struct hotstage_scope *scope, uint64_t *restored_word)
{
	struct stage_stack *stages = &thread_stages;

	scope->is_open = 0;
	if (scope->owner != stages || scope->depth > stages->depth ||
	    stages->frames[scope->depth - 1].sequence != scope->sequence)
		return 0;
	while (stages->depth > scope->depth) { /* not ended: an exception, a generator left half-way */
		const struct frame *top = &stages->frames[stages->depth - 1];
		uint64_t restored = word_below(stages, stages->depth);

		stages->depth--;
		hotstage_mark_stage_end(top->word, top->request_hash, restored, top->tokens);
	}
	*restored_word = word_below(stages, stages->depth);
	stages->depth--;
	return 1;
}

int hotstage_is_in_batch(void)
{
	for (uint32_t i = 0; i < thread_stages.depth; i++)
		if (thread_stages.frames[i].sequence & IS_BATCH)
			return 1;
	return 0;
}

EXPORT void hotstage_span_begin(struct hotstage_scope *scope, uint64_t stage, uint64_t modality, uint64_t request_hash,
				uint64_t tokens)
{
	*scope = (struct hotstage_scope){
		.word = hotstage_word(stage, modality),
		.request_hash = request_hash,
		.tokens = tokens,
		.is_open = 1,
	};
	hotstage_mark_span_begin(scope->word, request_hash, tokens);
}

EXPORT void hotstage_span_end(struct hotstage_scope *scope)
{
	if (!scope->is_open)
		return;
	scope->is_open = 0;
	hotstage_mark_span_end(scope->word, scope->request_hash, scope->tokens);
}

EXPORT void hotstage_stage_begin(struct hotstage_scope *scope, uint64_t stage, uint64_t modality,
				 uint64_t request_hash, uint64_t tokens)
{
	if (hotstage_push(scope, hotstage_word(stage, modality), request_hash, tokens, 0))
		hotstage_mark_stage_begin(scope->word, request_hash, tokens);
	else
		hotstage_span_begin(scope, stage, modality, request_hash, tokens);
}

EXPORT void hotstage_stage_end(struct hotstage_scope *scope)
{
	uint64_t restored;

	if (!scope->is_open)
		return;
	if (scope->owner != &thread_stages) /* too deep, or ended on another thread: the request's stage closes, no more */
		hotstage_span_end(scope);
	else if (hotstage_pop(scope, &restored)) /* else an outer end has closed it */
		hotstage_mark_stage_end(scope->word, scope->request_hash, restored, scope->tokens);
}

EXPORT uint64_t hotstage_request_hash(const char *id)
{
	return id ? hotstage_hash(id, strlen(id)) : 0;
}

static void copy_string(char *field, size_t size, const char *text)
{
	if (text)
		hotstage_copy(field, size, text, strlen(text));
}

EXPORT uint64_t hotstage_request_begin_with_digest(const char *id, const char *endpoint, const char *instance,
						   const char *model, const char *traceparent, uint64_t input_digest)
{
	struct hotstage_request request = {.version = 1, .size = sizeof(request), .input_digest = input_digest};

	request.request_hash = hotstage_request_hash(id);
	if (!request.request_hash)
		return 0;
	copy_string(request.id, sizeof(request.id), id);
	copy_string(request.endpoint, sizeof(request.endpoint), endpoint);
	copy_string(request.instance, sizeof(request.instance), instance);
	copy_string(request.model, sizeof(request.model), model);
	copy_string(request.traceparent, sizeof(request.traceparent), traceparent);
	hotstage_mark_request_begin(&request, request.request_hash);
	return request.request_hash;
}

EXPORT uint64_t hotstage_request_begin(const char *id, const char *endpoint, const char *instance, const char *model,
				       const char *traceparent)
{
	return hotstage_request_begin_with_digest(id, endpoint, instance, model, traceparent, 0);
}

EXPORT void hotstage_request_end(uint64_t request_hash, uint64_t outcome, uint64_t output_tokens)
{
	if (request_hash)
		hotstage_mark_request_end(request_hash, outcome, output_tokens);
}

EXPORT void hotstage_tokens(uint64_t request_hash, uint64_t tokens)
{
	if (request_hash)
		hotstage_mark_tokens(request_hash, word_below(&thread_stages, thread_stages.depth + 1), tokens);
}
