// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * All that crosses between the kernel and Python. agent/hotstage/probes/maps/layout.py holds the
 * same structures as numpy dtypes; tests/bpf compares both through BTF. No map and no program lives
 * here.
 *
 * Rules: fixed-width types, explicit padding, units in the names, every size asserted. Times are
 * CLOCK_MONOTONIC in ns (bpf_ktime_get_ns). `tgid` is the process, `tid` the thread.
 */
#ifndef HOTSTAGE_ABI_H
#define HOTSTAGE_ABI_H

#define HOTSTAGE_NO_STAGE 255
#define HOTSTAGE_NO_DEVICE 255
#define HOTSTAGE_MODALITIES 6
#define HOTSTAGE_STAGE_SLOTS 24
#define HOTSTAGE_OWN_SLOTS 6	/* the last ones: of stages that the server made up itself */
#define HOTSTAGE_OWN_STAGE 32	/* ids of such stages: 32..63, given by their process */
#define HOTSTAGE_OWN_LAST 63
#define HOTSTAGE_STAGE_NAME 32	/* bytes of such a stage's name */
#define HOTSTAGE_CONTEXTS 4
#define HOTSTAGE_BATCH_MEMBERS 64
#define HOTSTAGE_OUTER_FRAMES 4

/* Call ids are pinned in the catalogue; the table of their arguments has this many rows. */
#define HOTSTAGE_CALLS_MAX 512

/* Underflow, 30 octaves of 8 slots from 2^-22 s to 2^8 s, overflow. */
#define HOTSTAGE_HISTOGRAM_SLOTS 242

/* Of a wait in stage_slot: no thread worked for it by name, or the kernel does not tell. */
#define HOTSTAGE_UNKNOWN_US 0xffffffffU

/* What a mark passes as `word`: stage | modality << 8 | LoRA rank << 16 | LoRA module << 32. */
#define HOTSTAGE_WORD_STAGE(word) ((__u8)((word) % 256))
#define HOTSTAGE_WORD_MODALITY(word) ((__u8)((word) >> 8 & 0xff))
#define HOTSTAGE_WORD_LORA_RANK(word) ((__u16)((word) >> 16 & 0xffff))
#define HOTSTAGE_WORD_LORA_MODULE(word) ((__u8)((word) >> 32 & 0xff))
#define HOTSTAGE_WORD_SOURCE(word) ((__u8)((word) >> 40 & 0xff)) /* enum hotstage_source, 0 = mark */

/* Why a thread's work counts as the stage that it counts as. */
enum hotstage_source {
	SOURCE_NONE = 0,
	SOURCE_MARK = 1,
	SOURCE_NVTX = 2,
	SOURCE_RULE = 3,
	SOURCE_FINGERPRINT = 4, /* the launched function's, or the shape of the thread's steps */
};

/* How the launches of a thread without a mark and without a rule find their stage; bits. */
#define HOTSTAGE_RULES_BY_STREAM 1   /* stage_rules has entries for some of its streams */
#define HOTSTAGE_RULES_BY_FUNCTION 2 /* `functions` says what its process's functions are of */
#define HOTSTAGE_RULES_BY_STEP 4     /* graph steps are decode, long bursts without one are prefill */
#define HOTSTAGE_RULES_BY_WORK 8     /* phase_limits says which bursts are decode and which prefill */

/* What a call is in a thread's step, from one wait to the next; column `step` of call_spec. */
enum hotstage_step {
	STEP_NONE = 0,
	STEP_TO_DEVICE = 1, /* a copy to the device */
	STEP_TO_HOST = 2,   /* a copy to the host */
	STEP_WAIT = 3,	    /* a wait: the step ends */
	STEP_TO_HOST_WAIT = 4, /* a copy to the host that waits for it */
};

/* Where a launch has its function: argument 1 or 2, or a graph, which has none of its own. */
#define HOTSTAGE_FUNCTION_IS_GRAPH 3
#define HOTSTAGE_FUNCTION_LEARNS 0x80 /* and marked launches are counted by function and stage */
#define HOTSTAGE_GRAPH_HANDLE 1ULL    /* all graphs of a process are one function */
#define HOTSTAGE_FUNCTION_NAME 48
#define HOTSTAGE_STEP_SHORT 32	 /* launches of a step beside its graph; a burst has more */
#define HOTSTAGE_HEAD_DOUBLING (HOTSTAGE_STEP_SHORT * 8) /* a head of twice the blocks in each launch */
#define HOTSTAGE_STEP_TOKENS 65536 /* bytes: what brings sampled tokens back is smaller */
#define HOTSTAGE_PHASE_LAUNCHES 1024 /* so many launches after its last anchor a phase is over */

