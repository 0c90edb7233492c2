// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
// hotstage-probe: 1
// hotstage-uprobe: lookup_begins /lib/x86_64-linux-gnu/libc.so.6 getaddrinfo
// hotstage-uretprobe: lookup_ends /lib/x86_64-linux-gnu/libc.so.6 getaddrinfo
// hotstage-metric: lookups_total from lookups by program:char[16]: Look-ups of host names, by program
// hotstage-metric: lookup_seconds_total from lookup_ns by program:char[16]: Time they took
//
// How long does media_fetch wait for the names of hosts? For programs that use this host's C library; one in a
// container has its own, at another path. On arm64 it is below /lib/aarch64-linux-gnu.

#include <uapi/linux/ptrace.h>

struct program {
	char name[16];
};

BPF_HASH(began_ns, u32, u64, 1024);
BPF_HASH(lookups, struct program, u64, 256);
BPF_HASH(lookup_ns, struct program, u64, 256);

int lookup_begins(struct pt_regs *ctx)
{
	u32 tid = bpf_get_current_pid_tgid();
	u64 now_ns = bpf_ktime_get_ns();

	began_ns.update(&tid, &now_ns);
	return 0;
}

int lookup_ends(struct pt_regs *ctx)
{
	u32 tid = bpf_get_current_pid_tgid();
	u64 *began = began_ns.lookup(&tid);
	struct program program = {};

	if (!began)
		return 0;
	bpf_get_current_comm(program.name, sizeof(program.name));
	lookups.increment(program);
	lookup_ns.increment(program, bpf_ktime_get_ns() - *began);
	began_ns.delete(&tid);
	return 0;
}
