// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * The object that is loaded: the counting and the marks programs in one, because they share their
 * maps. Which of its programs are loaded, and as what, is the loader's choice
 * (agent/hotstage/probes/loader/programs.py).
 */
#include "calls.bpf.c"
#include "marks.bpf.c"
#include "nvtx.bpf.c"
#include "torch.bpf.c"
#include "ledger.bpf.c"
