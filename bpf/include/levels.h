// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * How much is recorded of a process's calls? Its level, which user space sets when its probes cost more of its
 * CPU time than they may (agent/hotstage/probes/restraint). A thread keeps its process's level and looks it
 * up again only when `level_generation` has moved: while nobody is stepped down a timed call pays for one look
 * into an array. Launches are entry-only at every level and do not come here.
 *
 * `probe_hits` counts what no other map counts: marks and NVTX ranges, so that their cost is known, too.
 */
#ifndef HOTSTAGE_LEVELS_H
#define HOTSTAGE_LEVELS_H

#include "maps.h"

enum hotstage_level {
	LEVEL_FULL = 0,
	LEVEL_NO_STACKS = 1,   /* no user stack of a slow or failing call is taken */
	LEVEL_TAILS_ONLY = 2,  /* no histogram: slow and failing calls, totals, what is in flight */
	LEVEL_COUNTS_ONLY = 3, /* counted at the entry, no return: but for calls that change state */
};

struct probe_hits {
	__u64 marks;
	__u64 nvtx;
};

HOTSTAGE_ARRAY(level_generation, __u64, 1);
HOTSTAGE_SPARSE_HASH(process_levels, __u32, __u32, 4096);
HOTSTAGE_SPARSE_HASH(probe_hits, __u32, struct probe_hits, 4096);

static __always_inline __u32 level_of(struct thread_state *thread, __u32 tgid)
{
	__u32 zero = 0, *level;
	__u64 *generation = bpf_map_lookup_elem(&level_generation, &zero);

	if (generation && thread->level_generation != (__u32)*generation) {
		thread->level_generation = (__u32)*generation;
		level = bpf_map_lookup_elem(&process_levels, &tgid);
		thread->level = level ? (__u8)*level : LEVEL_FULL;
	}
	return thread->level;
}

static __always_inline struct probe_hits *hits_of(__u32 tgid)
{
	struct probe_hits none = {}, *hits = bpf_map_lookup_elem(&probe_hits, &tgid);

	if (!hits) {
		bpf_map_update_elem(&probe_hits, &tgid, &none, BPF_NOEXIST);
		hits = bpf_map_lookup_elem(&probe_hits, &tgid);
	}
	return hits;
}

static __always_inline void note_mark(void)
{
	struct probe_hits *hits = hits_of(bpf_get_current_pid_tgid() >> 32);

	if (hits)
		__sync_fetch_and_add(&hits->marks, 1);
}

static __always_inline void note_nvtx(__u32 tgid)
{
	struct probe_hits *hits = hits_of(tgid);

	if (hits)
		__sync_fetch_and_add(&hits->nvtx, 1);
}

#endif
