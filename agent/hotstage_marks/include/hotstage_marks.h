// SPDX-License-Identifier: Apache-2.0
/*
 * hotstage marks for C and C++ servers: say which request is in which stage, for next to nothing.
 *
 * Link with -lhotstage_marks. Every call is a few instructions and one call to an exported probe point, a function
 * that begins with a nop and returns; a watcher attaches to the probe points, nobody else sees them. No call
 * here allocates, blocks, prints or fails.
 *
 * Times are the watcher's business. Strings are copied, bounded and cut between UTF-8 characters.
 */
#ifndef HOTSTAGE_MARKS_H
#define HOTSTAGE_MARKS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Pinned ids, in pipeline order. */
enum hotstage_stage {
	HOTSTAGE_STAGE_GATEWAY = 0,
	HOTSTAGE_STAGE_MEDIA_FETCH = 1,
	HOTSTAGE_STAGE_MEDIA_DECODE = 2,
	HOTSTAGE_STAGE_PREPROCESS = 3,
	HOTSTAGE_STAGE_TOKENIZE = 4,
	HOTSTAGE_STAGE_QUEUE = 5,
	HOTSTAGE_STAGE_MODEL_LOAD = 6,
	HOTSTAGE_STAGE_LORA_APPLY = 7,
	HOTSTAGE_STAGE_VISION_ENCODE = 8,
	HOTSTAGE_STAGE_AUDIO_ENCODE = 9,
	HOTSTAGE_STAGE_VIDEO_ENCODE = 10,
	HOTSTAGE_STAGE_CROSS_MODAL_ALIGN = 11,
	HOTSTAGE_STAGE_LLM_PREFILL = 12,
	HOTSTAGE_STAGE_LLM_DECODE = 13,
	HOTSTAGE_STAGE_KV_TRANSFER = 14,
	HOTSTAGE_STAGE_SAMPLE = 15,
	HOTSTAGE_STAGE_DETOKENIZE = 16,
	HOTSTAGE_STAGE_OTHER = 17,
	HOTSTAGE_STAGE_NONE = 255,
};

enum hotstage_modality {
	HOTSTAGE_MODALITY_TEXT = 0,
	HOTSTAGE_MODALITY_IMAGE = 1,
	HOTSTAGE_MODALITY_AUDIO = 2,
	HOTSTAGE_MODALITY_VIDEO = 3,
	HOTSTAGE_MODALITY_MIXED = 4,
	HOTSTAGE_MODALITY_UNKNOWN = 5,
};

enum hotstage_outcome {
	HOTSTAGE_OUTCOME_OK = 0,
	HOTSTAGE_OUTCOME_ERROR = 1,
	HOTSTAGE_OUTCOME_CANCELLED = 2,
	HOTSTAGE_OUTCOME_REFUSED = 3,
};

/* What the watcher copies when a request begins: 256 bytes, NUL-padded, no pointers. */
struct hotstage_request {
	uint32_t version; /* 1 */
	uint32_t size;    /* 256 */
	uint64_t request_hash;
	char id[64];
	char endpoint[48];
	char instance[32];
	char model[32];
	char traceparent[56];
	uint64_t input_digest; /* 0: none */
};

/* One open stage or span; the caller keeps it (on its stack) from begin to end. `tokens` may change in between. */
struct hotstage_scope {
	uint64_t word; /* stage | modality << 8 */
	uint64_t request_hash;
	uint64_t tokens;
	uint64_t sequence;
	const void *owner; /* the thread's stack that holds it; NULL: a span, or not open */
	uint32_t depth;
	uint32_t is_open;
};

/*
 * Whether anybody listens at this moment: a watcher that attaches changes the first byte of a probe point, and that
 * byte is what is read here, by one load. For work that exists only to be marked; a mark by itself costs no more.
 */
int hotstage_is_watched(void);

/* FNV-1a 64 of the id's bytes, 0 mapped to 1: how every other call names the request. NULL or "" gives 0, none. */
uint64_t hotstage_request_hash(const char *id);

/* A request begins; the other strings may be NULL. Returns its hash. */
uint64_t hotstage_request_begin(const char *id, const char *endpoint, const char *instance, const char *model,
				const char *traceparent);

/* The same with the digest of its input, so that a retry can prove that the input is the same; 0: none. */
uint64_t hotstage_request_begin_with_digest(const char *id, const char *endpoint, const char *instance,
					    const char *model, const char *traceparent, uint64_t input_digest);
void hotstage_request_end(uint64_t request_hash, uint64_t outcome, uint64_t output_tokens);

/*
 * 64 bits of a digest (XXH64, never 0): of one input with seed 0, of several with the digest so far as the seed. It
 * tells inputs apart, not forgers. Some 10 GB/s.
 */
uint64_t hotstage_digest(const void *input, uint64_t bytes, uint64_t seed);

/*
 * Synchronous work on this thread: calls to CUDA between begin and end count for the stage, and the request's stage
 * is open meanwhile (request_hash 0: the thread only). Stages nest; at most 16 deep, deeper ones touch the request
 * only. An end closes every stage begun after it on the same thread; a second end does nothing.
 */
void hotstage_stage_begin(struct hotstage_scope *scope, uint64_t stage, uint64_t modality, uint64_t request_hash,
			  uint64_t tokens);
void hotstage_stage_end(struct hotstage_scope *scope);

/* The same for the request alone: begin and end may be on different threads, or on both sides of an await. */
void hotstage_span_begin(struct hotstage_scope *scope, uint64_t stage, uint64_t modality, uint64_t request_hash,
			 uint64_t tokens);
void hotstage_span_end(struct hotstage_scope *scope);

/* Progress: output tokens of the request so far. */
void hotstage_tokens(uint64_t request_hash, uint64_t tokens);

/*
 * The probe points. Call the functions above instead: they keep the thread's stack, which these do not.
 * word = stage | modality << 8; restored_word = what the thread is in after the end.
 */
void hotstage_mark_stage_begin(uint64_t word, uint64_t request_hash, uint64_t tokens);
void hotstage_mark_stage_end(uint64_t word, uint64_t request_hash, uint64_t restored_word, uint64_t tokens);
void hotstage_mark_span_begin(uint64_t word, uint64_t request_hash, uint64_t tokens);
void hotstage_mark_span_end(uint64_t word, uint64_t request_hash, uint64_t tokens);
void hotstage_mark_request_begin(const struct hotstage_request *request, uint64_t request_hash);
void hotstage_mark_request_end(uint64_t request_hash, uint64_t outcome, uint64_t output_tokens);
void hotstage_mark_tokens(uint64_t request_hash, uint64_t word, uint64_t tokens);

#ifdef __cplusplus
}
#endif
#endif
