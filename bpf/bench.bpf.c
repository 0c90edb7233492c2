// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * What are our programs compared with? Empty programs for each shape of link, and the classic
 * hand-written ones that do less: a count by process, and a pair with a start map and a log2
 * histogram. `hotstage bench overhead` attaches them to twins of the probed function in the same
 * run. Nothing here runs in the agent.
 */
#include "include/backend.h"

#define REFERENCE_OCTAVES 64

struct reference_histogram {
	__u64 counts[REFERENCE_OCTAVES];
};

HOTSTAGE_HASH(reference_counts, __u32, __u64, 1024);
HOTSTAGE_HASH(reference_starts, __u32, __u64, 16384);
HOTSTAGE_HASH(reference_histograms, __u32, struct reference_histogram, 1024);
HOTSTAGE_ARRAY(reference_zero, struct reference_histogram, 1);

SEC("uprobe")
int empty(struct pt_regs *ctx)
{
	return 0;
}

SEC("uprobe")
int empty_session(struct pt_regs *ctx)
{
	return 0;
}

SEC("uprobe")
int reference_count(struct pt_regs *ctx)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	__u64 one = 1, *count = bpf_map_lookup_elem(&reference_counts, &tgid);

	if (count)
		__sync_fetch_and_add(count, 1);
	else
		bpf_map_update_elem(&reference_counts, &tgid, &one, BPF_NOEXIST);
	return 0;
}

SEC("uprobe")
int reference_enter(struct pt_regs *ctx)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid();
	__u64 now = bpf_ktime_get_ns();

	bpf_map_update_elem(&reference_starts, &tid, &now, BPF_ANY);
	return 0;
}

static __always_inline __u32 octave_of(__u64 value)
{
	__u32 octave = 0;

	if (value >> 32) {
		value >>= 32;
		octave += 32;
	}
	if (value >> 16) {
		value >>= 16;
		octave += 16;
	}
	if (value >> 8) {
		value >>= 8;
		octave += 8;
	}
	if (value >> 4) {
		value >>= 4;
		octave += 4;
	}
	if (value >> 2) {
		value >>= 2;
		octave += 2;
	}
	return octave + (value >> 1);
}

SEC("uprobe")
int reference_exit(struct pt_regs *ctx)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	__u32 tid = (__u32)pid_tgid, tgid = pid_tgid >> 32, zero = 0;
	__u64 *start = bpf_map_lookup_elem(&reference_starts, &tid);
	struct reference_histogram *histogram, *blank;
	__u64 duration;

	if (!start)
		return 0;
	duration = bpf_ktime_get_ns() - *start;
	bpf_map_delete_elem(&reference_starts, &tid);
	histogram = bpf_map_lookup_elem(&reference_histograms, &tgid);
	if (!histogram) {
		blank = bpf_map_lookup_elem(&reference_zero, &zero);
		if (!blank)
			return 0;
		bpf_map_update_elem(&reference_histograms, &tgid, blank, BPF_NOEXIST);
		histogram = bpf_map_lookup_elem(&reference_histograms, &tgid);
		if (!histogram)
			return 0;
	}
	__sync_fetch_and_add(&histogram->counts[octave_of(duration) & (REFERENCE_OCTAVES - 1)], 1);
	return 0;
}

SEC("tp_btf/sched_switch")
int empty_switch(__u64 *ctx)
{
	return 0;
}
