// SPDX-License-Identifier: Apache-2.0
/*
 * The marks: probe points in assembly, and the thread's bounded stack of stages above them.
 *
 * Built twice, into libhotstage_marks.so and into the Python extension; both export the probe points, and both are
 * linked with -Bsymbolic, so that a call from here reaches the copy that a watcher of this file has probed.
 */
#include "core.h"

#define EXPORT __attribute__((visibility("default")))

/*
 * In assembly, so that neither -fcf-protection, -pg, -O0 nor a sanitiser can put anything before the nop, which the
 * kernel emulates. On x86-64 it must not be the five-byte one: Linux 6.18 turns that into a call to a page which a
 * forked child does not inherit, so that the child of a watched program would crash at its first mark.
 */
#if defined(__x86_64__)
#define PROBE_POINT_BODY ".byte 0x90\n\tret\n"
#define PROBE_POINT_UNTOUCHED 0x90 /* with a watcher: int3 */
#elif defined(__aarch64__)
#define PROBE_POINT_BODY "nop\n\tret\n"
#define PROBE_POINT_UNTOUCHED 0x1f /* with a watcher: brk, which ends in 00 */
#else
#error "no probe point is known for this machine"
#endif

#define PROBE_POINT(name)                                                                                              \
	__asm__(".pushsection .text.hotstage_marks,\"ax\",%progbits\n"                                                 \
		"\t.p2align 4\n"                                                                                       \
		"\t.globl " #name "\n"                                                                                 \
		"\t.type " #name ", %function\n" #name ":\n\t" PROBE_POINT_BODY "\t.size " #name ", .-" #name "\n"     \
		"\t.popsection\n")

PROBE_POINT(hotstage_mark_stage_begin);
PROBE_POINT(hotstage_mark_stage_end);
PROBE_POINT(hotstage_mark_span_begin);
PROBE_POINT(hotstage_mark_span_end);
PROBE_POINT(hotstage_mark_request_begin);
PROBE_POINT(hotstage_mark_request_end);
PROBE_POINT(hotstage_mark_tokens);

#define MAX_DEPTH 16

struct frame {
	uint64_t word;
	uint64_t request_hash;
	uint64_t tokens;
	uint64_t sequence;
};

struct stage_stack {
	uint64_t sequence; /* counts begins: tells a frame from an earlier one at the same depth */
	uint32_t depth;
	struct frame frames[MAX_DEPTH];
};

static __thread struct stage_stack thread_stages;

static uint64_t word_of(uint64_t stage, uint64_t modality)
{
	if (stage > HOTSTAGE_STAGE_OTHER)
		stage = HOTSTAGE_STAGE_OTHER;
	if (modality > HOTSTAGE_MODALITY_UNKNOWN)
		modality = HOTSTAGE_MODALITY_UNKNOWN;
	return HOTSTAGE_WORD(stage, modality);
}

static uint64_t word_below(const struct stage_stack *stages, uint32_t depth)
{
	return depth > 1 ? stages->frames[depth - 2].word : HOTSTAGE_NO_WORD;
}

uint64_t hotstage_thread_word(void)
{
	return word_below(&thread_stages, thread_stages.depth + 1);
}

EXPORT void hotstage_span_begin(struct hotstage_scope *scope, uint64_t stage, uint64_t modality, uint64_t request_hash,
				uint64_t tokens)
{
	*scope = (struct hotstage_scope){
		.word = word_of(stage, modality),
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
	struct stage_stack *stages = &thread_stages;

	if (stages->depth >= MAX_DEPTH) {
		hotstage_span_begin(scope, stage, modality, request_hash, tokens);
		return;
	}
	*scope = (struct hotstage_scope){
		.word = word_of(stage, modality),
		.request_hash = request_hash,
		.tokens = tokens,
		.sequence = ++stages->sequence,
		.owner = stages,
		.depth = ++stages->depth,
		.is_open = 1,
	};
	stages->frames[scope->depth - 1] = (struct frame){scope->word, request_hash, tokens, scope->sequence};
	hotstage_mark_stage_begin(scope->word, request_hash, tokens);
}

/* Closes the scope and whatever was begun above it and not ended (an exception, a generator left half-way). */
static void unwind(struct stage_stack *stages, const struct hotstage_scope *scope)
{
	stages->frames[scope->depth - 1].tokens = scope->tokens;
	while (stages->depth >= scope->depth) {
		const struct frame *top = &stages->frames[stages->depth - 1];
		uint64_t restored = word_below(stages, stages->depth);

		stages->depth--;
		hotstage_mark_stage_end(top->word, top->request_hash, restored, top->tokens);
	}
}

EXPORT void hotstage_stage_end(struct hotstage_scope *scope)
{
	struct stage_stack *stages = &thread_stages;

	if (!scope->is_open)
		return;
	if (scope->owner != stages) { /* too deep, or ended on another thread: the request's stage closes, no more */
		hotstage_span_end(scope);
		return;
	}
	scope->is_open = 0;
	if (scope->depth > stages->depth || stages->frames[scope->depth - 1].sequence != scope->sequence)
		return; /* an outer end has closed it */
	unwind(stages, scope);
}

EXPORT int hotstage_is_watched(void)
{
	return *(const volatile unsigned char *)(uintptr_t)&hotstage_mark_request_begin != PROBE_POINT_UNTOUCHED;
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
		hotstage_mark_tokens(request_hash, hotstage_thread_word(), tokens);
}
