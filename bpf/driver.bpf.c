// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * What do GPU drivers and the kernel around them say: work submitted, fences from emission to signal, memory by
 * process, XIDs, OOM kills, and, on request, ioctls of GPU devices by class.
 *
 * Compiled by bcc alone, on the host: TRACEPOINT_PROBE takes each event's layout from tracefs, and layouts differ
 * between kernels and drivers. User space (agent/hotstage/probes/driver/) knows what exists and sets a macro
 * ON_<group>_<event> for each event that is to be attached and HAS_<group>_<event>_<field> for each field that its
 * layout has; events whose only use is to be counted, with the name of their ring, are appended to this text. Counts
 * stay in maps, rare things go to `driver_events`. Kernel floor: 5.8 (ring buffer).
 */
#include "include/backend.h"
#include "include/abi.h"
#include "include/histogram.h"
#include "include/driver.h"

HOTSTAGE_ARRAY(event_counts, struct event_count, DRIVER_EVENTS_MAX);
HOTSTAGE_ARRAY(driver_losses, __u64, 1);
HOTSTAGE_RING(driver_events, 65536);
/* By ring: a host has as many as its GPUs have engines. */
HOTSTAGE_SPARSE_HASH(ring_submits, struct driver_name, __u64, 256);

static __always_inline void lose(void)
{
	__u32 zero = 0;
	__u64 *lost = bpf_map_lookup_elem(&driver_losses, &zero);

	if (lost)
		__sync_fetch_and_add(lost, 1);
}

static __always_inline void count_event(__u32 event)
{
	struct event_count *count = bpf_map_lookup_elem(&event_counts, &event);

	if (!count)
		return;
	__sync_fetch_and_add(&count->hits, 1);
	count->last_ns = bpf_ktime_get_ns();
}

/* One more job on the ring of that name, which is kernel memory. */
static __always_inline void count_ring(const char *name)
{
	struct driver_name key = {};
	__u64 one = 1, *count;

	bpf_probe_read_kernel_str(key.text, sizeof(key.text), name);
	count = bpf_map_lookup_elem(&ring_submits, &key);
	if (count)
		__sync_fetch_and_add(count, 1);
	else if (bpf_map_update_elem(&ring_submits, &key, &one, BPF_NOEXIST))
		lose();
}

#ifdef ON_dma_fence_dma_fence_emit

HOTSTAGE_SPARSE_HASH(open_fences, struct fence_key, struct open_fence, 16384);
HOTSTAGE_SPARSE_HASH(timelines, struct timeline_key, struct timeline_stat, 64);
HOTSTAGE_ARRAY(timeline_zero, struct timeline_stat, 1); /* never written: too large for the stack */

static __always_inline struct timeline_stat *timeline_of(struct timeline_key *key)
{
	struct timeline_stat *stat = bpf_map_lookup_elem(&timelines, key), *blank;
	__u32 zero = 0;

	if (stat)
		return stat;
	blank = bpf_map_lookup_elem(&timeline_zero, &zero);
	if (!blank)
		return 0;
	bpf_map_update_elem(&timelines, key, blank, BPF_NOEXIST);
	stat = bpf_map_lookup_elem(&timelines, key);
	if (!stat)
		lose();
	return stat;
}

TRACEPOINT_PROBE(dma_fence, dma_fence_emit)
{
	struct fence_key key = {.context = args->context, .seqno = args->seqno};
	struct open_fence fence = {};
	struct timeline_stat *stat;

	count_event(EVENT_dma_fence_dma_fence_emit);
	fence.emitted_ns = bpf_ktime_get_ns();
	bpf_probe_read_kernel_str(fence.driver.text, sizeof(fence.driver.text),
				  (const char *)args + (args->data_loc_driver & 0xffff));
	bpf_probe_read_kernel_str(fence.timeline.text, sizeof(fence.timeline.text),
				  (const char *)args + (args->data_loc_timeline & 0xffff));
	stat = timeline_of((struct timeline_key *)&fence.driver);
	if (stat)
		__sync_fetch_and_add(&stat->emitted, 1);
	if (bpf_map_update_elem(&open_fences, &key, &fence, BPF_ANY))
		lose();
	return 0;
}

/* Names are those of the emission: since 6.17 a signaled fence no longer tells its driver's. */
TRACEPOINT_PROBE(dma_fence, dma_fence_signaled)
{
	struct fence_key key = {.context = args->context, .seqno = args->seqno};
	struct open_fence *fence;
	struct timeline_stat *stat;
	__u64 duration_ns;
	__u32 slot;

	count_event(EVENT_dma_fence_dma_fence_signaled);
	fence = bpf_map_lookup_elem(&open_fences, &key);
	if (!fence)
		return 0; /* emitted before we looked */
	duration_ns = bpf_ktime_get_ns() - fence->emitted_ns;
	stat = timeline_of((struct timeline_key *)&fence->driver);
	if (stat) {
		__sync_fetch_and_add(&stat->signaled, 1);
		__sync_fetch_and_add(&stat->total_ns, duration_ns);
		if (duration_ns > stat->max_ns)
			stat->max_ns = duration_ns;
		slot = histogram_slot_of(duration_ns);
		/* The verifier must find the bound on the register that indexes. */
		asm volatile("" : "+r"(slot));
		if (slot < HOTSTAGE_HISTOGRAM_SLOTS)
			__sync_fetch_and_add(&stat->counts[slot], 1);
	}
	bpf_map_delete_elem(&open_fences, &key);
	return 0;
}

