// SPDX-License-Identifier: Apache-2.0
/* Opens the shared page and this process's file of truth when the library is loaded, before any call. */
#define _GNU_SOURCE
#include "cuda_sim.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct truth_file private_truth;

struct truth_file *truth = &private_truth;
struct sim_page *page;

static const char *const NAMES[FUNCTION_COUNT] = {
#define X(name) #name,
	CUDA_FUNCTIONS(X)
#undef X
};

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
	memcpy(truth->magic, "HSTRUTH1", 8);
	truth->pid = (uint32_t)getpid();
	truth->count = FUNCTION_COUNT;
	truth->started_ns = now_ns();
	for (int i = 0; i < FUNCTION_COUNT; i++)
		snprintf(truth->entries[i].name, sizeof(truth->entries[i].name), "%s", NAMES[i]);
}
