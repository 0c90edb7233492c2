# SPDX-License-Identifier: Apache-2.0
"""What each loss means, what it may falsify and what helps: the one table, for people. It is in
`bpf/README.md` too, and a test holds both together.

A loss is a count by name, cumulative since the probes were loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LossMeaning:
    """One sentence or two each, without a full stop at the end."""

    means: str
    falsifies: str
    helps: str


_ENVIRONMENT = (
    "nothing to do where it stays small; else look for a program that ends calls by exit or longjmp"
)

MEANINGS: Mapping[str, LossMeaning] = {
    "lost_events_ring": LossMeaning(
        "a finished request, batch, slow or failed call found the ring full",
        "finished requests and shares of batches are too few; calls are counted all the same",
        "raise probes.events_ring_bytes",
    ),
    "lost_urgent_ring": LossMeaning(
        "a conflict verdict or a line of the driver found its ring full",
        "an XID or conflict may be missing",
        "give the agent CPU: its fast tick comes too late",
    ),
    "lost_call_keys": LossMeaning(
        "a call was not counted, the map of counters is full",
        "counts and latency of calls are too low",
        "raise probes.call_keys",
    ),
    "lost_threads": LossMeaning(
        "a thread has no state, the map of threads is full",
        "its calls and stages are missing from requests in flight, hangs of it are not seen",
        "raise probes.threads",
    ),
    "lost_requests": LossMeaning(
        "a request was not taken in, the map of requests is full",
        "that request is missing everywhere",
        "raise probes.requests; look for a program that begins requests and never ends them",
    ),
    "lost_histograms": LossMeaning(
        "a kind of call has no histogram, all are taken",
        "its quantiles are unknown; its count and total time are right",
        "raise probes.histogram_slots",
    ),
    "lost_frames": LossMeaning(
        "a call was nested too deep for its thread's state, or its thread's id came back while it was open",
        "its latency is missing, on rungs M and P its count too",
        "nothing to do where it stays small; report the library that nests so deep",
    ),
    "missed_request": LossMeaning(
        "a mark named a request that never began, has ended, or began while the probes were not there",
        "that stage or end is missing from its request, which may stay open or be incomplete",
        "none needed at the agent's start or after `probes on`: requests that began before are not followed;"
        " else call request_begin first and end once",
    ),
    "reused_request": LossMeaning(
        "a request began under an id that was still open in the same container",
        "the older one is dropped: it never finishes",
        "give each request an id of its own, and end it on errors too",
    ),
    "stale_frames": LossMeaning(
        "a call was left without returning (exit, longjmp, exception)",
        "it is counted as abandoned and has no latency",
        _ENVIRONMENT,
    ),
    "unmatched_returns": LossMeaning(
        "a call returned whose entry was not seen: it began before the attach, or before a fork",
        "that call is not counted",
        "none needed right after the start or an attach; else report it",
    ),
    "unreadable_arguments": LossMeaning(
        "memory of the watched process could not be read at an argument",
        "bytes, device, name or batch of that call are unknown or as before",
        "none needed where it stays small: the page was not in memory; else look for bad pointers",
    ),
    "lost_contexts": LossMeaning(
        "a CUDA context or a device's uuid was not kept: its map, or the process's share of it, is full",
        "work in that context has no device",
        "look for a program that makes contexts without end",
    ),
    "lost_requests_quota": LossMeaning(
        "a request was not taken in, its process holds its quarter of all requests",
        "that request is missing everywhere",
        "look at that process: does it end its requests? else raise probes.requests",
    ),
    "lost_quotas": LossMeaning(
        "a request was taken in that no share counts, the map of shares is full",
        "nothing is wrong yet; a process may hold more than its quarter",
        "look for processes that mark requests and come and go in thousands",
    ),
    "lost_own_stages": LossMeaning(
        "a request has more than six stages of the server's own",
        "the others count as `other` in that request",
        "mark with fewer names, pinned ones where they fit",
    ),
    "lost_stage_names": LossMeaning(
        "the name of an own stage was not kept, the map of names is full",
        "that stage is shown as stage_N",
        "look for processes that name many stages and come and go in thousands",
    ),
    "lost_request_contexts": LossMeaning(
        "a request ran in more than four CUDA contexts",
        "the others are not shown with it",
        "none needed; counts and times are right",
    ),
    "lost_batches": LossMeaning(
        "a batch was not taken in, the map of batches is full",
        "its launches belong to no request",
        "raise probes.threads: there is one batch for each thread",
    ),
    "unmatched_batches": LossMeaning(
        "a batch ended that this thread did not begin last, or that began before the probes were attached",
        "its launches belong to no request",
        "none needed at the agent's start; else end a batch in the thread that began it",
    ),
    "refused_tokens": LossMeaning(
        "a mark named a number of tokens that is negative or beyond 32 bits",
        "it counts as unknown, so the class by size and token equivalents may be too small",
        "mend the mark's `tokens`",
    ),
    "lost_functions": LossMeaning(
        "a function, stream or count was not kept, its map is full",
        "fewer functions are learned, unmarked work may stay without a stage; its kernel counts as unnamed",
        "mark the program, or add [[stages.rules]]",
    ),
    "lost_nvtx_ranges": LossMeaning(
        "an NVTX range was nothing, the map of names or of open ranges is full",
        "work inside it counts as if the range were not there",
        "look for a program that makes up a name for each range",
    ),
    "lost_allocations": LossMeaning(
        "an allocation is not in the memory ledger: its map or its process's share is full, or unmap failed",
        "live bytes of its process are too low, and told as unknown",
        "look for a program that allocates without end; else report it",
    ),
    "unmatched_frees": LossMeaning(
        "memory was freed that is not in the ledger, or given out again without a free that was seen",
        "none of what is in the ledger; what was allocated before the attach is in no sum",
        "none needed for processes that ran before the agent: restart them for an exact ledger",
    ),
    "lost_blocks": LossMeaning(
        "a block of PyTorch's allocator, or its request, was not kept: the map, or a quarter of it, is full",
        "fragmentation of that process is not computed from its blocks",
        "raise probes.torch_blocks",
    ),
    "lost_stream_users": LossMeaning(
        "launches were not credited to their stream, the map of streams or a quarter of it is full",
        "which modalities share that stream is not told",
        "look for a program that makes streams without end",
    ),
    "lost_scheduling": LossMeaning(
        "a thread's switches were not counted, the map of its thread or of its stage is full",
        "waits for a CPU and time off it are too low",
        "raise probes.threads; look for a program that makes threads in thousands",
    ),
    "lost_driver_events": LossMeaning(
        "a fence, ring, process or record of the GPU driver's tracepoints found its map or ring full",
        "counts by timeline, ring and process are too low; an OOM kill or XID may be missing",
        "look for a driver that names timelines without end; else give the agent CPU",
    ),
    "lost_stacks": LossMeaning(
        "a slow or failing call's stack was not told: its ring is full, or the kernel could not walk it",
        "/v1/stacks lacks it; the call itself is counted and told all the same",
        "none needed where it stays small; else look for a program whose calls fail without end",
    ),
    "lost_communicators": LossMeaning(
        "a communicator, or which layer counts a process's calls, is not known, the map is full",
        "collectives of that communicator are counted by call only; calls of the runtime may be counted that"
        " its driver answered without being called",
        "look for a program that makes communicators without end",
    ),
    "lost_batch_sizes": LossMeaning(
        "a batched copy had more than 64 parts, only their sizes were read",
        "bytes of that call are too few; its count and time are right",
        "nothing to do: the count of such copies says how far the bytes are off",
    ),
    "lost_bursts": LossMeaning(
        "a thread's bursts of launches are not looked at, the map of them is full",
        "unmarked work of that thread stays without prefill and decode",
        "mark the program, or add [[stages.rules]]",
    ),
    "lost_graphs": LossMeaning(
        "a captured stream or a graph is not known: its map, or the process's share of it, is full",
        "launches that were captured count as run, and how many kernels its graphs run is unknown",
        "nothing to do: counts of calls are right, kernels are told as unknown",
    ),
    "lost_kernel_names": LossMeaning(
        "a host function's name was not kept: half of its process's share of names, or their queue, is full",
        "that kernel is named by its file's symbol once it is launched, or its launches count as unnamed",
        "none needed: programs register more kernels than they launch",
    ),
    "lost_pending_communicators": LossMeaning(
        "what a group makes is not looked for at its end: the map or a process's share is full, or > 16",
        "rank and size of that communicator are told only once the program asks NCCL for them",
        "look for a program that opens groups and ends its threads in them",
    ),
    "lost_ledger_notes": LossMeaning(
        "what a context or an unmap of several freed is not looked for, its queue is full; under bcc alone",
        "that memory stays in the ledger until its process ends",
        "nothing to do where it stays small; else --loader libbpf, which needs no queue",
    ),
    "unclaimed_batch_shares": LossMeaning(
        "a member of a batch is no request in flight, or a batch had too many parts",
        "its share of the batch's launches belongs to no request",
        "name members by the hash of their request, and begin requests before batches",
    ),
}

UNKNOWN = LossMeaning(
    "a loss that this version does not know", "unknown", "let agent and command be of one version"
)
