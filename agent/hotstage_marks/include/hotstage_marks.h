// SPDX-License-Identifier: Apache-2.0
/*
 * hotstage marks for C and C++ servers: say which request is in which stage, for next to nothing.
 *
 * Link with -lhotstage_marks. Every call is a few instructions and one call to an exported probe point, a function
 * that begins with a nop and returns; a watcher attaches to the probe points, nobody else sees them. No call
 * here allocates, blocks, prints or fails. One copy of the library serves a process, the Python extension included:
 * they share the stacks of the threads and the table of names.
 *
 * Times are the watcher's business. Strings are copied, bounded and cut between UTF-8 characters.
 */
#ifndef HOTSTAGE_MARKS_H
#define HOTSTAGE_MARKS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Pinned ids, in pipeline order. 32..63 are the server's own, by hotstage_stage_id. */
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
	HOTSTAGE_STAGE_FIRST_OWN = 32,
	HOTSTAGE_STAGE_LAST_OWN = 63,
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

/* Which of the model's matrices a LoRA adapter changes. */
enum hotstage_lora_module {
	HOTSTAGE_LORA_UNKNOWN = 0,
	HOTSTAGE_LORA_Q_PROJ = 1,
	HOTSTAGE_LORA_K_PROJ = 2,
	HOTSTAGE_LORA_V_PROJ = 3,
	HOTSTAGE_LORA_O_PROJ = 4,
	HOTSTAGE_LORA_GATE_PROJ = 5,
	HOTSTAGE_LORA_UP_PROJ = 6,
	HOTSTAGE_LORA_DOWN_PROJ = 7,
	HOTSTAGE_LORA_QKV_PROJ = 8,
	HOTSTAGE_LORA_GATE_UP_PROJ = 9,
	HOTSTAGE_LORA_EMBED_TOKENS = 10,
	HOTSTAGE_LORA_LM_HEAD = 11,
	HOTSTAGE_LORA_VISION = 12,
	HOTSTAGE_LORA_PROJECTOR = 13,
	HOTSTAGE_LORA_ALL = 14,
	HOTSTAGE_LORA_OTHER = 15,
};

/* The stage lora_apply with what is applied, wherever a `stage` is asked for; a rank above 65535 is 65535. */
#define HOTSTAGE_LORA(rank, module)                                                                                    \
	((uint64_t)HOTSTAGE_STAGE_LORA_APPLY | (uint64_t)((rank) > 0xffff ? 0xffff : (rank)) << 16 |                  \
	 (uint64_t)((module) & 0xff) << 32)

/* Or-ed to a `stage`: it is known by an NVTX range. The watcher tells the two apart. */
#define HOTSTAGE_FROM_NVTX (2ULL << 40)

enum hotstage_dtype {
	HOTSTAGE_DTYPE_F32 = 0,
	HOTSTAGE_DTYPE_F16 = 1,
	HOTSTAGE_DTYPE_BF16 = 2,
	HOTSTAGE_DTYPE_F64 = 3,
};

