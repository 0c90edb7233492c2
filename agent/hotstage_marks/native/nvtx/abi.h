// SPDX-License-Identifier: Apache-2.0
/*
 * What a program that contains NVTX 3 and an injection library say to each other: the numbers, once.
 *
 * From the public headers of NVTX 3 (nvtx3/nvToolsExt.h, nvtx3/nvtxDetail/nvtxTypes.h); a test compares every one of
 * them with the vendor's headers where those are installed.
 */
#ifndef HOTSTAGE_NVTX_ABI_H
#define HOTSTAGE_NVTX_ABI_H

#include <stddef.h>
#include <stdint.h>

#define ABI_EXPORT_TABLE_CALLBACKS 1 /* NVTX_ETID_CALLBACKS */
#define ABI_MODULE_CORE 1            /* NVTX_CB_MODULE_CORE */
#define ABI_MODULE_CORE2 5           /* NVTX_CB_MODULE_CORE2 */

enum abi_core {
	ABI_RANGE_START_EX = 4,
	ABI_RANGE_START_A = 5,
	ABI_RANGE_START_W = 6,
	ABI_RANGE_END = 7,
	ABI_RANGE_PUSH_EX = 8,
	ABI_RANGE_PUSH_A = 9,
	ABI_RANGE_PUSH_W = 10,
	ABI_RANGE_POP = 11,
};

enum abi_core2 {
	ABI_DOMAIN_RANGE_START_EX = 2,
	ABI_DOMAIN_RANGE_END = 3,
	ABI_DOMAIN_RANGE_PUSH_EX = 4,
	ABI_DOMAIN_RANGE_POP = 5,
	ABI_DOMAIN_REGISTER_STRING_A = 10,
	ABI_DOMAIN_REGISTER_STRING_W = 11,
	ABI_DOMAIN_CREATE_A = 12,
	ABI_DOMAIN_CREATE_W = 13,
};

enum abi_message {
	ABI_MESSAGE_ASCII = 1,
	ABI_MESSAGE_UNICODE = 2,
	ABI_MESSAGE_REGISTERED = 3,
};

#define ABI_NO_PUSH_POP_TRACKING (-2)

typedef void (*abi_function)(void);

/* NvtxExportTableCallbacks; the table is an array of pointers to where the function pointers are. */
struct abi_callbacks {
	size_t struct_size;
	int (*module_table)(int module, abi_function ***table, unsigned int *size);
};

typedef const void *(*abi_get_export_table)(uint32_t table);

/* nvtxEventAttributes_t, version 2 and 3. */
struct abi_event {
	uint16_t version;
	uint16_t size;
	uint32_t category;
	int32_t color_type;
	uint32_t color;
	int32_t payload_type;
	int32_t reserved;
	uint64_t payload;
	int32_t message_type;
	uint32_t _pad;
	const void *message;
};

_Static_assert(sizeof(struct abi_event) == 48, "nvtxEventAttributes_t");

#endif