/* Index into `losses`. Appended to, never reordered: the names are exported as metrics. */
enum hotstage_loss {
	LOST_EVENTS_RING = 0, /* a record for `events` found the ring full */
	LOST_URGENT_RING = 1, /* a record for `urgent` found the ring full */
	LOST_CALL_KEYS = 2,   /* a call was not counted: call_stats, or its process's share, is full */
	LOST_THREADS = 3,     /* a thread has no state: threads is full */
	LOST_REQUESTS = 4,    /* a request was not taken in: pipeline_state is full */
	LOST_HISTOGRAMS = 5,  /* a key has no histogram: all slots are taken */
	LOST_FRAMES = 6,      /* a call nested too deep for its thread's state */
	MISSED_REQUEST = 7,   /* a mark named a request that never began or has ended */
	REUSED_REQUEST = 8,   /* a request began under a key that was still open */
	STALE_FRAMES = 9, /* a call that was entered and left without returning (exit, longjmp) */
	UNMATCHED_RETURNS = 10, /* a return whose entry was not seen (it began before the attach) */
	UNREADABLE_ARGUMENTS = 11, /* the target's memory could not be read at an argument */
	LOST_CONTEXTS = 12,        /* contexts, primary_contexts or device_uuids is full, or the process's share of it */
	LOST_REQUESTS_QUOTA = 13,  /* a request was not taken in: its process holds its share */
	LOST_QUOTAS = 14, /* a request was taken in that no share counts: request_counts is full */
	LOST_OWN_STAGES = 15, /* a request's seventh own stage: it went to `other` */
	LOST_STAGE_NAMES = 16,	  /* a name was not taken in: stage_names is full */
	LOST_REQUEST_CONTEXTS = 17, /* a request's fifth context */
	LOST_BATCHES = 18,	  /* a batch was not taken in: batches is full */
	UNMATCHED_BATCHES = 19,	  /* a batch ended that this thread did not begin last */
	REFUSED_TOKENS = 20,	  /* a number of tokens that is negative or beyond 32 bits */
	LOST_FUNCTIONS = 21, /* functions, function_counts or streams, or a share of it, is full */
	LOST_NVTX_RANGES = 22, /* an NVTX range was nothing: nvtx_unknown or nvtx_stacks is full */
	LOST_ALLOCATIONS = 23, /* an allocation is not remembered: a map of the ledger, or its share, is full */
	UNMATCHED_FREES = 24, /* freed was what the ledger does not have, or a free was not seen */
	LOST_BLOCKS = 25, /* a block of PyTorch, or its request, was not kept: torch_blocks or its share is full */
	LOST_STREAM_USERS = 26, /* whose launches a stream has is not known: stream_users, or its share, is full */
	LOST_SCHEDULING = 27,  /* a thread's waits were not counted: cpu_threads or cpu_stats is full */
	LOST_DRIVER_EVENTS = 28, /* in the driver's own programs: a map or their ring is full */
	LOST_STACKS = 29,      /* a slow or failing call's stack was not told: call_stacks is full, or there is none */
	LOST_COMMUNICATORS = 30, /* a communicator, or whose layer counts, is not known: a map is full */
	LOST_BATCH_SIZES = 31, /* a batched copy of more parts than are read: its bytes are too few */
	LOST_BURSTS = 32,      /* a thread's bursts are not looked at: burst_rings is full */
	LOST_GRAPHS = 33, /* a capture or a graph is not known: a map, or its share, is full */
	LOST_KERNEL_NAMES = 35, /* of a host function: half of its process's share, or unnamed_kernels, is full */
	LOST_PENDING_COMMUNICATORS = 36, /* of one made in a group nobody waits for the group's end: the map is full */
	LOST_LEDGER_NOTES = 37, /* what a context or an unmap freed is not looked for: ledger_notes is full */
	HOTSTAGE_LOSSES = 48,
};

