// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Frees of what no key names: mappings somewhere in a range, all that a context had. libbpf's programs look through all
 * entries at once. bcc has no way to hand a function to a helper: its programs follow mappings as long as each begins
 * where the last one ended, and tell user space the rest, which finds it and has each entry taken out by
 * ledger_take_out (ledger.bpf.c). So sums stay as exact; between both a high mark may be too high.
 */
#ifndef HOTSTAGE_LEDGER_NOTES_H
#define HOTSTAGE_LEDGER_NOTES_H

#include "ledger_maps.h"

#ifdef HOTSTAGE_BCC
#define UNMAPPED_IN_A_ROW 8
#else
#define UNMAPPED_IN_A_ROW 1 /* the others are looked for among all entries */
#endif

HOTSTAGE_QUEUE(ledger_notes, struct ledger_note, 1024);

/* What ended, on whose behalf. */
struct ended_context {
	__u64 context; /* 0 = all of the device */
	__u64 until_ns;
	__u32 tgid;
	__u32 device;
	__u32 with_pools; /* memory of pools is the device's: only a reset gives it back */
};

static __always_inline void count_unmatched_unmap(__u32 tgid)
{
	struct memory_sum *sum = memory_sum_of(tgid, MEMORY_MAPPED, HOTSTAGE_NO_DEVICE);

	count_loss(UNMATCHED_FREES);
	if (sum)
		__sync_fetch_and_add(&sum->unmatched_frees, 1);
}

#ifdef HOTSTAGE_BCC
static __always_inline void tell_note(const struct ledger_note *note)
{
	if (bpf_map_push_elem(&ledger_notes, note, BPF_ANY))
		count_loss(LOST_LEDGER_NOTES);
}

static __always_inline void note_end(const struct ended_context *ended)
{
	struct ledger_note note = {
		.from = ended->context,
		.until_ns = ended->until_ns,
		.tgid = ended->tgid,
		.device = ended->device,
		.how = NOTE_ENDED,
		.with_pools = ended->with_pools,
	};

	tell_note(&note);
}
#endif

/* An unmap has succeeded; not all of its range was found. */
static __always_inline void miss_mappings(const struct thread_state *thread, __u32 tgid)
{
#ifdef HOTSTAGE_BCC
	struct ledger_note note = {
		.from = thread->second_argument,
		.end = thread->second_argument + thread->argument,
		.until_ns = thread->since_ns,
		.missing_bytes = thread->argument - thread->third_argument,
		.tgid = tgid,
		.how = NOTE_UNMAPPED,
	};

	tell_note(&note);
#else
	(void)thread;
	count_unmatched_unmap(tgid);
#endif
}

#endif
