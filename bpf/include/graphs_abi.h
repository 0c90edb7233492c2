// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/* Captures and graphs: what crosses to Python (agent/hotstage/probes/maps/graphs.py). */
#ifndef HOTSTAGE_GRAPHS_ABI_H
#define HOTSTAGE_GRAPHS_ABI_H

#include "abi.h"

/* `detail` of EFFECT_GRAPH. */
enum hotstage_graph {
	GRAPH_INSTANTIATED = 0, /* f(CUgraphExec *out, CUgraph, ..) */
	GRAPH_DESTROYED = 1,	/* f(CUgraph or CUgraphExec) */
};

/* `tid` only of streams that each thread has its own of. */
struct capture_key {
	__u64 stream;
	__u32 tgid;
	__u32 tid;
};

/* A capture is where its stream says so; a stream that joined it has the key and the begin of that one. */
struct capture {
	struct capture_key origin;
	__u64 began_ns;
	__u64 kernels;
	__u32 tid; /* who began it */
	__u8 is_joined;
	__u8 is_unknown; /* a graph of unknown kernels went in */
	__u8 pad[2];
};

/* graph_work[call_key of a launch]. */
struct graph_work {
	__u64 captured; /* calls that became a node of a graph, and did not run */
	__u64 kernels;	/* that graph launches replayed */
	__u64 unknown;	/* graph launches of nobody knows how many */
};

_Static_assert(sizeof(struct capture_key) == 16, "capture_key");
_Static_assert(sizeof(struct capture) == 40, "capture");
_Static_assert(sizeof(struct graph_work) == 24, "graph_work");

#endif
