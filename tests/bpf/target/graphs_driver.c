// SPDX-License-Identifier: Apache-2.0
/* A driver that captures and launches nothing: its answers are the handles that it is asked for. */
#include "graphs.h"

static uint64_t last_graph = 0x100000, last_executable = 0x200000;

EXPORT int cuStreamBeginCapture_v2(uint64_t stream, int mode) { return stream == REFUSED_STREAM ? 900 : mode < 0; }

EXPORT int cuStreamBeginCaptureToGraph(uint64_t stream, uint64_t graph, const void *dependencies, const void *edges,
				       size_t count, int mode)
{
	(void)stream, (void)dependencies, (void)edges, (void)count, (void)mode;
	last_graph = graph - 0x10;
	return 0;
}

EXPORT int cuStreamEndCapture(uint64_t stream, uint64_t *out)
{
	if (stream == INVALID_STREAM) {
		*out = 0;
		return 901;
	}
	if (stream == OTHERS_STREAM)
		return 908;
	*out = last_graph += 0x10;
	return 0;
}

EXPORT int cuStreamWaitEvent(uint64_t stream, uint64_t event, unsigned flags) { return flags && stream && event; }
EXPORT int cuGraphDestroy(uint64_t graph) { return !graph; }
EXPORT int cuGraphExecDestroy(uint64_t executable) { return !executable; }
EXPORT int cuGraphLaunch(uint64_t executable, uint64_t stream) { return !executable && stream; }

EXPORT int cuGraphInstantiateWithFlags(uint64_t *out, uint64_t graph, uint64_t flags)
{
	*out = last_executable += 0x10;
	return !graph && flags;
}

EXPORT int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
			  unsigned shared_bytes, uint64_t stream, void **arguments, void **extra)
{
	(void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared_bytes, (void)stream, (void)arguments;
	(void)extra;
	return function ? 0 : 1;
}