/* What a call does besides being counted; column `effect` of call_spec. */
enum hotstage_effect {
	EFFECT_NONE = 0,
	EFFECT_CONTEXT_NEW = 1,     /* f(CUcontext *out, .., device): `out` belongs to the device */
	EFFECT_CONTEXT_CURRENT = 2, /* f(CUcontext): the thread's device is the context's */
	EFFECT_CONTEXT_PUSH = 3,    /* the same, and remember the one before */
	EFFECT_CONTEXT_POP = 4,     /* back to the one before */
	EFFECT_DEVICE_UUID = 5,     /* f(CUuuid *out, device) */
	EFFECT_FUNCTION_NAMED = 6,  /* f(handle *out, module, const char *name) */
	EFFECT_FUNCTION_OF = 7,     /* f(handle *out, kernel): the same function by another handle */
	EFFECT_STREAM_NEW = 8,      /* f(CUstream *out, flags, priority) */
	EFFECT_MEMORY_NEW = 9,      /* f(address or handle *out, ..): the first of memory's, ledger.h */
	EFFECT_MEMORY_FREE = 10,    /* f(address or handle) */
	EFFECT_MEMORY_MAP = 11,     /* f(address, bytes, offset, handle) */
	EFFECT_MEMORY_UNMAP = 12,   /* f(address, bytes) */
	EFFECT_MEMORY_HOLD = 13,    /* f(handle *out, ..): another owner of it */
	EFFECT_POOL_ATTRIBUTE = 14, /* f(pool, attribute, value *out) */
	EFFECT_MEMORY_REGISTER = 15, /* f(address, bytes): the program's own memory, page-locked */
	EFFECT_CONTEXT_END = 16,    /* f(CUcontext or device); the last of memory's */
	EFFECT_COMMUNICATOR_NEW = 17, /* f(ncclComm_t *out, ranks, .., rank, ..): communicators.h */
	EFFECT_COMMUNICATOR_USE = 18, /* f(.., count, type, .., ncclComm_t, ..) */
	EFFECT_COMMUNICATOR_GONE = 19, /* f(ncclComm_t) */
	EFFECT_CAPTURE_BEGIN = 20, /* f(CUstream, ..), perhaps into a graph: the first of graphs.h */
	EFFECT_CAPTURE_JOIN = 21, /* f(CUstream, CUevent, ..) */
	EFFECT_CAPTURE_END = 22, /* f(CUstream, CUgraph *out) */
	EFFECT_GRAPH = 23, /* enum hotstage_graph */
	EFFECT_DEVICE_PROPERTIES = 24, /* f(cudaDeviceProp *out, device): runtime_calls.h, as the next one */
	EFFECT_DEVICE_SET = 25, /* f(device): the thread works on it from now on */
	EFFECT_COMMUNICATOR_ASKED = 28, /* f(ncclComm_t, int *out): enum hotstage_question */
	EFFECT_GROUP = 29, /* enum hotstage_group */
	EFFECT_MEMORY_NODE = 30, /* a graph's node that allocates: ledger_new.h */
	EFFECT_POOL_FORGOTTEN = 31, /* f(pool, ..), or f(device): what it said of itself is not so any more */
};

/* Where an argument is: 0 = there is none, 1..6 = by position, 7.. = on the stack (x86-64). */
#define HOTSTAGE_ARGUMENT_NONE 0
#define HOTSTAGE_STREAM_IN_LAUNCH_CONFIG 64 /* CUlaunchConfig.hStream, behind argument 1 */
#define HOTSTAGE_GRID_IN_LAUNCH_CONFIG 64   /* CUlaunchConfig.gridDimX, Y, Z, its first members */
#define HOTSTAGE_GRID_BY_VALUE 65 /* a dim3 in arguments 2 and 3: x and y in the first, z in the second */

/* Where a size is that is in no register; column `bytes_argument` of call_spec. */
#define HOTSTAGE_BYTES_IN_2D 64	   /* a CUDA_MEMCPY2D behind argument 1 */
#define HOTSTAGE_BYTES_IN_3D 65	   /* a CUDA_MEMCPY3D behind argument 1 */
#define HOTSTAGE_BYTES_IN_BATCH 66 /* argument 4 sizes behind argument 3 */
#define HOTSTAGE_BATCH_SIZES 64	   /* of which so many are read */
#define HOTSTAGE_BYTES_IN_ARRAY 67 /* a CUDA_ARRAY_DESCRIPTOR behind argument 2 */
#define HOTSTAGE_BYTES_IN_ARRAY_3D 68 /* a CUDA_ARRAY3D_DESCRIPTOR there, with as many levels as argument 3 says */
#define HOTSTAGE_BYTES_BEHIND 69   /* `type_argument` bytes behind the address in `factor_argument` */
#define HOTSTAGE_BYTES_IN_PARAMETERS 70 /* a cudaMemcpy3DParms behind argument 1 */
#define HOTSTAGE_BYTES_IN_PEER_PARAMETERS 71 /* a cudaMemcpy3DPeerParms behind argument 1 */

/* Where a copy's direction is; column `kind_argument` of call_spec. Smaller ones: a cudaMemcpyKind. */
#define HOTSTAGE_KIND_IN_PARAMETERS 64 /* cudaMemcpy3DParms.kind, behind argument 1 */
#define HOTSTAGE_KIND_AROUND 65 /* of the driver: as the runtime's call around it says */
#define HOTSTAGE_KIND_IN_2D 66 /* the kinds of memory of a CUDA_MEMCPY2D, or as around it */
#define HOTSTAGE_KIND_IN_3D 67 /* .. of a CUDA_MEMCPY3D */

/* Where a copy went that does not say so by its name; column `direction` of call_key. */
enum hotstage_direction {
	DIRECTION_OF_ROW = 0, /* as the call's row says, be it that it is unknown */
	DIRECTION_HTOH = 1,   /* from here on cudaMemcpyKind + 1 */
	DIRECTION_HTOD = 2,
	DIRECTION_DTOH = 3,
	DIRECTION_DTOD = 4,
};

