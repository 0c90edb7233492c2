// SPDX-License-Identifier: Apache-2.0
/*
 * A server for C that tries the marks' library as it is in a wheel, natively or under an emulator. It turns a probe point
 * into another instruction that does nothing, as a watcher would into a trap, so that the library thinks that somebody
 * listens. Says what is wrong and exits 1.
 */
#include <hotstage_marks.h>

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
#define UNTOUCHED "\x90\xc3" /* nop; ret */
#define ALIKE 0xf3	     /* rep ret */
#else
#define UNTOUCHED "\x1f\x20\x03\xd5" /* nop */
#define ALIKE 0x3f		     /* yield */
#endif

#define EXPECT(condition)                                                                                              \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			printf("line %d: not so: %s\n", __LINE__, #condition);                                         \
			failures++;                                                                                    \
		}                                                                                                      \
	} while (0)

static int failures;

static void touch(uintptr_t point)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	EXPECT(!memcmp((void *)point, UNTOUCHED, sizeof(UNTOUCHED) - 1));
	EXPECT(!mprotect((void *)(point & ~(page - 1)), 2 * page, PROT_READ | PROT_WRITE | PROT_EXEC));
	*(volatile unsigned char *)point = ALIKE;
	__builtin___clear_cache((char *)point, (char *)point + 16);
}

static void stages(void)
{
	struct hotstage_scope outer, inner, waiting;
	uint64_t request = hotstage_request_begin("req-1", "/v1/x", NULL, "m", NULL), own = hotstage_stage_id("rerank");

	EXPECT(request == hotstage_request_hash("req-1") && request != 0);
	EXPECT(own == 32 && hotstage_stage_id("rerank") == 32 && !strcmp(hotstage_stage_name(32), "rerank"));
	EXPECT(hotstage_stage_id("sample") == HOTSTAGE_STAGE_SAMPLE);
	hotstage_span_begin(&waiting, HOTSTAGE_STAGE_QUEUE, HOTSTAGE_MODALITY_TEXT, request, 0);
	hotstage_stage_begin(&outer, HOTSTAGE_LORA(16, HOTSTAGE_LORA_Q_PROJ), HOTSTAGE_MODALITY_TEXT, request, 0);
	hotstage_stage_begin(&inner, own, HOTSTAGE_MODALITY_TEXT, request, 3);
	EXPECT(outer.word == (7 | 16ULL << 16 | 1ULL << 32) && inner.word == 32 && inner.depth == outer.depth + 1);
	hotstage_stage_end(&outer);
	hotstage_stage_end(&inner);
	hotstage_span_end(&waiting);
	EXPECT(!outer.is_open && !inner.is_open && !waiting.is_open);
	hotstage_tokens(request, 9);
	hotstage_request_end(request, HOTSTAGE_OUTCOME_OK, 9);
}

static void batches(int is_watched)
{
	static struct hotstage_batch_member members[5000];
	struct hotstage_batch_scope batch;

	for (unsigned i = 0; i < 5000; i++)
		members[i] = (struct hotstage_batch_member){i + 1, i, HOTSTAGE_STAGE_LLM_DECODE, 0, 0};
	hotstage_batch_begin(&batch, members, 5000, HOTSTAGE_MODALITY_TEXT, 0);
	EXPECT(batch.is_open == (uint32_t)is_watched && !batch.batch_id == !is_watched);
	hotstage_batch_end(&batch);
	EXPECT(!batch.is_open);
	EXPECT(hotstage_statistic(HOTSTAGE_COUNT_MEMBERS_CUT) == (is_watched ? 904 : 0));
}

static void embeddings(int is_watched)
{
	static const float vector[64];

	EXPECT(hotstage_embedding(1, HOTSTAGE_STAGE_OTHER, 0, vector, 64, HOTSTAGE_DTYPE_F32) == is_watched);
	EXPECT(!hotstage_embedding(1, HOTSTAGE_STAGE_OTHER, 0, vector, 64, 9));
	EXPECT(hotstage_statistic(HOTSTAGE_COUNT_EMBEDDINGS_REFUSED) == (uint64_t)is_watched);
}

int main(void)
{
	EXPECT(hotstage_digest("abc", 3, 0) == 0x44bc2cf5ad770999ULL);
	for (int is_watched = 0; is_watched < 2; is_watched++) {
		if (is_watched) {
			touch((uintptr_t)&hotstage_mark_request_begin);
			touch((uintptr_t)&hotstage_mark_stage_name);
		}
		EXPECT(hotstage_is_watched() == is_watched);
		stages();
		batches(is_watched);
		embeddings(is_watched);
	}
	puts(failures ? "failed" : "fine");
	return failures > 0;
}
