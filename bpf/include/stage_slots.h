// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Which stages has a request been through, which has it open, in which modality, since when? The
 * slots of its state: a pinned stage has one of its own, those that the server made up share the
 * last. Several threads write at once: words by single stores, sums by atomic adds.
 */
#ifndef HOTSTAGE_STAGE_SLOTS_H
#define HOTSTAGE_STAGE_SLOTS_H

#include "maps.h"
#include "stage_ids.h"

#define SLOT_ONE_OPEN \
	(1U << 24) /* in the last four bytes of stage_slot: count 16, modality 8, open 8 */
#define SLOT_ONE_END 1U
#define SLOT_OPEN_MAX 192 /* more begins without an end are one of these; room for all CPUs at once */
#define FIRST_OWN_SLOT (HOTSTAGE_STAGE_SLOTS - HOTSTAGE_OWN_SLOTS)

/*
 * Where and when the request was last seen in this modality, and first: one word each, one store,
 * so it cannot tear.
 */
static __always_inline void note_modality(struct request_state *request, __u64 word, __u64 now)
{
	__u32 modality = HOTSTAGE_WORD_MODALITY(word);
	__u64 seen = (__u64)HOTSTAGE_WORD_STAGE(word) << 56 | (now >> 8 & 0xffffffffffffULL);

	if (modality < HOTSTAGE_MODALITIES) {
		*(volatile __u64 *)&request->modality_words[modality] = seen;
		if (!request->modality_first_words[modality])
			__sync_val_compare_and_swap(&request->modality_first_words[modality], 0,
						    seen);
	}
	request->updated_ns = now;
}

/*
 * The slot of a stage that the server made up. They fill in order, so whoever loses the exchange
 * lost this place and looks at the next. HOTSTAGE_STAGE_SLOTS: it has none, and none was lost to it.
 */
static __always_inline __u32 own_slot_of(struct request_state *request, __u32 stage, __u32 may_claim)
{
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < HOTSTAGE_OWN_SLOTS; i++) {
		__u64 held = *(volatile __u64 *)&request->own_stages;
		__u32 shift = i * 8;

		if (!(held >> shift & 0xff)) {
			if (!may_claim)
				return HOTSTAGE_STAGE_SLOTS;
			__sync_val_compare_and_swap(&request->own_stages, held,
						    held | (__u64)stage << shift);
			held = *(volatile __u64 *)&request->own_stages;
		}
		if ((held >> shift & 0xff) == stage)
			return FIRST_OWN_SLOT + i;
	}
	if (may_claim)
		count_loss(LOST_OWN_STAGES);
	return HOTSTAGE_STAGE_OTHER;
}

/* The stage's slot; a stage that this program does not know is `other`. */
static __always_inline __u32 slot_of(struct request_state *request, __u64 word, __u32 may_claim)
{
	__u32 stage = HOTSTAGE_WORD_STAGE(word);

	if (stage < FIRST_OWN_SLOT)
		return stage;
	if (stage < HOTSTAGE_OWN_STAGE || stage > HOTSTAGE_OWN_LAST)
		return HOTSTAGE_STAGE_OTHER;
	return own_slot_of(request, stage, may_claim);
}

/*
 * The slot at a place, 0 where there is none. Verifiers up to 6.1 take no bound from a comparison
 * of another copy of a number: here it is the very register that is compared and added.
 */
static __always_inline struct stage_slot *slot_at(struct request_state *request, __u64 place)
{
	asm volatile("" : "+r"(place));
	if (place >= HOTSTAGE_STAGE_SLOTS)
		return 0;
	return &request->stages[place];
}

/* Who marks may say anything: a stage that there is none of is `other`, such a modality is unknown. */
static __always_inline __u64 known_word(__u64 word)
{
	__u64 stage = HOTSTAGE_WORD_STAGE(word), modality = HOTSTAGE_WORD_MODALITY(word);

	if (stage >= FIRST_OWN_SLOT && stage != HOTSTAGE_NO_STAGE &&
	    (stage < HOTSTAGE_OWN_STAGE || stage > HOTSTAGE_OWN_LAST))
		stage = HOTSTAGE_STAGE_OTHER;
	if (modality >= HOTSTAGE_MODALITIES)
		modality = HOTSTAGE_MODALITIES - 1;
	return (word & ~0xffffULL) | modality << 8 | stage;
}

/* The bit in the masks of what went into this slot. */
static __always_inline __u64 mask_of(__u32 slot, __u64 word)
{
	__u32 bit = slot < FIRST_OWN_SLOT ? slot : HOTSTAGE_WORD_STAGE(word);

	return 1ULL << (bit & 63);
}

/* A number of tokens that cannot be one is no number. */
static __always_inline __u32 tokens_of(__u64 tokens)
{
	if (tokens <= 0xffffffff)
		return (__u32)tokens;
	count_loss(REFUSED_TOKENS);
	return 0;
}

/* `queued_us`: what its wait for a CPU begins with; `others_us`: the other waits. */
static __always_inline void open_slot(struct request_state *request, __u64 word, __u64 tokens,
				      __u64 now, __u32 queued_us, __u32 others_us)
{
	struct stage_slot *slot;
	__u32 place;

	if (HOTSTAGE_WORD_STAGE(word) == HOTSTAGE_NO_STAGE)
		return;
	place = slot_of(request, word, 1);
	slot = slot_at(request, place);
	if (!slot)
		return;
	if (!slot->open)
		slot->began_ns = now;
	if (!slot->open && !slot->count) {
		slot->tokens = tokens_of(tokens);
		slot->run_queue_us = queued_us;
		slot->sync_us = slot->copy_us = slot->alloc_us = others_us;
	}
	if (place == HOTSTAGE_STAGE_LORA_APPLY) {
		request->lora_rank = HOTSTAGE_WORD_LORA_RANK(word);
		request->lora_module = HOTSTAGE_WORD_LORA_MODULE(word);
	}
	slot->modality = HOTSTAGE_WORD_MODALITY(word);
	if (slot->open < SLOT_OPEN_MAX)
		__sync_fetch_and_add((__u32 *)&slot->count, SLOT_ONE_OPEN);
	__sync_fetch_and_or(&request->open_mask, mask_of(place, word));
	note_modality(request, word, now);
}

HOTSTAGE_PART __u32 close_slot(struct request_state *request, __u64 word, __u64 tokens, __u64 now)
{
	struct stage_slot *slot;
	__u32 place;

	if (!request)
		return 0;
	place = slot_of(request, word, 0);
	slot = slot_at(request, place);
	/* An end without a begin: the begin was before the attach, or came under another word. */
	if (HOTSTAGE_WORD_STAGE(word) == HOTSTAGE_NO_STAGE || !slot || !slot->open)
		return 0;
	if (slot->count)
		__sync_fetch_and_add(&slot->tokens, tokens_of(tokens));
	else
		slot->tokens = tokens_of(tokens);
	if (slot->open == 1) {
		__sync_fetch_and_add(&slot->total_ns, now - slot->began_ns);
		__sync_fetch_and_and(&request->open_mask, ~mask_of(place, word));
	}
	/* The 65,536th end begins the count anew, and must not reach the modality beside it. */
	__sync_fetch_and_add((__u32 *)&slot->count,
			     (slot->count == 0xffff ? -0xffffU : SLOT_ONE_END) - SLOT_ONE_OPEN);
	__sync_fetch_and_or(&request->stage_mask, mask_of(place, word));
	note_modality(request, word, now);
	return 0;
}

#endif