/* Into which of its thread's sums a call's time goes; column `wait` of call_spec. */
enum hotstage_wait {
	WAIT_NONE = 0,
	WAIT_SYNC = 1,
	WAIT_COPY = 2,
	WAIT_ALLOC = 3,
	HOTSTAGE_WAITS = 4,
};

/* How a call of a library says that it failed; column `answer` of call_spec. */
enum hotstage_answer {
	ANSWER_CODE = 0,    /* by a number that is not 0 */
	ANSWER_POINTER = 1, /* by a pointer to what went wrong */
	ANSWER_NOTHING = 2, /* it returns nothing */
	ANSWER_AMOUNT = 3,  /* by a negative number; others say how much was done */
};
#define HOTSTAGE_FAILED (-1) /* the result of a call that failed without a number */

/* call_specs[call id], written by user space before anything is attached. */
struct call_spec {
	__u8 bytes_argument;  /* position of the size, 0 = none */
	__u8 factor_argument; /* position of a second factor, 0 = none */
	__u8 bytes_shift;     /* elements to bytes */
	__u8 stream_argument; /* position of the CUstream, 0 = none */
	__u8 effect;          /* enum hotstage_effect */
	__u8 device_argument; /* position of the device ordinal, for effects that take one */
	__u8 wait;	      /* enum hotstage_wait */
	__u8 function_argument; /* where the launched function is, and whether it is learned */
	__u8 step;		/* enum hotstage_step */
	__u8 grid_argument; /* position of the grid's x, y and z follow; 0 = none */
	__u8 detail;		/* what the effect is of: enum hotstage_memory, hotstage_context_end */
	__u8 answer;		/* enum hotstage_answer, of calls of libraries */
	__u8 type_argument; /* position of the type that `bytes_argument` counts, 0 = bytes; or an offset */
	__u8 rank_argument; /* of a new communicator's rank, 0 = not told */
	__s8 no_error;	    /* a result beside 0 that is none: not yet */
	__u8 kind_argument; /* where a copy's direction is, 0 = its name says it */
};

/* A call's layer, in its cookie and its key. One piece of work is one call of each at most. */
#define HOTSTAGE_LAYER_DRIVER 0
#define HOTSTAGE_LAYER_RUNTIME 1
#define HOTSTAGE_LAYER_LIBRARY 2

#define HOTSTAGE_NO_RANK 0xffffffffU

/* How a new communicator's rank and size are found; column `detail` of EFFECT_COMMUNICATOR_NEW. */
enum hotstage_communicator_making {
	MADE_AS_TOLD = 0,   /* its own arguments say them, or nobody does */
	MADE_BY_SHRINK = 1, /* f(parent, ranks left out, how many, ..): what is left moves together */
	MADE_BY_GROWTH = 2, /* f(parent or 0, size, .., rank or -1, ..): members keep their rank */
};

/* What a communicator was asked for; column `detail` of EFFECT_COMMUNICATOR_ASKED. */
enum hotstage_question {
	QUESTION_SIZE = 0,
	QUESTION_RANK = 1,
	QUESTION_DEVICE = 2,
};

/* column `detail` of EFFECT_GROUP */
enum hotstage_group {
	GROUP_BEGINS = 0,
	GROUP_ENDS = 1,
	GROUP_IS_DROPPED = 2, /* it ends, and nothing in it was done */
};
#define HOTSTAGE_RANKS_IN_ORDER 64 /* in rank_argument: the first argument has one for each rank */
#define HOTSTAGE_RANKS_READ 16	   /* of which so many are read */

/* Maps of which one process may hold a share; pipeline_state has its own count. */
enum hotstage_share {
	SHARE_CALL_STATS = 0,
	SHARE_FUNCTIONS = 1,
	SHARE_FUNCTION_COUNTS = 2,
	SHARE_STREAMS = 3,
	SHARE_ALLOCATIONS = 4,
	SHARE_BLOCKS = 5,
	SHARE_STREAM_USERS = 6,
	SHARE_COMMUNICATORS = 7,
	SHARE_GRAPHS = 8,
	SHARE_CONTEXTS = 9,
	SHARE_DEVICES = 10, /* device_uuids */
	SHARE_PRIMARIES = 11,
	SHARE_POOLS = 12,
	SHARE_PENDING = 13, /* pending_communicators */
	HOTSTAGE_SHARES = 16,
};

struct hotstage_settings {
	__u64 slow_call_ns; /* a call that takes longer is sent as an event; 0 = none is */
	__u64 event_gap_ns; /* least time between two call events of one thread */
	__u32 requests_per_process; /* a process's share of pipeline_state, in entries */
	__u32 rules_generation;	    /* of stage_rules and `functions`: threads look again */
	__u32 shares[HOTSTAGE_SHARES]; /* and of the other maps, by enum hotstage_share */
};

