// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Which requests are in flight? Entries of pipeline_state: found, taken in, taken out, each charged
 * to the process that began it, so that one that begins requests without end fills its own share of
 * the map and no more.
 */
#ifndef HOTSTAGE_REQUEST_TABLE_H
#define HOTSTAGE_REQUEST_TABLE_H

#include "maps.h"

#define REQUEST_STRINGS                                                           \
	240 /* id to input_digest, the same in hotstage_request and request_state \
	     */
#define FNV_OFFSET 0x811c9dc5U
#define FNV_PRIME 0x01000193U

_Static_assert(sizeof(struct hotstage_request) - __builtin_offsetof(struct hotstage_request, id) ==
		       REQUEST_STRINGS,
	       "strings of hotstage_request");
_Static_assert(sizeof(struct request_state) - __builtin_offsetof(struct request_state, id) ==
		       REQUEST_STRINGS,
	       "strings of request_state");

static __always_inline struct request_state *request_of(__u64 request_hash)
{
	struct request_key key = {.cgroup_id = bpf_get_current_cgroup_id(),
				  .request_hash = request_hash};
	struct request_state *request = bpf_map_lookup_elem(&pipeline_state, &key);

	if (!request)
		count_loss(MISSED_REQUEST);
	return request;
}

static __always_inline __u32 model_id_of(const char *model)
{
	__u32 hash = FNV_OFFSET;

	if (!model[0])
		return 0;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < sizeof(((struct request_state *)0)->model); i++) {
		if (!model[i])
			break;
		hash = (hash ^ (__u8)model[i]) * FNV_PRIME;
	}
	return hash;
}

/*
 * Counts one more request in the process's share. Who is to be charged: the process, 0 where it
 * cannot be counted (an honest process must not pay for a full map), HOTSTAGE_REQUEST_TAKEN where
 * it has its share already.
 */
static __always_inline __u64 take_share(__u32 tgid)
{
	__u32 zero = 0;
	__u64 none = 0, *held = bpf_map_lookup_elem(&request_counts, &tgid);
	struct hotstage_settings *limits = bpf_map_lookup_elem(&settings, &zero);

	if (!limits)
		return 0;
	if (!held) {
		bpf_map_update_elem(&request_counts, &tgid, &none, BPF_NOEXIST);
		held = bpf_map_lookup_elem(&request_counts, &tgid);
	}
	if (!held) {
		count_loss(LOST_QUOTAS);
		return 0;
	}
	if (__sync_fetch_and_add(held, 1) < limits->requests_per_process)
		return tgid;
	__sync_fetch_and_add(held, -1);
	count_loss(LOST_REQUESTS_QUOTA);
	return HOTSTAGE_REQUEST_TAKEN;
}

static __always_inline void give_share_back(__u64 charged)
{
	__u32 tgid = (__u32)charged;
	__u64 *held = bpf_map_lookup_elem(&request_counts, &tgid); /* nobody is 0 */

	if (held)
		__sync_fetch_and_add(held, -1);
}

/*
 * Takes the entry out for the first who asks, and only then: so what it is charged is given back
 * once, and what another process begins under the same key meanwhile stays.
 */
static __always_inline __u32 take_out(struct request_state *request, struct request_key *key)
{
	__u64 charged = __sync_lock_test_and_set(&request->quota_tgid, HOTSTAGE_REQUEST_TAKEN);

	if (charged == HOTSTAGE_REQUEST_TAKEN)
		return 0;
	bpf_map_delete_elem(&pipeline_state, key);
	give_share_back(charged);
	return 1;
}

/* A fresh entry, charged to the process that we are in; NULL (counted) when there is no room. */
static __always_inline struct request_state *take_in(struct request_key *key, __u32 tgid)
{
	__u64 charged = take_share(tgid);
	__u32 zero = 0;
	struct request_state *blank = bpf_map_lookup_elem(&request_zero, &zero), *request;

	if (!blank || charged == HOTSTAGE_REQUEST_TAKEN)
		return 0;
	if (bpf_map_update_elem(&pipeline_state, key, blank, BPF_NOEXIST)) {
		count_loss(LOST_REQUESTS);
		give_share_back(charged);
		return 0;
	}
	request = bpf_map_lookup_elem(&pipeline_state, key);
	/* Taken out again already: whoever did that found nobody to give the share back to. */
	if (!request || __sync_val_compare_and_swap(&request->quota_tgid, 0, charged)) {
		give_share_back(charged);
		return 0;
	}
	return request;
}

#endif
