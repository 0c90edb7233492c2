# SPDX-License-Identifier: Apache-2.0
# Twin functions, one for each variant that is measured: the same bytes, 16-byte aligned, so that a difference in
# cost is a difference in probes. In assembly, because compiler defaults (-fcf-protection) would change the price.

#ifdef __x86_64__
#define BODY push %rbp; lea (%rdi,%rsi), %rax; pop %rbp; ret
#define MARK .byte 0x90; ret
#define STUB_ENTRY cmpl $0x321cba00, entry_flag(%rip); je 1f; 1: push %rbp; lea (%rdi,%rsi), %rax; pop %rbp; ret
#else
#define BODY add x0, x0, x1; ret
#define MARK nop; ret
#define STUB_ENTRY nop; add x0, x0, x1; ret
#endif

#define TWIN(name, ...) .globl name; .type name, %function; .p2align 4; name: __VA_ARGS__; .size name, . - name

	.text
	TWIN(twin_untraced, BODY)
	TWIN(twin_empty, BODY)
	TWIN(twin_empty_again, BODY)
	TWIN(twin_launch, BODY)
	TWIN(twin_launch_unmarked, BODY)
	TWIN(twin_launch_head, BODY)
	TWIN(twin_wait, BODY)
	TWIN(twin_empty_pair, BODY)
	TWIN(twin_empty_session, BODY)
	TWIN(twin_timed, BODY)
	TWIN(twin_timed_bytes, BODY)
	TWIN(twin_alloc, BODY)
	TWIN(twin_free, BODY)
	TWIN(twin_reference_count, BODY)
	TWIN(twin_reference_pair, BODY)
	TWIN(twin_bpftrace_count, BODY)
	TWIN(twin_bpftrace_pair, BODY)
	TWIN(twin_funclatency, BODY)
	# libcuda's own entry: the compare is stepped, the jump behind it is emulated.
	TWIN(twin_stub_empty, STUB_ENTRY)
	TWIN(twin_stub_launch, STUB_ENTRY)
	TWIN(hotstage_mark_stage_begin, MARK)
	# Under these names an agent finds them by itself, in a file called libcuda.so.1.
	.globl cuLaunchKernel, cuStreamSynchronize
	.set cuLaunchKernel, twin_launch
	.set cuStreamSynchronize, twin_timed

	.data
	.p2align 2
	.type entry_flag, %object
entry_flag:
	.long 0
	.size entry_flag, 4
	.section .note.GNU-stack, "", %progbits