/* process_shares[process]: entries that it holds, so that none crowds out all others. */
struct process_share {
	__u64 held[HOTSTAGE_SHARES];
};

/* 12 bytes: three words hash in one step, a fourth would cost a second one on each launch. */
struct call_key {
	__u32 tgid;
	__u16 call;
	__u8 stage;
	__u8 modality;
	__u8 device;
	__u8 layer; /* HOTSTAGE_LAYER_… */
	__u8 direction; /* enum hotstage_direction */
	__u8 pad;
};

/* Cumulative. `count` includes `abandoned`: calls entered that will never return. */
struct call_stat {
	__u64 count;
	__u64 bytes; /* of calls that returned 0 */
	__u64 errors;
	__u64 errors_oom;
	__u64 total_ns;
	__u32 histogram_slot; /* 0 = none */
	__u32 abandoned;
};

struct call_histogram {
	__u64 counts[HOTSTAGE_HISTOGRAM_SLOTS];
};

/* A call around the one in flight. */
struct call_frame {
	__u64 stack_pointer;
	__u64 since_ns;
	__u64 argument;
	__u64 second_argument;
	__u64 third_argument;
	__u32 ordinal;
	__u16 call;
	__u16 flags; /* of the call itself, in the same place while it is innermost: layers.h */
};

/*
 * threads[tid]: written by its own thread only, in place, never deleted on return. `call`,
 * `since_ns`, `stack_pointer`, the arguments and `ordinal` describe the innermost call in flight (call
 * 0 = none); `frames[0 .. depth - 2]` the calls around it, outermost first.
 */
struct thread_state {
	__u32 tgid;
	__u16 call;
	__u8 stage;
	__u8 modality;
	__u8 device;
	__u8 depth;
	__u8 pushed_device;
	__u8 source; /* enum hotstage_source: of the mark, or of the last launch without one */
	__u32 ordinal;
	__u64 since_ns;
	__u64 stack_pointer;
	__u64 argument; /* bytes, or the first argument of a call with an effect */
	__u64 stream;   /* CUstream of the last call, or one of the last launches: is_stream_due */
	__u64 stage_since_ns;
	__u64 request_hash;
	__u64 launch_total;
	__u64 unattributed_total; /* launches without a stage */
	__u64 bytes_total;
	__u64 event_ns;             /* when this thread last sent a call event */
	__u64 flushed_launch_total; /* what its requests have been given so far */
	__u64 flushed_bytes_total;
	__u32 error_total;
	__u32 flushed_error_total;
	__u64 context; /* CUcontext that is current, 0 = not seen */
	__u64 pushed_context;
	__u64 run_delay_ns; /* the task's time on the run queue as it was at the last mark */
	__u64 wait_ns[HOTSTAGE_WAITS]; /* by enum hotstage_wait, since the last mark */
	__u8 in_batch; /* 0, or 1 + the stage of the batch that it is in */
	/* Without a mark: what its work counts as, and what stage_rules said of it. */
	__u8 inferred_stage;
	__u8 inferred_modality;
	__u8 rule_stage;
	__u8 rule_modality;
	__u8 rule_flags;
	__u8 step_flags;
	__u8 launches_since_mark; /* with their stream in memory, modulo 256 */
	__u32 rules_generation;
	__u32 phase_launches; /* since the last anchor */
	__u32 step_launches;  /* since the last wait */
	__u32 steps;	      /* launches, then a wait */
	__u32 graph_steps;    /* of them: one graph, few launches, little copied to the host */
	__u32 burst_steps;    /* of them: no graph, many launches, after a copy to the device */
	__u64 nvtx_total;     /* launches by source; those by marks are the rest */
	__u64 rule_total;
	__u64 fingerprint_total;
	__u64 second_argument; /* of what is made: a function's name or kernel, a stream's priority; of memory */
	__u64 third_argument; /* of memory: ledger.h */
	/* Of its burst, without a mark (step_work.h); sums that stay at their end. */
	__u32 head_eighths; /* log2 of grid blocks, summed over its first HOTSTAGE_STEP_SHORT launches */
	__u32 input_bytes;  /* copied to the device since the last burst */
	__u32 least_input;  /* the smallest of those copies, 0 = none */
	__u32 output_bytes; /* copied to the host since the last wait */
	__u32 late_output;  /* .. and in short pieces since the last burst */
	__u32 decode_head;  /* of the last burst like decode: its head and its input */
	__u32 decode_input;
	__u32 capture_generation; /* as it was last looked up: graphs.h */
	__u32 level_generation; /* of process_levels, as it was last looked up */
	__u8 level;		/* enum hotstage_level */
	__u8 counted_at_entry;	/* rungs M and P: calls that return without a frame of theirs */
	__u8 is_capturing; /* its process has an open capture */
	__u8 group_depth; /* NCCL groups that the thread is in */
	__u64 launch_stream;	     /* CUstream of one of its last launches: stream_users.h */
	__u64 streamed_launch_total; /* launches that stream_users has */
	__u32 sample_at; /* its launch_total, modulo 2^32, at the next launch whose kernel is looked at */
	__u32 pending_communicators; /* made in them: pending_communicators[tid, 0 ..] */
	__u32 runtime_launches; /* of launch_total, modulo 2^32: counted by the runtime, no driver was seen */
	__u32 runtime_pad;
	struct call_frame frames[HOTSTAGE_OUTER_FRAMES];
};

