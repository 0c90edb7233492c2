// SPDX-License-Identifier: Apache-2.0
/* The driver's calls on captures and graphs, as far as the tests of them need them. */
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default"), noinline))

#define REFUSED_STREAM 0x9000 /* its capture does not begin: 900 */
#define INVALID_STREAM 0x9010 /* its capture ends in an error: 901 */
#define OTHERS_STREAM 0x9020  /* its capture is another thread's to end: 908 */

int cuStreamBeginCapture_v2(uint64_t stream, int mode);
int cuStreamBeginCaptureToGraph(uint64_t stream, uint64_t graph, const void *dependencies, const void *edges,
				size_t count, int mode);
int cuStreamEndCapture(uint64_t stream, uint64_t *out);
int cuStreamWaitEvent(uint64_t stream, uint64_t event, unsigned flags);
int cuGraphDestroy(uint64_t graph);
int cuGraphExecDestroy(uint64_t executable);
int cuGraphLaunch(uint64_t executable, uint64_t stream);
int cuGraphInstantiateWithFlags(uint64_t *out, uint64_t graph, uint64_t flags);
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
		   unsigned shared_bytes, uint64_t stream, void **arguments, void **extra);
