// SPDX-License-Identifier: Apache-2.0
/* What the entries do: answer, block, call each other or never return, as the argument says. */
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "target.h"

#define BODY(name) __attribute__((visibility("hidden"))) int body_##name

jmp_buf *target_escape;
int (*target_call_back)(void);

BODY(cuLaunchKernel)(void) { return 0; }
BODY(cuLaunchKernel_ptsz)(void) { return 0; }
BODY(cuLaunchKernelEx)(void) { return 0; }
BODY(cuGraphLaunch)(void) { return 0; }

BODY(cuMemAlloc_v2)(uint64_t *out, uint64_t bytes)
{
	*out = bytes;
	return bytes == TARGET_TOO_MUCH ? 2 : 0;
}

BODY(cuMemAllocPitch_v2)(uint64_t *out, uint64_t *pitch, uint64_t width, uint64_t height)
{
	*out = *pitch = width * height;
	return 0;
}

BODY(cuMemFree_v2)(uint64_t pointer) { return pointer ? 0 : 1; }
BODY(cuMemcpyHtoD_v2)(uint64_t to, const void *from, uint64_t bytes) { return to && from && bytes ? 0 : 1; }
BODY(cuMemsetD32_v2)(uint64_t to, uint32_t value, uint64_t count) { return to && count ? (int)(value & 0) : 1; }

static int catch_escape(void)
{
	jmp_buf here, *outer = target_escape;

	target_escape = &here;
	if (!setjmp(here))
		cuStreamSynchronize(TARGET_ESCAPE);
	target_escape = outer;
	return 0;
}

/* The stream says what happens inside the call. */
BODY(cuStreamSynchronize)(uint64_t stream)
{
	char byte;

	switch (stream) {
	case TARGET_BLOCK:
		return read(STDIN_FILENO, &byte, 1) == 1 ? 0 : 1;
	case TARGET_NEST:
		return cuEventSynchronize(1) + cuCtxSynchronize();
	case TARGET_ESCAPE:
		longjmp(*target_escape, 1);
	case TARGET_NEST_AND_ESCAPE:
		return 2 * cuStreamSynchronize(TARGET_ESCAPE);
	case TARGET_DEEP ... TARGET_DEEP + 15:
		return stream == TARGET_DEEP ? 0 : 2 * cuStreamSynchronize(stream - 1);
	case TARGET_JUMP:
		return cuCtxSynchronize();
	case TARGET_CATCH:
		return catch_escape();
	case TARGET_CALL_BACK:
		return target_call_back();
	case TARGET_LEAVE:
		_exit(7);
	}
	return 0;
}

BODY(cuEventSynchronize)(uint64_t event) { return event ? 0 : 1; }
BODY(cuCtxSynchronize)(void) { return 0; }

BODY(cuDevicePrimaryCtxRetain)(uint64_t *context, int device)
{
	*context = TARGET_CONTEXT + (uint64_t)device;
	return 0;
}

BODY(cuCtxSetCurrent)(uint64_t context) { return context ? 0 : 1; }
BODY(cuCtxPushCurrent_v2)(uint64_t context) { return context ? 0 : 1; }
BODY(cuCtxPopCurrent_v2)(uint64_t *context)
{
	*context = 0;
	return 0;
}

BODY(cuDeviceGetUuid_v2)(unsigned char *uuid, int device)
{
	memset(uuid, 0x40 + device, 16);
	return 0;
}

/* A handle is the hash of the name, so that a test can say which one it wants. */
static uint64_t handle_of(const char *name)
{
	uint64_t hash = 5381;

	while (*name)
		hash = hash * 33 + (unsigned char)*name++;
	return hash | 1ULL << 40;
}

BODY(cuModuleGetFunction)(void **out, void *module, const char *name)
{
	*out = (void *)handle_of(name);
	return module ? 1 : 0;
}

BODY(cuLibraryGetKernel)(void **out, void *library, const char *name)
{
	*out = (void *)(handle_of(name) + 1);
	return library ? 1 : 0;
}

BODY(cuKernelGetFunction)(void **out, void *kernel)
{
	*out = (void *)((uint64_t)kernel + 1);
	return 0;
}

BODY(cuStreamCreateWithPriority)(uint64_t *out, unsigned flags, int priority)
{
	*out = 0x5700 + (uint64_t)(unsigned)(priority + 16) + flags;
	return 0;
}

BODY(cuMemcpyDtoH_v2)(void *to, uint64_t from, uint64_t bytes) { return to && from && bytes ? 0 : 1; }