/* A power of two: at 200 steps a second a ring holds what one look a second must see. */
#define HOTSTAGE_BURSTS 256

/* More than HOTSTAGE_STEP_SHORT launches from one wait to the next, no graph among them. */
struct burst {
	__u32 head_eighths;
	__u32 launches;
	__u32 input_bytes;
	__u32 least_input;
	__u32 output_bytes; /* until the next burst's wait */
};

/* burst_rings[tid]: its last bursts, at `written` modulo HOTSTAGE_BURSTS. */
struct burst_ring {
	__u32 tgid;
	__u32 pad;
	__u64 written;
	struct burst bursts[HOTSTAGE_BURSTS];
};

/* phase_limits[tid], written by user space: which heads and inputs are of which phase, ends included. */
struct phase_limits {
	__u32 tgid;
	__u32 decode_least; /* of a head */
	__u32 decode_most;
	__u32 decode_input;  /* bytes, at most */
	__u32 prefill_least; /* of a head, ~0 = prefill is not told */
	__u32 prompt_least;  /* bytes of its input */
	__u32 prompt_most;
};

/* communicators[communicator_key of an ncclComm_t]. */
struct communicator_key {
	__u64 handle;
	__u32 tgid;
	__u32 pad;
};

struct communicator {
	__u64 first_ns;
	__u64 last_ns; /* when its last call was entered, 0 = none was */
	__u64 calls;
	__u64 bytes;
	__u32 rank; /* HOTSTAGE_NO_RANK: made before the attach or by a split, and nobody asked since */
	__u32 size;
	__u32 last_tid;
	__u16 last_call;
	__u8 device; /* as the process counts them, HOTSTAGE_NO_DEVICE: nobody asked */
	__u8 pad;
};

/* pending_communicators[..]: made within a group, at whose end it will stand at `address`. */
struct pending_key {
	__u32 tid;
	__u32 index;
};

struct pending_communicator {
	__u64 address;
	__u32 tgid;
	__u32 place; /* rank | size << 16, 0xffff = unknown */
};

struct context_key {
	__u64 context;
	__u32 tgid;
	__u32 pad;
};

/* A power of two: a read of the target's memory costs as much as all the rest of a launch. */
#define HOTSTAGE_STREAM_EVERY 16

#define HOTSTAGE_NULL_STREAM (~0ULL) /* in stage_rules, where 0 says all streams */

/* stage_rules; tid 0 = all threads of the process, stream 0 = all streams. */
struct stage_rule_key {
	__u32 tgid;
	__u32 tid;
	__u64 stream;
};

struct stage_rule {
	__u8 stage; /* HOTSTAGE_NO_STAGE: no rule, the flags decide */
	__u8 modality;
	__u8 source;
	__u8 flags; /* HOTSTAGE_RULES_… */
};

/* A CUfunction, CUkernel or CUstream. */
struct function_key {
	__u64 handle;
	__u32 tgid;
	__u32 pad;
};

/* The name is the kernel's part, the other half is user space's. */
struct function_state {
	__u64 name_hash; /* FNV-1a 64 of the first 282 bytes of the name; 0 while it is being read */
	__u64 stage_mask; /* of a function of several stages */
	__u8 stage;
	__u8 modality;
	__u8 kind; /* enum hotstage_function_kind */
	__u8 pad[5];
	char name[HOTSTAGE_FUNCTION_NAME];
};

/* streams[function_key of a CUstream]. */
struct stream_state {
	__u64 created_ns;
	__s32 priority; /* the lower the more urgent; 0 where the call takes none */
	__u32 pad;
};

enum hotstage_function_kind {
	FUNCTION_UNKNOWN = 0,
	FUNCTION_ANCHOR = 1, /* of one stage: who launches it is in that stage from then on */
	FUNCTION_SHARED = 2, /* of several: counts as what its thread is in */
};

/* Learning: launches with a mark. */
struct function_count_key {
	__u64 handle;
	__u32 tgid;
	__u8 stage;
	__u8 modality;
	__u8 pad[2];
};

struct device_key {
	__u32 tgid;
	__u32 ordinal;
};

struct device_uuid {
	__u8 bytes[16];
};

