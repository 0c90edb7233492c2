// SPDX-License-Identifier: Apache-2.0
/*
 * Stands for libc10.so and libc10_cuda.so: C++ names, USDT notes with semaphores, and at each site of a probe other
 * operands. LIBC10 builds the first; FIVE_BYTE_NOP makes sites that nobody may probe.
 */
#include <stddef.h>
#include <stdint.h>

#define REPORT "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"
#define OUT_OF_MEMORY "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE"

#ifdef LIBC10

void *profiler; /* what the real ones look up first */

#if defined(__x86_64__)
#define ENTRY(name)                                                                                   \
	__asm__(".text\n\t.p2align 4\n\t.globl " name "\n\t.type " name ", @function\n" name ":\n"     \
		"\tmov profiler@GOTPCREL(%rip), %rax\n\tpush %rbp\n\tmov %rsp, %rbp\n\tpop %rbp\n\tret\n" \
		"\t.size " name ", . - " name "\n");
#else
#define ENTRY(name)                                                                                \
	__asm__(".text\n\t.p2align 4\n\t.globl " name "\n\t.type " name ", %function\n" name ":\n"  \
		"\tnop\n\tret\n\t.size " name ", . - " name "\n");
#endif
ENTRY(REPORT)
ENTRY(OUT_OF_MEMORY)

#else

void report(void *block, int64_t change, size_t allocated, size_t reserved, uint16_t device) __asm__(REPORT);
void report_out_of_memory(int64_t requested, size_t allocated, size_t reserved, uint16_t device) __asm__(OUT_OF_MEMORY);

volatile uint16_t malloc_semaphore __attribute__((section(".probes"), visibility("hidden")));
volatile uint16_t free_semaphore __attribute__((section(".probes"), visibility("hidden")));

#ifdef FIVE_BYTE_NOP
#define NOP ".byte 0x0f, 0x1f, 0x44, 0x00, 0x00"
#else
#define NOP "nop"
#endif

/* A note as <sys/sdt.h> writes it. */
#define NOTE(name, semaphore, operands)                                                                   \
	"990:\t" NOP "\n\t.pushsection .note.stapsdt, \"\", \"note\"\n\t.balign 4\n"                       \
	"\t.4byte 992f - 991f, 994f - 993f, 3\n991:\t.asciz \"stapsdt\"\n992:\t.balign 4\n"                \
	"993:\t.8byte 990b, 0, " semaphore "\n\t.asciz \"pytorch\"\n\t.asciz \"" name "\"\n\t.asciz \"" operands \
	"\"\n994:\t.balign 4\n\t.popsection\n"

static size_t allocated, reserved = 1 << 30;

static uint16_t device_word(int device)
{
	return (uint16_t)(1 | device << 8); /* CUDA */
}

/* `site` 0: all in registers; 1: the size in memory. What is `quiet` goes past the allocator's report. */
void give_out(void *block, int8_t device, size_t bytes, size_t requested, int site, int quiet)
{
	volatile size_t kept = requested;

	if (!quiet)
		report(block, (int64_t)bytes, allocated += bytes, reserved, device_word(device));
	if (!malloc_semaphore)
		return;
	if (site)
		__asm__ volatile(NOTE("malloc", "malloc_semaphore", "-8@%0 -1@%1 8@%2 -8@%3")
				 :: "r"(block), "r"(device), "m"(kept), "r"(0L));
	else
		__asm__ volatile(NOTE("malloc", "malloc_semaphore", "-8@%0 -1@%1 -8@%2 -8@%3")
				 :: "r"(block), "r"(device), "r"(requested), "r"(7L));
}

void take_back(void *block, int8_t device, size_t bytes, int quiet)
{
	if (free_semaphore)
		__asm__ volatile(NOTE("free", "free_semaphore", "-8@%0") :: "r"(block));
	if (!quiet)
		report(block, -(int64_t)bytes, allocated -= bytes, reserved, device_word(device));
}

void fail(int8_t device, size_t requested)
{
	report_out_of_memory((int64_t)requested, allocated, reserved, device_word(device));
}

/* Of the host's memory: nobody's business here. */
void give_out_on_host(void *block, size_t bytes)
{
	report(block, (int64_t)bytes, bytes, bytes, 0);
}

/* So much is held from now on. */
void reserve(size_t bytes)
{
	reserved = bytes;
}

int semaphores(void)
{
	return malloc_semaphore << 8 | free_semaphore;
}

#endif
