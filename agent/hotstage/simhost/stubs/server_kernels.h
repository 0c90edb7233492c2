// SPDX-License-Identifier: Apache-2.0
/*
 * Which kernels a stage of the simulated server launches: names as engines have them, in the proportions of a
 * transformer's layer. Most are matrix products, norms and additions that all stages share; a layer has one or two that
 * say which stage it is.
 *
 * The encoders launch through one function each, and so do the stages of the language model, so that where encoders and
 * language model have a device each, a count by function and device is a count by the stage that made it.
 */
#ifndef HOTSTAGE_SIMHOST_SERVER_KERNELS_H
#define HOTSTAGE_SIMHOST_SERVER_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#define LAYER_KERNELS 12
#define NAMES 24

enum launch_by { BY_KERNEL, BY_KERNEL_EX, BY_COOPERATIVE };

/* What a stage launches: `first` once (NULL: nothing), then `layer` again and again up to its first NULL. */
struct kernel_program {
	uint32_t stage; /* as stages/stage.py has it */
	enum launch_by by;
	uint32_t is_encoder;
	const char *first;
	const char *layer[LAYER_KERNELS];
};

static const struct kernel_program PROGRAMS[] = {
	{8, BY_KERNEL, 1, "patch_embed", /* vision_encode */
	 {"layernorm", "gemm_bf16", "vit_attention_fwd", "gemm_bf16", "elementwise_add", "layernorm", "gemm_bf16",
	  "gelu_fwd", "gemm_bf16", "elementwise_add"}},
	{9, BY_KERNEL_EX, 1, "mel_conv1d", /* audio_encode */
	 {"layernorm", "gemm_bf16", "audio_attention_fwd", "gemm_bf16", "elementwise_add", "layernorm", "gemm_bf16",
	  "gelu_fwd", "gemm_bf16", "elementwise_add"}},
	{10, BY_COOPERATIVE, 1, "tubelet_embed", /* video_encode */
	 {"layernorm", "gemm_bf16", "temporal_attention_fwd", "gemm_bf16", "elementwise_add", "layernorm", "gemm_bf16",
	  "gelu_fwd", "gemm_bf16", "elementwise_add"}},
	{11, BY_KERNEL, 0, NULL, /* cross_modal_align */
	 {"layernorm", "gemm_bf16", "cross_attention_fwd", "gemm_bf16", "elementwise_add", "gelu_fwd", "gemm_bf16"}},
	{12, BY_KERNEL_EX, 0, "embed_tokens_gather", /* llm_prefill */
	 {"layernorm", "gemm_bf16", "rotary_embedding", "reshape_and_cache", "flash_prefill_fwd", "gemm_bf16",
	  "elementwise_add", "layernorm", "gemm_bf16", "silu_and_mul", "gemm_bf16", "elementwise_add"}},
	{13, BY_COOPERATIVE, 0, NULL, /* llm_decode: a step's last layer; those before are its graph */
	 {"paged_attention_decode", "gemm_bf16", "elementwise_add", "layernorm", "gemm_bf16", "sample_top_p"}},
};

/* What a decode step's graph holds. */
static const char *const GRAPH_LAYER[LAYER_KERNELS] = {
	"layernorm", "gemm_bf16", "rotary_embedding", "reshape_and_cache", "paged_attention_decode", "gemm_bf16",
	"elementwise_add", "layernorm", "gemm_bf16", "silu_and_mul", "gemm_bf16", "elementwise_add"};

static inline const char *kernel_of(const char *first, const char *const *layer, uint32_t number)
{
	uint32_t length = 0;

	while (length < LAYER_KERNELS && layer[length])
		length++;
	if (!first)
		return layer[number % length];
	return number ? layer[(number - 1) % length] : first;
}

#endif
