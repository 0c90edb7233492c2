// SPDX-License-Identifier: Apache-2.0
/*
 * The probe points, in assembly: where a watcher attaches, and how the library sees that one has.
 *
 * Linked with -Bsymbolic, so that a call from here reaches the copy that a watcher of this file has probed.
 */
#include "core.h"

/*
 * In assembly, so that neither -fcf-protection, -pg, -O0 nor a sanitiser can put anything before the nop, which the
 * kernel emulates. On x86-64 it must not be the five-byte one: Linux 6.18 turns that into a call to a page which a
 * forked child does not inherit, so that the child of a watched program would crash at its first mark.
 */
#if defined(__x86_64__)
#define PROBE_POINT_BODY ".byte 0x90\n\tret\n"
#define PROBE_POINT_UNTOUCHED 0x90 /* with a watcher: int3 */
#elif defined(__aarch64__)
#define PROBE_POINT_BODY "nop\n\tret\n"
#define PROBE_POINT_UNTOUCHED 0x1f /* with a watcher: brk, which ends in 00 */
#else
#error "no probe point is known for this machine"
#endif

#define PROBE_POINT(name)                                                                                              \
	__asm__(".pushsection .text.hotstage_marks,\"ax\",%progbits\n"                                                 \
		"\t.p2align 4\n"                                                                                       \
		"\t.globl " #name "\n"                                                                                 \
		"\t.type " #name ", %function\n" #name ":\n\t" PROBE_POINT_BODY "\t.size " #name ", .-" #name "\n"     \
		"\t.popsection\n")

PROBE_POINT(hotstage_mark_stage_begin);
PROBE_POINT(hotstage_mark_stage_end);
PROBE_POINT(hotstage_mark_span_begin);
PROBE_POINT(hotstage_mark_span_end);
PROBE_POINT(hotstage_mark_request_begin);
PROBE_POINT(hotstage_mark_request_end);
PROBE_POINT(hotstage_mark_tokens);
PROBE_POINT(hotstage_mark_stage_name);
PROBE_POINT(hotstage_mark_batch_begin);
PROBE_POINT(hotstage_mark_batch_end);
PROBE_POINT(hotstage_mark_embedding);

static int is_touched(uintptr_t point)
{
	return *(const volatile unsigned char *)point != PROBE_POINT_UNTOUCHED;
}

EXPORT int hotstage_is_watched(void)
{
	return is_touched((uintptr_t)&hotstage_mark_request_begin);
}

int hotstage_names_are_watched(void)
{
	return is_touched((uintptr_t)&hotstage_mark_stage_name);
}
