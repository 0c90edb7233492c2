// SPDX-License-Identifier: Apache-2.0
/* One variable of each type that crosses to Python, so that clang describes all of them in BTF. */
#include <linux/types.h>

#include "../../../bpf/include/abi.h"
#include "../../../bpf/include/conflict_abi.h"
#include "../../../bpf/include/driver.h"
#include "../../../bpf/include/graphs_abi.h"
#include "../../../bpf/include/ledger_abi.h"
#include "../../../bpf/include/names_abi.h"
#include "../../../bpf/include/scheduling.h"
#include "../../../bpf/include/torch_abi.h"

struct call_spec spec;
struct hotstage_settings settings;
struct process_share process_share;
struct call_key key;
struct call_stat stat;
struct call_histogram histogram;
struct thread_state thread;
struct burst burst;
struct burst_ring burst_ring;
struct phase_limits phase_limits;
struct request_key request_key;
struct request_event finished;
struct call_event call;
struct kernel_line_event line;
struct communicator_key communicator_key;
struct communicator communicator;
struct pending_key pending_key;
struct pending_communicator pending_communicator;
struct context_key context;
struct stage_rule_key rule_key;
struct stage_rule rule;
struct function_key function_key;
struct function_state function;
struct function_count_key function_count;
struct stream_state stream;
struct device_key device;
struct device_uuid uuid;
struct hotstage_request request;
enum hotstage_loss loss;
enum hotstage_event_kind kind;
enum hotstage_effect effect;
enum hotstage_wait wait;
enum hotstage_source source;
struct stage_name_key stage_name_key;
struct stage_name stage_name;
struct batch_state batch_state;
struct nvtx_name nvtx_name;
struct nvtx_stack nvtx_stack;
struct batch_event batch;
enum hotstage_step step;
struct allocation_key allocation_key;
struct allocation allocation;
struct memory_key memory_key;
struct memory_sum memory_sum;
struct memory_stage_key memory_stage_key;
struct memory_stage memory_stage;
struct memory_pool memory_pool;
struct primary_context primary_context;
enum hotstage_memory memory;
enum hotstage_context_end context_end;
enum hotstage_function_kind function_kind;
struct cpu_thread cpu_thread;
struct cpu_key cpu_key;
struct cpu_stat cpu_stat;
enum hotstage_share share;
struct event_count event_count;
struct fence_key fence_key;
struct open_fence open_fence;
struct timeline_key timeline_key;
struct timeline_stat timeline_stat;
struct wait_stat wait_stat;
struct gpu_memory_key gpu_memory_key;
struct gpu_memory gpu_memory;
struct gpu_file_key gpu_file_key;
struct ioctl_key ioctl_key;
struct ioctl_stat ioctl_stat;
struct oom_event oom_event;
struct xid_event xid_event;
struct ioctl_event ioctl_event;
struct torch_block_key torch_block_key;
struct torch_block torch_block;
struct torch_segment torch_segment;
struct kernel_key kernel_key;
struct kernel_state kernel_state;
struct names_settings names_settings;
struct call_stack call_stack;
struct torch_device torch_device;
struct conflict_limits conflict_limits;
struct conflict_inputs conflict_inputs;
struct conflict_latch conflict_latch;
struct conflict_event conflict_event;
struct stream_user stream_user;
enum hotstage_token_basis token_basis;
enum hotstage_conflict_outcome conflict_outcome;
struct capture_key capture_key;
struct capture capture;
struct graph_work graph_work;
enum hotstage_graph graph;
struct ledger_note ledger_note;
enum hotstage_ledger_note ledger_note_kind;
enum hotstage_taken_out taken_out;
