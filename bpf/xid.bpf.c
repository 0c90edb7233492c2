// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Which GPU errors did NVIDIA's driver report? It writes them to the kernel log: `NVRM: Xid (PCI:0000:65:00): 79, ...`.
 *
 * Every line of the log passes here; all but those with the prefix leave after two compares of 8 bytes. A line that
 * stays is copied whole into `urgent` and wakes the reader: such lines are rare and each one counts. bcc compiles the
 * tracepoint with the layout that tracefs names; the object for libbpf takes the raw tracepoint, which needs no
 * tracefs. Keyed by nothing, counts nothing but lost lines. Kernel floor: 5.8 (ring buffer).
 */
#include "include/backend.h"
#include "include/abi.h"

HOTSTAGE_RING(urgent, 65536);
HOTSTAGE_ARRAY(lost_lines, __u64, 1);

#define LINE_PREFIX_NVRM 0x203a4d52564eULL /* "NVRM: ", little-endian */
#define LINE_PREFIX_MASK 0xffffffffffffULL
#define LINE_XID_WORD 0x646958 /* "Xid" */
#define LINE_XID_MASK 0xffffff

/* `line` is kernel memory of at least `length` bytes, not always NUL-terminated. */
static __always_inline void tell_line(const char *line, __u64 length)
{
	struct kernel_line_event *event;
	__u64 prefix = 0, *lost;
	__u32 word = 0, zero = 0;

	if (length < 10)
		return;
	bpf_probe_read_kernel(&prefix, sizeof(prefix), line);
	if ((prefix & LINE_PREFIX_MASK) != LINE_PREFIX_NVRM)
		return;
	bpf_probe_read_kernel(&word, sizeof(word), line + 6);
	if ((word & LINE_XID_MASK) != LINE_XID_WORD)
		return;

	event = bpf_ringbuf_reserve(&urgent, sizeof(struct kernel_line_event), 0);
	if (!event) {
		lost = bpf_map_lookup_elem(&lost_lines, &zero);
		if (lost)
			__sync_fetch_and_add(lost, 1);
		return;
	}
	event->kind = EVENT_KERNEL_LINE;
	event->length = length;
	event->at_ns = bpf_ktime_get_ns();
	__builtin_memset(event->text, 0, sizeof(event->text));
	bpf_probe_read_kernel_str(event->text, sizeof(event->text), line);
	bpf_ringbuf_submit(event, BPF_RB_FORCE_WAKEUP);
}

#ifdef HOTSTAGE_BCC

TRACEPOINT_PROBE(printk, console)
{
	__u32 location = args->data_loc_msg; /* offset in the low half, length in the high one */

	tell_line((const char *)args + (location & 0xffff), location >> 16);
	return 0;
}

#else

/* TP_PROTO(const char *text, size_t len), include/trace/events/printk.h */
SEC("raw_tp/console")
int console_line(struct bpf_raw_tracepoint_args *ctx)
{
	tell_line((const char *)ctx->args[0], ctx->args[1]);
	return 0;
}

#endif