/* The record behind the first argument of hotstage_mark_request_begin; NUL-padded, no pointers. */
struct hotstage_request {
	__u32 version;
	__u32 size;
	__u64 request_hash;
	char id[64];
	char endpoint[48];
	char instance[32];
	char model[32];
	char traceparent[56];
	__u64 input_digest; /* 64 bits of a digest of the input, 0 = none */
};

/* A stage that a process made up: its name comes once. */
#define HOTSTAGE_NVTX_NAME 64
#define HOTSTAGE_NVTX_DEPTH 16

/* The name of an NVTX range that user space has not decided on yet, NUL-padded. */
struct nvtx_name {
	__u32 tgid; /* who said it first */
	__u32 pad;
	char text[HOTSTAGE_NVTX_NAME];
};

/* The ranges that a thread is in, by what each is: a word as a mark passes it, or that of no stage. */
struct nvtx_stack {
	__u32 tgid;
	__u32 depth; /* may be beyond the words: ranges that deep are nothing */
	__u64 words[HOTSTAGE_NVTX_DEPTH];
};

struct stage_name_key {
	__u32 tgid;
	__u32 stage;
};

struct stage_name {
	char name[HOTSTAGE_STAGE_NAME];
};

struct batch_member {
	__u64 request_hash;
	__u32 tokens;
	__u8 stage;
	__u8 modality;
	__u16 pad;
};

/*
 * The record behind the first argument of hotstage_mark_batch_end. A batch of more members ends by
 * several calls, each with the same id and totals.
 */
struct hotstage_batch {
	__u32 version;
	__u32 size;
	__u64 batch_id;
	__u64 word;
	__u32 tokens_total;
	__u16 members; /* of this part */
	__u16 members_total;
	struct batch_member member[HOTSTAGE_BATCH_MEMBERS];
};

/* What a thread has done for a batch; to be split among its members by their tokens. */
struct batch_work {
	__u64 launches;
	__u64 bytes;
	__u64 errors;
	__u64 run_queue_ns; /* ~0 = the kernel does not tell */
	__u64 sync_ns;
	__u64 copy_ns;
	__u64 alloc_ns;
};

/* batches[tid]: the batch that the thread is in, or was in last. */
struct batch_state {
	__u64 batch_id;
	__u64 began_ns;
	__u64 outer_request_hash; /* whom the thread worked for around it */
	__u64 word; /* as it was begun with */
	struct batch_work work;
};

struct request_key {
	__u64 cgroup_id;
	__u64 request_hash; /* FNV-1a 64 of the id */
};

/*
 * One stage of one request. The last four bytes change by one atomic add on all of them, so that
 * `count` and `open` cannot disagree.
 */
struct stage_slot {
	__u64 began_ns; /* last begin from closed */
	__u64 total_ns; /* of all closed intervals */
	__u32 run_queue_us; /* what its threads spent waiting for a CPU; sums that stay at their end */
	__u32 sync_us;	    /* .. and inside calls that wait, copy, allocate */
	__u32 copy_us;
	__u32 alloc_us;
	__u32 tokens;
	__u16 count; /* ends */
	__u8 modality;
	__u8 open; /* begins without an end */
};

/* Where stages of a request ran. */
struct request_context {
	__u64 context; /* CUcontext, 0 = free */
	__u64 stage_mask;
	__u32 device; /* as its process counts them, HOTSTAGE_NO_DEVICE = not seen */
	__u32 pad;
};

/* `quota_tgid` of a request that has been taken out, or that was never taken in. */
#define HOTSTAGE_REQUEST_TAKEN (~0ULL)

/* pipeline_state[request]: several writers, no lock; words by single stores, sums atomic. */
struct request_state {
	__u64 started_ns; /* 0 while being filled in */
	__u64 updated_ns;
	__u32 tgid;
	__u32 model_id;   /* FNV-1a 32 of the model's name, 0 = none */
	__u64 stage_mask; /* bit per stage that has ended */
	__u64 open_mask;  /* bit per stage that is open */
	__u64 own_stages; /* a byte for each of the own slots: the stage that it is, 0 = free */
	__u64 cuda_stream;
	__u64 launches;
	__u64 bytes;
	__u32 errors;
	__u32 output_tokens;
	__u64 quota_tgid; /* in whose share it counts, 0 = in nobody's; 64 bits to be exchanged */
	__u64 embedding_address; /* in the process; user space alone reads it and never tells it */
	__u32 embedding_dims;	 /* 0 = none was told of */
	__u8 embedding_dtype;	 /* 0 f32, 1 f16, 2 bf16, 3 f64 */
	__u8 embedding_stage;
	__u16 lora_rank; /* as lora_apply was opened with, 0 = not said */
	__u8 lora_module;
	__u8 pad[3];
	__u32 first_tokens; /* output tokens that the first word of them told of */
	__u32 last_tokens;  /* .. and the last one that told of more than before */
	__u32 pad_tokens;
	__u64 first_token_ns; /* when that was, 0 = nobody said */
	__u64 last_token_ns;
	__u64 modality_words[HOTSTAGE_MODALITIES]; /* stage << 56 | model slot << 48 | ns >> 8 */
	__u64 modality_first_words[HOTSTAGE_MODALITIES]; /* the same, of its first mark */
	struct request_context contexts[HOTSTAGE_CONTEXTS];
	struct stage_slot stages[HOTSTAGE_STAGE_SLOTS];
	char id[64]; /* from here as in struct hotstage_request: copied at once */
	char endpoint[48];
	char instance[32];
	char model[32];
	char traceparent[56];
	__u64 input_digest;
};

