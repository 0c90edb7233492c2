// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * How often does each tracepoint of a GPU driver fire, where no bcc is there to compile driver.bpf.c?
 *
 * The same counters, without the fields: an event's layout is the host's own, its number in the table of events
 * (agent/hotstage/probes/driver/table.py) is ours. A raw tracepoint carries no cookie before 6.10, so there is a
 * program for each number. Kernel floor: 5.8 (as driver.bpf.c, whose maps these are).
 */
#include "include/backend.h"
#include "include/abi.h"
#include "include/histogram.h"
#include "include/driver.h"

HOTSTAGE_ARRAY(event_counts, struct event_count, DRIVER_EVENTS_MAX);
HOTSTAGE_ARRAY(driver_losses, __u64, 1);   /* never written: a count is never lost */
HOTSTAGE_RING(driver_events, 4096);	   /* never written: fields are not known */

static __always_inline int count_event(__u32 event)
{
	struct event_count *count = bpf_map_lookup_elem(&event_counts, &event);

	if (!count)
		return 0;
	__sync_fetch_and_add(&count->hits, 1);
	count->last_ns = bpf_ktime_get_ns();
	return 0;
}

#define COUNT(number)            \
	SEC("raw_tp")            \
	int count_##number(void *ctx) \
	{                        \
		return count_event(number); \
	}

COUNT(0) COUNT(1) COUNT(2) COUNT(3) COUNT(4) COUNT(5) COUNT(6) COUNT(7)
COUNT(8) COUNT(9) COUNT(10) COUNT(11) COUNT(12) COUNT(13) COUNT(14) COUNT(15)
COUNT(16) COUNT(17) COUNT(18) COUNT(19) COUNT(20) COUNT(21) COUNT(22) COUNT(23)
COUNT(24) COUNT(25) COUNT(26) COUNT(27) COUNT(28) COUNT(29) COUNT(30) COUNT(31)
_Static_assert(DRIVER_EVENTS_MAX == 32, "a program for each event");
