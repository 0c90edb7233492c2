// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * A call's arguments by position, 1-based as in its C prototype, at the entry of the function.
 * Registers and stack differ by architecture; an unknown one does not build.
 */
#ifndef HOTSTAGE_ARGUMENTS_H
#define HOTSTAGE_ARGUMENTS_H

#if defined(__TARGET_ARCH_arm64) || defined(__aarch64__)
#define HOTSTAGE_REGISTER_ARGUMENTS 8
#define ARGUMENT_7(ctx) PT_REGS_ARM64_ARGUMENT(ctx, 6)
#define ARGUMENT_8(ctx) PT_REGS_ARM64_ARGUMENT(ctx, 7)
#ifdef HOTSTAGE_BCC
#define PT_REGS_ARM64_ARGUMENT(ctx, index) ((ctx)->regs[index])
#else
#define PT_REGS_ARM64_ARGUMENT(ctx, index) (((const struct user_pt_regs *)(ctx))->regs[index])
#endif
#ifndef PT_REGS_PARM6
#define PT_REGS_PARM6(ctx) PT_REGS_ARM64_ARGUMENT(ctx, 5)
#endif
/*
 * The first argument on the stack, and how far the stack pointer is at the return from what it was
 * at the entry.
 */
#define HOTSTAGE_STACK_ARGUMENTS 0
#define HOTSTAGE_RETURN_SHIFT 0
#elif defined(__TARGET_ARCH_x86) || defined(__x86_64__)
#define HOTSTAGE_REGISTER_ARGUMENTS 6
#define ARGUMENT_7(ctx) 0
#define ARGUMENT_8(ctx) 0
#define HOTSTAGE_STACK_ARGUMENTS 8
#define HOTSTAGE_RETURN_PAGE 0x7fffffffd000ULL
#define HOTSTAGE_RETURN_SHIFT 8
/* libbpf 1.1's bpf_tracing.h ends at the fifth. */
#ifndef PT_REGS_PARM6
#define PT_REGS_PARM6(ctx) ((ctx)->r9)
#endif
#else
#error "no calling convention is known for this architecture"
#endif

/*
 * Whether a probed function that was entered at this stack pointer can still return. Its return
 * address was replaced by the page where the kernel takes returns in, at the end of the address
 * space and so above every library; the slot holds something else when the stack was unwound
 * (longjmp, exception) and used again. On arm64 the return address is in a register, and nothing is
 * known.
 */
static __always_inline __u32 awaits_return(__u64 stack_pointer)
{
#if defined(__TARGET_ARCH_arm64) || defined(__aarch64__)
	(void)stack_pointer;
	return 1;
#else
	__u64 return_address = 0;

	bpf_probe_read_user(&return_address, sizeof(return_address), (void *)stack_pointer);
	return return_address >= HOTSTAGE_RETURN_PAGE;
#endif
}

/*
 * The verifier refuses a load from the context at a computed offset, and clang makes one such load
 * out of all of these unless something that it cannot move stands behind each.
 */
static __always_inline __u64 register_argument(struct pt_regs *ctx, __u32 position)
{
	__u64 value = 0;

	switch (position) {
	case 1:
		value = PT_REGS_PARM1(ctx);
		asm volatile("" : "+r"(value));
		break;
	case 2:
		value = PT_REGS_PARM2(ctx);
		asm volatile("" : "+r"(value));
		break;
	case 3:
		value = PT_REGS_PARM3(ctx);
		asm volatile("" : "+r"(value));
		break;
	case 4:
		value = PT_REGS_PARM4(ctx);
		asm volatile("" : "+r"(value));
		break;
	case 5:
		value = PT_REGS_PARM5(ctx);
		asm volatile("" : "+r"(value));
		break;
	case 6:
		value = PT_REGS_PARM6(ctx);
		asm volatile("" : "+r"(value));
		break;
	case 7:
		value = ARGUMENT_7(ctx);
		asm volatile("" : "+r"(value));
		break;
	case 8:
		value = ARGUMENT_8(ctx);
		asm volatile("" : "+r"(value));
		break;
	}
	return value;
}

/* Where an argument is kept that is not in a register. */
static __always_inline __u64 stack_argument_address(struct pt_regs *ctx, __u32 position)
{
	__u64 index = position - HOTSTAGE_REGISTER_ARGUMENTS - 1;

	return PT_REGS_SP(ctx) + HOTSTAGE_STACK_ARGUMENTS + index * 8;
}

#endif
