// SPDX-License-Identifier: Apache-2.0
/* The target library's exports, and the arguments that mean something to it. */
#include <setjmp.h>
#include <stdint.h>

#define TARGET_TOO_MUCH 0xdeadULL
#define TARGET_BLOCK 0xb10cULL
#define TARGET_NEST 0x7e57ULL
#define TARGET_ESCAPE 0xe5c0ULL
#define TARGET_NEST_AND_ESCAPE 0xe5c1ULL
#define TARGET_LEAVE 0x1eafULL
#define TARGET_CATCH 0xca7cULL
#define TARGET_JUMP 0x1043ULL
#define TARGET_DEEP 0xd00ULL
#define TARGET_CALL_BACK 0xca11ULL
#define TARGET_CONTEXT 0xc0de0000ULL

struct launch_config {
	uint32_t grid[3], block[3], shared_bytes, pad;
	uint64_t stream;
	void *attributes;
	uint32_t attribute_count;
};

struct hotstage_request {
	uint32_t version, size;
	uint64_t request_hash;
	char id[64], endpoint[48], instance[32], model[32], traceparent[56];
	uint64_t input_digest;
};

extern jmp_buf *target_escape;
extern int (*target_call_back)(void); /* runs inside a cuStreamSynchronize(TARGET_CALL_BACK) */

int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
		   unsigned shared_bytes, uint64_t stream, void **arguments, void **extra);
int cuLaunchKernel_ptsz(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
			unsigned shared_bytes, uint64_t stream, void **arguments, void **extra);
int cuLaunchKernelEx(const struct launch_config *config, void *function, void **arguments, void **extra);
int cuGraphLaunch(void *graph, uint64_t stream);
int cuMemAlloc_v2(uint64_t *out, uint64_t bytes);
int cuMemAllocPitch_v2(uint64_t *out, uint64_t *pitch, uint64_t width, uint64_t height, unsigned element);
int cuMemFree_v2(uint64_t pointer);
int cuMemcpyHtoD_v2(uint64_t to, const void *from, uint64_t bytes);
int cuMemsetD32_v2(uint64_t to, uint32_t value, uint64_t count);
int cuStreamSynchronize(uint64_t stream);
int cuEventSynchronize(uint64_t event);
int cuCtxSynchronize(void);
int cuDevicePrimaryCtxRetain(uint64_t *context, int device);
int cuCtxSetCurrent(uint64_t context);
int cuCtxPushCurrent_v2(uint64_t context);
int cuCtxPopCurrent_v2(uint64_t *context);
int cuModuleGetFunction(void **out, void *module, const char *name);
int cuLibraryGetKernel(void **out, void *library, const char *name);
int cuKernelGetFunction(void **out, void *kernel);
int cuStreamCreateWithPriority(uint64_t *out, unsigned flags, int priority);
int cuMemcpyDtoH_v2(void *to, uint64_t from, uint64_t bytes);
int cuDeviceGetUuid_v2(unsigned char *uuid, int device);

void hotstage_mark_stage_begin(uint64_t word, uint64_t request_hash, uint64_t tokens);
void hotstage_mark_stage_end(uint64_t word, uint64_t request_hash, uint64_t restored, uint64_t tokens);
void hotstage_mark_span_begin(uint64_t word, uint64_t request_hash, uint64_t tokens);
void hotstage_mark_span_end(uint64_t word, uint64_t request_hash, uint64_t tokens);
void hotstage_mark_request_begin(const struct hotstage_request *request, uint64_t request_hash);
void hotstage_mark_request_end(uint64_t request_hash, uint64_t outcome, uint64_t output_tokens);
void hotstage_mark_tokens(uint64_t request_hash, uint64_t word, uint64_t tokens);
