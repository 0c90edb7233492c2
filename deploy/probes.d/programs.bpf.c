// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
// hotstage-probe: 1
// hotstage-metric: started_total from started by program:char[16]: Programs that were started, by name
// hotstage-metric: ended_total from ended by program:char[16]: Processes that ended, by name
//
// Which programs of this host come and go, and how often? A server that is started again and again shows here before
// anybody has asked its supervisor. Beyond 256 names no further one is taken in.

struct program {
	char name[16];
};

BPF_HASH(started, struct program, u64, 256);
BPF_HASH(ended, struct program, u64, 256);

TRACEPOINT_PROBE(sched, sched_process_exec)
{
	struct program program = {};

	bpf_get_current_comm(program.name, sizeof(program.name));
	started.increment(program);
	return 0;
}

TRACEPOINT_PROBE(sched, sched_process_exit)
{
	struct program program = {};
	u64 id = bpf_get_current_pid_tgid();

	if ((u32)id != id >> 32) /* a thread, not its process */
		return 0;
	bpf_get_current_comm(program.name, sizeof(program.name));
	ended.increment(program);
	return 0;
}
