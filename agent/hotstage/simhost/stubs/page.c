// SPDX-License-Identifier: Apache-2.0
/* Finds and maps the shared page; compiled into each stub library. */
#define _GNU_SOURCE
#include "page.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char folder[4096];

static void cut_to_folder(char *path)
{
	char *slash = strrchr(path, '/');

	if (slash)
		*slash = 0;
	else
		strcpy(path, ".");
}

static int find_file(char *path, size_t size)
{
	const char *named = getenv(SIM_PAGE_VARIABLE);
	Dl_info here;

	if (named)
		return snprintf(path, size, "%s", named) < (int)size;
	if (!dladdr((void *)find_file, &here) || !here.dli_fname)
		return 0;
	if (snprintf(path, size, "%s", here.dli_fname) >= (int)size)
		return 0;
	cut_to_folder(path);
	if (strlen(path) + sizeof("/" SIM_PAGE_FILE) > size)
		return 0;
	strcat(path, "/" SIM_PAGE_FILE);
	return 1;
}

static struct sim_page *map_shared(void)
{
	struct sim_page *page;
	char path[4096];
	int fd;

	if (!find_file(path, sizeof(path)))
		return NULL;
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	if (lseek(fd, 0, SEEK_END) < (off_t)sizeof(*page)) {
		close(fd);
		return NULL;
	}
	page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (page == MAP_FAILED)
		return NULL;
	if (page->magic != SIM_PAGE_MAGIC) {
		munmap(page, sizeof(*page));
		return NULL;
	}
	strcpy(folder, path);
	cut_to_folder(folder);
	return page;
}

static struct sim_page *private_page(void)
{
	static struct sim_page page;
	struct sim_device *device = &page.devices[0];

	page.magic = SIM_PAGE_MAGIC;
	page.version = 1;
	page.device_count = 1;
	strcpy(device->uuid, "GPU-00000000-0000-4000-8000-000000000001");
	strcpy(device->name, "Simulated GPU");
	strcpy(device->pci_bus_id, "00000000:01:00.0");
	device->total_bytes = 1ULL << 34;
	device->factor = 1.0;
	return &page;
}

struct sim_page *sim_page_open(void)
{
	struct sim_page *page = map_shared();

	return page ? page : private_page();
}

const char *sim_page_folder(void)
{
	return folder;
}