/* What was left out since the process began, for hotstage_statistic. */
enum hotstage_count {
	HOTSTAGE_COUNT_STAGES_REFUSED = 0,     /* uses of a name that found the table of 32 full: counted as other */
	HOTSTAGE_COUNT_BATCHES_NESTED = 1,     /* batches inside a batch: plain stages of the outer one */
	HOTSTAGE_COUNT_BATCHES_BROKEN = 2,     /* closed by an outer stage, too deep, or ended on another thread */
	HOTSTAGE_COUNT_MEMBERS_CUT = 3,        /* members behind the 4,096th of a batch */
	HOTSTAGE_COUNT_MEMBERS_MALFORMED = 4,  /* members that are no (request, stage, tokens); Python only */
	HOTSTAGE_COUNT_EMBEDDINGS_REFUSED = 5, /* not readable on the host, of no request, or no vector */
	HOTSTAGE_COUNTS = 6,
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

/* One request's part of a batch. */
struct hotstage_batch_member {
	uint64_t request_hash;
	uint32_t tokens;
	uint8_t stage;
	uint8_t modality;
	uint16_t pad;
};

#define HOTSTAGE_BATCH_PART 64

/* What the watcher copies when a batch ends, once for each 64 members: 1,056 bytes, no pointers. */
struct hotstage_batch {
	uint32_t version; /* 1 */
	uint32_t size;    /* 1056 */
	uint64_t batch_id;
	uint64_t word;
	uint32_t tokens_total; /* of the whole batch, >= 1: a member's share is its tokens / tokens_total */
	uint16_t members;
	uint16_t members_total; /* of all parts */
	struct hotstage_batch_member member[HOTSTAGE_BATCH_PART];
};

/* One open stage or span; the caller keeps it (on its stack) from begin to end. `tokens` may change in between. */
struct hotstage_scope {
	uint64_t word; /* stage | modality << 8 | LoRA rank << 16 | LoRA module << 32 | source << 40 */
	uint64_t request_hash;
	uint64_t tokens;
	uint64_t sequence;
	const void *owner; /* the thread's stack that holds it; NULL: a span, or not open */
	uint32_t depth;
	uint32_t is_open;
};

/* One open batch; the caller keeps it, and the members, from begin to end. */
struct hotstage_batch_scope {
	struct hotstage_scope stage; /* the thread's */
	uint64_t batch_id;           /* 0: not told as a batch */
	const struct hotstage_batch_member *members;
	uint32_t count;
	uint32_t tokens_total;
	uint32_t flags;
	uint32_t is_open;
};

#define HOTSTAGE_BATCH_WITHOUT_SPANS 1U /* the members' stages are told by somebody else, as spans */

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

/*
 * The id of a stage by its name: a pinned one, or one of the server's own. A name that is new gets the next of the
 * ids 32..63, for the life of the process; the 33rd counts as `other`, and is counted. Control characters and bytes
 * that are no UTF-8 become `_`; 31 bytes are kept, cut between characters. Keep the id: this compares names.
 */
uint64_t hotstage_stage_id(const char *name);

/* The name of a stage, pinned or the server's own; NULL for an id that stands for nothing. */
const char *hotstage_stage_name(uint64_t stage);

uint64_t hotstage_statistic(uint64_t which); /* enum hotstage_count */

/*
 * Work that several requests share on this thread, such as one step of a continuous batch. Calls to CUDA between begin
 * and end count for the stage that has most of the tokens (a tie: the lowest id), and are shared out among the members
 * by their tokens; a member without tokens has one. Each member's own stage is open meanwhile. A batch nests with
 * stages; inside another batch of the thread it is a plain stage of that one. With nobody listening the members are
 * not looked at. Any number of members; the first 4,096 are told.
 */
void hotstage_batch_begin(struct hotstage_batch_scope *scope, const struct hotstage_batch_member *members,
			  uint32_t count, uint64_t modality, uint32_t flags);
void hotstage_batch_end(struct hotstage_batch_scope *scope);

/*
 * Where the request's embedding lies in this process's memory: `dims` numbers in a row. Nothing is copied; keep it
 * there until the request ends or the next one is told. NULL takes it back. Memory that the host cannot read (a device
 * pointer) is refused and counted. Returns whether it was told: 0 also when nobody listens.
 */
int hotstage_embedding(uint64_t request_hash, uint64_t stage, uint64_t modality, const void *data, uint32_t dims,
		       uint32_t dtype);

/* Progress: output tokens of the request so far. */
void hotstage_tokens(uint64_t request_hash, uint64_t tokens);

/*
 * The probe points. Call the functions above instead: they keep the thread's stack, which these do not.
 * word = stage | modality << 8 | LoRA rank << 16 (16 bits) | LoRA module << 32 (8 bits) | source << 40 (8 bits: 0 a
 * mark, 2 NVTX); restored_word = what the thread is in after the end; shape = dims | dtype << 32.
 */
void hotstage_mark_stage_begin(uint64_t word, uint64_t request_hash, uint64_t tokens);
void hotstage_mark_stage_end(uint64_t word, uint64_t request_hash, uint64_t restored_word, uint64_t tokens);
void hotstage_mark_span_begin(uint64_t word, uint64_t request_hash, uint64_t tokens);
void hotstage_mark_span_end(uint64_t word, uint64_t request_hash, uint64_t tokens);
void hotstage_mark_request_begin(const struct hotstage_request *request, uint64_t request_hash);
void hotstage_mark_request_end(uint64_t request_hash, uint64_t outcome, uint64_t output_tokens);
void hotstage_mark_tokens(uint64_t request_hash, uint64_t word, uint64_t tokens);
void hotstage_mark_stage_name(uint64_t stage, const char *name); /* NUL-padded, 32 bytes */
void hotstage_mark_batch_begin(uint64_t batch_id, uint64_t word);
void hotstage_mark_batch_end(const struct hotstage_batch *batch, uint64_t restored_word);
void hotstage_mark_embedding(uint64_t request_hash, uint64_t word, const void *data, uint64_t shape);

#ifdef __cplusplus
}
#endif
#endif