enum hotstage_event_kind {
	EVENT_REQUEST_FINISHED = 1,
	EVENT_CALL_SLOW = 2,
	EVENT_CALL_ERROR = 3,
	EVENT_KERNEL_LINE = 4,
	EVENT_BATCH = 5,
	EVENT_TOKEN_CONFLICT = 16,
};

struct request_event {
	__u32 kind;
	__u32 outcome; /* 0 ok, 1 error, 2 cancelled, 3 refused */
	__u64 ended_ns;
	struct request_key key;
	struct request_state state;
};

struct batch_event {
	__u32 kind;
	__u32 tgid;
	__u32 tid;
	__u32 device;
	__u64 began_ns;
	__u64 ended_ns;
	__u64 cgroup_id;
	__u64 context;
	struct batch_work work;
	struct hotstage_batch batch;
};

struct call_event {
	__u32 kind;
	__u32 tgid;
	__u32 tid;
	__s32 result; /* the call's own return code */
	__u64 ended_ns;
	__u64 duration_ns;
	__u64 bytes;
	__u64 stream;
	__u64 request_hash;
	__u16 call;
	__u8 stage;
	__u8 modality;
	__u8 device;
	__u8 pad[3];
};

/* A line of the kernel log that begins with the wanted prefix. */
struct kernel_line_event {
	__u32 kind;
	__u32 length;
	__u64 at_ns;
	char text[240];
};

_Static_assert(sizeof(struct call_spec) == 16, "call_spec");
_Static_assert(sizeof(struct hotstage_settings) == 88, "hotstage_settings");
_Static_assert(sizeof(struct process_share) == 128, "process_share");
_Static_assert(sizeof(struct call_key) == 12, "call_key");
_Static_assert(sizeof(struct call_stat) == 48, "call_stat");
_Static_assert(sizeof(struct call_histogram) == 1936, "call_histogram");
_Static_assert(sizeof(struct burst) == 20, "burst");
_Static_assert(sizeof(struct burst_ring) == 5136, "burst_ring");
_Static_assert(sizeof(struct phase_limits) == 28, "phase_limits");
_Static_assert(sizeof(struct call_frame) == 48, "call_frame");
_Static_assert(sizeof(struct thread_state) == 512, "thread_state");
_Static_assert(sizeof(struct communicator_key) == 16, "communicator_key");
_Static_assert(sizeof(struct communicator) == 48, "communicator");
_Static_assert(sizeof(struct pending_key) == 8, "pending_key");
_Static_assert(sizeof(struct pending_communicator) == 16, "pending_communicator");
_Static_assert(sizeof(struct context_key) == 16, "context_key");
_Static_assert(sizeof(struct stage_rule_key) == 16, "stage_rule_key");
_Static_assert(sizeof(struct stage_rule) == 4, "stage_rule");
_Static_assert(sizeof(struct function_key) == 16, "function_key");
_Static_assert(sizeof(struct function_state) == 72, "function_state");
_Static_assert(sizeof(struct stream_state) == 16, "stream_state");
_Static_assert(sizeof(struct function_count_key) == 16, "function_count_key");
_Static_assert(sizeof(struct device_key) == 8, "device_key");
_Static_assert(sizeof(struct hotstage_request) == 256, "hotstage_request");
_Static_assert(sizeof(struct stage_slot) == 40, "stage_slot");
_Static_assert(sizeof(struct request_state) == 1528, "request_state");
_Static_assert(sizeof(struct request_event) == 1560, "request_event");
_Static_assert(sizeof(struct request_context) == 24, "request_context");
_Static_assert(sizeof(struct stage_name_key) == 8, "stage_name_key");
_Static_assert(sizeof(struct nvtx_name) == 72, "nvtx_name");
_Static_assert(sizeof(struct nvtx_stack) == 136, "nvtx_stack");
_Static_assert(sizeof(struct hotstage_batch) == 1056, "hotstage_batch");
_Static_assert(sizeof(struct batch_state) == 88, "batch_state");
_Static_assert(sizeof(struct batch_event) == 1160, "batch_event");
_Static_assert(sizeof(struct call_event) == 64, "call_event");
_Static_assert(sizeof(struct kernel_line_event) == 256, "kernel_line_event");

#endif