/* One that goes without having signaled is open no longer. */
TRACEPOINT_PROBE(dma_fence, dma_fence_destroy)
{
	struct fence_key key = {.context = args->context, .seqno = args->seqno};

	count_event(EVENT_dma_fence_dma_fence_destroy);
	bpf_map_delete_elem(&open_fences, &key);
	return 0;
}

#endif
#ifdef ON_dma_fence_dma_fence_wait_start

HOTSTAGE_SPARSE_HASH(fence_waits_open, __u32, __u64, 4096);
HOTSTAGE_SPARSE_HASH(fence_waits, __u32, struct wait_stat, 1024);

TRACEPOINT_PROBE(dma_fence, dma_fence_wait_start)
{
	__u32 tid = bpf_get_current_pid_tgid();
	__u64 now_ns = bpf_ktime_get_ns();

	count_event(EVENT_dma_fence_dma_fence_wait_start);
	if (bpf_map_update_elem(&fence_waits_open, &tid, &now_ns, BPF_ANY))
		lose();
	return 0;
}

TRACEPOINT_PROBE(dma_fence, dma_fence_wait_end)
{
	__u64 id = bpf_get_current_pid_tgid(), *began_ns;
	__u32 tid = id, tgid = id >> 32;
	struct wait_stat first = {}, *stat;

	count_event(EVENT_dma_fence_dma_fence_wait_end);
	began_ns = bpf_map_lookup_elem(&fence_waits_open, &tid);
	if (!began_ns)
		return 0;
	first.waits = 1;
	first.total_ns = bpf_ktime_get_ns() - *began_ns;
	bpf_map_delete_elem(&fence_waits_open, &tid);
	stat = bpf_map_lookup_elem(&fence_waits, &tgid);
	if (stat) {
		__sync_fetch_and_add(&stat->waits, 1);
		__sync_fetch_and_add(&stat->total_ns, first.total_ns);
	} else if (bpf_map_update_elem(&fence_waits, &tgid, &first, BPF_NOEXIST)) {
		lose();
	}
	return 0;
}

#endif
#ifdef ON_gpu_mem_gpu_mem_total

HOTSTAGE_SPARSE_HASH(gpu_memory, struct gpu_memory_key, struct gpu_memory, 4096);

TRACEPOINT_PROBE(gpu_mem, gpu_mem_total)
{
	struct gpu_memory_key key = {.gpu = args->gpu_id, .tgid = args->pid};
	struct gpu_memory value = {.bytes = args->size};

	count_event(EVENT_gpu_mem_gpu_mem_total);
	value.at_ns = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&gpu_memory, &key, &value, BPF_ANY))
		lose();
	return 0;
}

#endif
#ifdef ON_oom_mark_victim

TRACEPOINT_PROBE(oom, mark_victim)
{
	struct oom_event *event;

	count_event(EVENT_oom_mark_victim);
	event = bpf_ringbuf_reserve(&driver_events, sizeof(struct oom_event), 0);
	if (!event) {
		lose();
		return 0;
	}
	event->kind = DRIVER_OOM_KILL;
	event->tgid = args->pid;
	event->at_ns = bpf_ktime_get_ns();
	event->anon_kib = DRIVER_UNKNOWN;
	event->uid = DRIVER_UNKNOWN;
	__builtin_memset(event->comm, 0, sizeof(event->comm));
#ifdef HAS_oom_mark_victim_comm
	bpf_probe_read_kernel_str(event->comm, sizeof(event->comm),
				  (const char *)args + (args->data_loc_comm & 0xffff));
#endif
#ifdef HAS_oom_mark_victim_anon_rss
	event->anon_kib = args->anon_rss;
#endif
#ifdef HAS_oom_mark_victim_uid
	event->uid = args->uid;
#endif
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	return 0;
}

#endif
#ifdef ON_nvidia_nvidia_dev_xid

