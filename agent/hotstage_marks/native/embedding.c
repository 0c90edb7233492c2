// SPDX-License-Identifier: Apache-2.0
/* An embedding by reference: where it lies, how long it is, and of what. Nothing is read but its first and last byte. */
#define _GNU_SOURCE /* process_vm_readv */
#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core.h"

#define MAX_DIMS (1U << 20)

static const uint8_t BYTES_OF[] = {4, 2, 2, 8}; /* enum hotstage_dtype */

/*
 * Whether the host can read it, asked of the kernel: a device pointer is an address like any other, and reading one
 * would end the server. Where the kernel does not answer (a sandbox), the caller is believed.
 */
static int is_readable(const void *data, size_t bytes)
{
	char first, last;
	struct iovec here[] = {{&first, 1}, {&last, 1}};
	struct iovec there[] = {{(void *)(uintptr_t)data, 1}, {(char *)(uintptr_t)data + bytes - 1, 1}};
	int servers_errno = errno, is_fault;
	ssize_t got = process_vm_readv(getpid(), here, 2, there, 2, 0);

	is_fault = got < 0 ? errno == EFAULT : got != 2;
	errno = servers_errno;
	return !is_fault;
}

EXPORT int hotstage_embedding(uint64_t request_hash, uint64_t stage, uint64_t modality, const void *data, uint32_t dims,
			      uint32_t dtype)
{
	if (!hotstage_is_watched())
		return 0;
	if (request_hash && !data && !dims) {
		hotstage_mark_embedding(request_hash, hotstage_word(stage, modality), NULL, 0);
		return 1;
	}
	if (!request_hash || !data || !dims || dims > MAX_DIMS || dtype >= sizeof(BYTES_OF) ||
	    !is_readable(data, (size_t)dims * BYTES_OF[dtype])) {
		hotstage_left_out(HOTSTAGE_COUNT_EMBEDDINGS_REFUSED, 1);
		return 0;
	}
	hotstage_mark_embedding(request_hash, hotstage_word(stage, modality), data, dims | (uint64_t)dtype << 32);
	return 1;
}
