// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * The only place that knows which compiler builds the programs: clang for libbpf, or bcc on the
 * host (HOTSTAGE_BCC). Includes, map declarations, licence; no logic.
 *
 * bcc takes map calls only as methods in the text that it compiles, never from a macro, and
 * rewrites only the main file. So the programs spell each map call plainly
 * (`bpf_map_lookup_elem(&threads, &tid)`), on one line, and the bcc loader puts the includes in
 * place and rewrites these spellings. Only declarations are macros, in maps.h.
 */
#ifndef HOTSTAGE_BACKEND_H
#define HOTSTAGE_BACKEND_H

#ifdef HOTSTAGE_BCC

#include <uapi/linux/ptrace.h>

#define HOTSTAGE_NO_KERNEL_FUNCTIONS /* bcc cannot call them: no session programs */
/* The headers that bcc finds need not be this kernel's: it reads no structure of the kernel. */
#define HOTSTAGE_NO_BTF

#ifndef SEC
#define SEC(name)
#endif

/* bcc puts all functions into one. */
#define HOTSTAGE_WORKER static __always_inline
#define HOTSTAGE_PART static __always_inline

#define HOTSTAGE_MAP(kind, flags, name, key_type, value_type, entries) \
	BPF_F_TABLE(kind, key_type, value_type, name, entries, flags)
#define HOTSTAGE_HASH(name, key_type, value_type, entries) \
	HOTSTAGE_MAP("hash", 0, name, key_type, value_type, entries)
#define HOTSTAGE_SPARSE_HASH(name, key_type, value_type, entries) \
	HOTSTAGE_MAP("hash", BPF_F_NO_PREALLOC, name, key_type, value_type, entries)
#define HOTSTAGE_ARRAY(name, value_type, entries) \
	HOTSTAGE_MAP("array", 0, name, int, value_type, entries)
#define HOTSTAGE_MAPPED_ARRAY(name, value_type, entries) \
	HOTSTAGE_MAP("array", BPF_F_MMAPABLE, name, int, value_type, entries)
#define HOTSTAGE_QUEUE(name, value_type, entries) BPF_QUEUE(name, value_type, entries)
#define HOTSTAGE_RING(name, bytes) BPF_RINGBUF_OUTPUT(name, (bytes) / 4096)

#else

#include <linux/bpf.h>
#ifdef __TARGET_ARCH_arm64
/* As in arm64's <asm/ptrace.h>, so that a compile check needs no arm64 headers. */
struct user_pt_regs {
	__u64 regs[31];
	__u64 sp;
	__u64 pc;
	__u64 pstate;
};
#else
#include <linux/ptrace.h>
#endif
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#ifndef HOTSTAGE_NO_BTF
#include <bpf/bpf_core_read.h>
#endif

/*
 * A function with a frame of its own on the stack, where a kernel before 6.13 may run it; later ones have session
 * probes and count each frame by itself, and a call that is saved is time.
 */
#ifdef HOTSTAGE_NO_KERNEL_FUNCTIONS
#define HOTSTAGE_WORKER static __noinline
#else
#define HOTSTAGE_WORKER static __always_inline
#endif
/*
 * A function that the verifier follows once, by itself, for whatever it may be given, and not once for each way to
 * its caller. It takes at most five numbers and pointers to whole structures, which it must find not to be 0, and
 * returns a number; a context before 6.4 it cannot take. Before 6.2 no map takes what it is given a pointer to as a key
 * or a value: that is copied first.
 */
#define HOTSTAGE_PART __noinline

#define HOTSTAGE_MAP(kind, flags, name, key_type, value_type, entries) \
	struct {                                                       \
		__uint(type, kind);                                    \
		__uint(map_flags, flags);                              \
		__uint(max_entries, entries);                          \
		__type(key, key_type);                                 \
		__type(value, value_type);                             \
	} name SEC(".maps")
#define HOTSTAGE_HASH(name, key_type, value_type, entries) \
	HOTSTAGE_MAP(BPF_MAP_TYPE_HASH, 0, name, key_type, value_type, entries)
#define HOTSTAGE_SPARSE_HASH(name, key_type, value_type, entries) \
	HOTSTAGE_MAP(BPF_MAP_TYPE_HASH, BPF_F_NO_PREALLOC, name, key_type, value_type, entries)
#define HOTSTAGE_ARRAY(name, value_type, entries) \
	HOTSTAGE_MAP(BPF_MAP_TYPE_ARRAY, 0, name, __u32, value_type, entries)
#define HOTSTAGE_MAPPED_ARRAY(name, value_type, entries) \
	HOTSTAGE_MAP(BPF_MAP_TYPE_ARRAY, BPF_F_MMAPABLE, name, __u32, value_type, entries)
#define HOTSTAGE_QUEUE(name, value_type, entries) \
	struct {                                  \
		__uint(type, BPF_MAP_TYPE_QUEUE); \
		__uint(max_entries, entries);     \
		__type(value, value_type);        \
	} name SEC(".maps")
#define HOTSTAGE_RING(name, bytes)                  \
	struct {                                    \
		__uint(type, BPF_MAP_TYPE_RINGBUF); \
		__uint(max_entries, bytes);         \
	} name SEC(".maps")

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#endif
#endif
