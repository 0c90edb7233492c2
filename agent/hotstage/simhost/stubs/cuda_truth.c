// SPDX-License-Identifier: Apache-2.0
/* Opens the shared page and this process's file of truth when the library is loaded, before any call. */
#define _GNU_SOURCE
#include "cuda_sim.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/*
 * What the calling thread works for, stage | modality << 8, written by the simulated server's own GPU code. A variable,
 * so that the library exports no function that the real one has not.
 */
__attribute__((visibility("default"))) __thread uint32_t sim_truth_word = TRUTH_NO_WORD;

static struct truth_file private_truth;

struct truth_file *truth = &private_truth;
struct sim_page *page;

static const char *const NAMES[FUNCTION_COUNT] = {
#define X(name) #name,
	CUDA_FUNCTIONS(X)
#undef X
};

void truth_launch(enum truth_launch function)
{
	uint32_t stage = sim_truth_word & 0xff, modality = sim_truth_word >> 8 & 0xff;
	struct context *context;
	int ordinal = require_context(&context) ? 0 : context->ordinal;

	if (stage < TRUTH_STAGES && modality < TRUTH_MODALITIES)
		__atomic_fetch_add(&truth->launches[function][ordinal][stage][modality], 1, __ATOMIC_RELAXED);
}

static struct truth_file *map_truth(const char *folder)
{
	struct truth_file *file;
	char path[4200];
	int fd;

	snprintf(path, sizeof(path), "%s/truth-%d", folder, getpid());
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0)
		return NULL;
	if (ftruncate(fd, sizeof(*file)) < 0) {
		close(fd);
		return NULL;
	}
	file = mmap(NULL, sizeof(*file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return file == MAP_FAILED ? NULL : file;
}

__attribute__((constructor)) static void open_truth(void)
{
	struct truth_file *file = NULL;

	page = sim_page_open();
	if (*sim_page_folder())
		file = map_truth(sim_page_folder());
	if (file)
		truth = file;
	memcpy(truth->magic, "HSTRUTH2", 8);
	truth->pid = (uint32_t)getpid();
	truth->count = FUNCTION_COUNT;
	truth->started_ns = now_ns();
	for (int i = 0; i < FUNCTION_COUNT; i++)
		snprintf(truth->entries[i].name, sizeof(truth->entries[i].name), "%s", NAMES[i]);
}
