// SPDX-License-Identifier: Apache-2.0
/*
 * Simulated libcuda: names that the real one exports and that nothing here stands behind. A program that calls one is
 * told so, as by a driver that lacks the feature, and a watcher sees the call.
 */
#include "cuda_sim.h"

#define UNSUPPORTED(name)                       \
	BODY(name)(void)                        \
	{                                       \
		MADE(name);                     \
		return CUDA_ERROR_NOT_SUPPORTED; \
	}

CUDA_UNSUPPORTED(UNSUPPORTED)
