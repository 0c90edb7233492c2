# SPDX-License-Identifier: Apache-2.0
# The marks' probe points, as the marks library exports them.

#define MARK(name) .globl name; .type name, %function; .p2align 4; name: \
	.byte 0x90; ret; .size name, . - name

	.text
	MARK(hotstage_mark_stage_begin)
	MARK(hotstage_mark_stage_end)
	MARK(hotstage_mark_span_begin)
	MARK(hotstage_mark_span_end)
	MARK(hotstage_mark_request_begin)
	MARK(hotstage_mark_request_end)
	MARK(hotstage_mark_tokens)
	MARK(hotstage_mark_stage_name)
	MARK(hotstage_mark_batch_begin)
	MARK(hotstage_mark_batch_end)
	MARK(hotstage_mark_embedding)
	.section .note.GNU-stack, "", %progbits
