// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Takes one entry out of the ledger for user space, which found it by a note (include/ledger_notes.h): under bcc only,
 * attached to nothing, run by BPF_PROG_TEST_RUN. Kernel >= 5.10.
 */
#include "include/backend.h"
#include "include/ledger_notes.h"
#include "include/ledger_free.h"

#ifdef HOTSTAGE_BCC
/* Arguments: address, process | space << 32, since when, enum hotstage_taken_out. Returns 1 where it was there. */
int ledger_take_out(struct bpf_raw_tracepoint_args *ctx)
{
	struct allocation_key key = {
		.address = ctx->args[0],
		.tgid = (__u32)ctx->args[1],
		.space = ctx->args[1] >> 32,
	};
	__u64 since_ns = ctx->args[2], how = ctx->args[3];
	struct allocation *found, taken;

	if (how == TAKEN_UNMATCHED) {
		count_unmatched_unmap(key.tgid);
		return 0;
	}
	found = bpf_map_lookup_elem(&allocations, &key);
	if (!found || found->since_ns != since_ns || !claim_allocation(&key, &taken))
		return 0;
	take_off(&taken, key.tgid, how == TAKEN_IMPLICITLY);
	if (key.space == SPACE_MAPPINGS)
		drop_hold(key.tgid, taken.handle);
	return 1;
}
#endif