/* TP_PROTO(const struct pci_dev *pdev, uint32_t error_code, const char *msg), kernel-open/nvidia/nv-tracepoint.h */
TRACEPOINT_PROBE(nvidia, nvidia_dev_xid)
{
	struct xid_event *event;

	count_event(EVENT_nvidia_nvidia_dev_xid);
	event = bpf_ringbuf_reserve(&driver_events, sizeof(struct xid_event), 0);
	if (!event) {
		lose();
		return 0;
	}
	event->kind = DRIVER_XID;
	event->xid = args->error_code;
	event->at_ns = bpf_ktime_get_ns();
	__builtin_memset(event->bus, 0, sizeof(event->bus));
	__builtin_memset(event->text, 0, sizeof(event->text));
	bpf_probe_read_kernel_str(event->bus, sizeof(event->bus),
				  (const char *)args + (args->data_loc_dev & 0xffff));
	bpf_probe_read_kernel_str(event->text, sizeof(event->text),
				  (const char *)args + (args->data_loc_msg & 0xffff));
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	return 0;
}

#endif
#ifdef ON_syscalls_sys_enter_ioctl

HOTSTAGE_ARRAY(driver_settings, struct driver_settings, 1);
/* Which descriptors are of GPU devices: written by user space. */
HOTSTAGE_SPARSE_HASH(gpu_files, struct gpu_file_key, __u32, 8192);
HOTSTAGE_SPARSE_HASH(open_ioctls, __u32, struct open_ioctl, 8192);
HOTSTAGE_SPARSE_HASH(ioctl_stats, struct ioctl_key, struct ioctl_stat, 2048);

#define IOCTL_NVIDIA 'F' /* NV_IOCTL_MAGIC, kernel-open/common/inc/nv-ioctl-numbers.h */
#define IOCTL_DRM 'd'	 /* DRM_IOCTL_BASE, include/uapi/drm/drm.h */
#define IOCTL_KFD 'K'	 /* AMDKFD_IOCTL_BASE, include/uapi/linux/kfd_ioctl.h */
#define IOCTL_PLAIN_LAST 0xff

/*
 * The number by which an ioctl is told apart. What a process can make up stays within 256 numbers of each of three
 * types, 256 plain ones (UVM's, uvm_ioctl.h, are no _IOC), and one for all others.
 */
static __always_inline __u32 ioctl_number(__u32 command)
{
	__u32 type = command >> 8 & 0xff;

	if (type == IOCTL_NVIDIA || type == IOCTL_DRM || type == IOCTL_KFD)
		return command & 0xffff;
	return command <= IOCTL_PLAIN_LAST ? command : ~0U;
}

TRACEPOINT_PROBE(syscalls, sys_enter_ioctl)
{
	__u64 id = bpf_get_current_pid_tgid();
	__u32 tid = id, *device;
	struct gpu_file_key file = {.tgid = id >> 32, .fd = args->fd};
	struct open_ioctl call = {};

	device = bpf_map_lookup_elem(&gpu_files, &file);
	if (!device)
		return 0;
	count_event(EVENT_syscalls_sys_enter_ioctl);
	call.entered_ns = bpf_ktime_get_ns();
	call.key.device = *device;
	call.key.number = ioctl_number(args->cmd);
	if (bpf_map_update_elem(&open_ioctls, &tid, &call, BPF_ANY))
		lose();
	return 0;
}

TRACEPOINT_PROBE(syscalls, sys_exit_ioctl)
{
	__u64 id = bpf_get_current_pid_tgid();
	__u32 tid = id, zero = 0, is_slow;
	__s64 result = args->ret;
	struct driver_settings *settings;
	struct ioctl_stat first = {}, *stat;
	struct open_ioctl *open, call;
	struct ioctl_event *event;

	open = bpf_map_lookup_elem(&open_ioctls, &tid);
	if (!open)
		return 0;
	call = *open;
	bpf_map_delete_elem(&open_ioctls, &tid);
	settings = bpf_map_lookup_elem(&driver_settings, &zero);
	first.count = 1;
	first.errors = result < 0;
	first.total_ns = bpf_ktime_get_ns() - call.entered_ns;
	is_slow = settings && settings->slow_ioctl_ns && first.total_ns >= settings->slow_ioctl_ns;
	first.slow = is_slow;
	first.max_ns = first.total_ns;
	stat = bpf_map_lookup_elem(&ioctl_stats, &call.key);
	if (stat) {
		__sync_fetch_and_add(&stat->count, 1);
		__sync_fetch_and_add(&stat->errors, first.errors);
		__sync_fetch_and_add(&stat->slow, first.slow);
		__sync_fetch_and_add(&stat->total_ns, first.total_ns);
		if (first.max_ns > stat->max_ns)
			stat->max_ns = first.max_ns;
	} else if (bpf_map_update_elem(&ioctl_stats, &call.key, &first, BPF_NOEXIST)) {
		lose();
	}
	if (!is_slow)
		return 0;
	event = bpf_ringbuf_reserve(&driver_events, sizeof(struct ioctl_event), 0);
	if (!event) {
		lose();
		return 0;
	}
	event->kind = DRIVER_SLOW_IOCTL;
	event->tgid = id >> 32;
	event->at_ns = bpf_ktime_get_ns();
	event->duration_ns = first.total_ns;
	event->tid = tid;
	event->device = call.key.device;
	event->number = call.key.number;
	event->result = result;
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	return 0;
}

#endif
