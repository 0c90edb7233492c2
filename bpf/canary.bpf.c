// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Does a probe on this instruction read what the caller passed, and does the call come back? Fired by one process that
 * exists for the trial (`agent/hotstage/probes/trial/`), before a library is attached for everybody; never loaded
 * otherwise. Key: the attach cookie, which function of the trial. It keeps the last arguments, the last result and how
 * often both sides ran. Kernel floor: 5.15.
 */
#include "include/backend.h"
#include "include/arguments.h"

#define CANARY_FUNCTIONS 8

struct canary_seen {
	__u64 entered;
	__u64 returned;
	__u64 arguments[6];
	__u64 result;
};

HOTSTAGE_ARRAY(canary_seen, struct canary_seen, CANARY_FUNCTIONS);

SEC("uprobe")
int canary_enter(struct pt_regs *ctx)
{
	__u32 function = bpf_get_attach_cookie(ctx);
	struct canary_seen *seen = bpf_map_lookup_elem(&canary_seen, &function);

	if (!seen)
		return 0;
	seen->arguments[0] = register_argument(ctx, 1);
	seen->arguments[1] = register_argument(ctx, 2);
	seen->arguments[2] = register_argument(ctx, 3);
	seen->arguments[3] = register_argument(ctx, 4);
	seen->arguments[4] = register_argument(ctx, 5);
	seen->arguments[5] = register_argument(ctx, 6);
	__sync_fetch_and_add(&seen->entered, 1);
	return 0;
}

SEC("uretprobe")
int canary_exit(struct pt_regs *ctx)
{
	__u32 function = bpf_get_attach_cookie(ctx);
	struct canary_seen *seen = bpf_map_lookup_elem(&canary_seen, &function);

	if (!seen)
		return 0;
	seen->result = PT_REGS_RC(ctx);
	__sync_fetch_and_add(&seen->returned, 1);
	return 0;
}
