// SPDX-License-Identifier: Apache-2.0
/*
 * Entry points of the simulated libcuda, with the first instructions of the real one: compare a global with a
 * constant (81 3d d32 i32), je (74 xx), then the body. In assembly, so that no compiler default can change them.
 * The constant means "driver shut down"; the je leads to that error, as it does there.
 */
#include "cuda_sim.h"

__attribute__((visibility("hidden"))) uint32_t sim_driver_state;

#if defined(__x86_64__)
#define ENTRY_BODY(name)                              \
	"\tcmpl $0x321cba00, sim_driver_state(%rip)\n" \
	"\tje 1f\n"                                    \
	"\tjmp sim_" name "\n"                         \
	"1:\tmovl $4, %eax\n"                          \
	"\tret\n"
#elif defined(__aarch64__)
#define ENTRY_BODY(name) \
	"\tnop\n"        \
	"\tb sim_" name "\n"
#else
#error "no entry point is known for this machine"
#endif

#define ENTRY(name)                                                                          \
	__asm__(".text\n"                                                                    \
		"\t.p2align 4\n"                                                             \
		"\t.globl " #name "\n"                                                       \
		"\t.type " #name ", %function\n" #name ":\n" ENTRY_BODY(#name) "\t.size " #name \
		", .-" #name "\n");

CUDA_FUNCTIONS(ENTRY)
