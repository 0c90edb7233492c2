// SPDX-License-Identifier: Apache-2.0
/*
 * The digest of an input: XXH64, written from its published description.
 *
 * Four lanes of 8 bytes each, so that an image costs a millisecond and not ten. Reads the input and keeps nothing.
 */
#include "core.h"

#define PRIME_1 0x9e3779b185ebca87ULL
#define PRIME_2 0xc2b2ae3d27d4eb4fULL
#define PRIME_3 0x165667b19e3779f9ULL
#define PRIME_4 0x85ebca77c2b2ae63ULL
#define PRIME_5 0x27d4eb2f165667c5ULL

static uint64_t rotated(uint64_t value, int bits)
{
	return value << bits | value >> (64 - bits);
}

static uint64_t word_at(const unsigned char *bytes)
{
	uint64_t word;

	memcpy(&word, bytes, sizeof(word)); /* little-endian, as both machines are */
	return word;
}

static uint64_t round_of(uint64_t lane, uint64_t word)
{
	return rotated(lane + word * PRIME_2, 31) * PRIME_1;
}

static uint64_t merged(uint64_t hash, uint64_t lane)
{
	return (hash ^ round_of(0, lane)) * PRIME_1 + PRIME_4;
}

/* All whole blocks of 32 bytes; `*bytes` moves behind them. */
static uint64_t blocks_of(const unsigned char **bytes, const unsigned char *end, uint64_t seed)
{
	uint64_t lanes[4] = {seed + PRIME_1 + PRIME_2, seed + PRIME_2, seed, seed - PRIME_1};
	uint64_t hash;

	for (; end - *bytes >= 32; *bytes += 32)
		for (int i = 0; i < 4; i++)
			lanes[i] = round_of(lanes[i], word_at(*bytes + 8 * i));
	hash = rotated(lanes[0], 1) + rotated(lanes[1], 7) + rotated(lanes[2], 12) + rotated(lanes[3], 18);
	for (int i = 0; i < 4; i++)
		hash = merged(hash, lanes[i]);
	return hash;
}

static uint64_t rest_of(uint64_t hash, const unsigned char *bytes, const unsigned char *end)
{
	uint32_t half;

	for (; end - bytes >= 8; bytes += 8)
		hash = rotated(hash ^ round_of(0, word_at(bytes)), 27) * PRIME_1 + PRIME_4;
	if (end - bytes >= 4) {
		memcpy(&half, bytes, sizeof(half));
		hash = rotated(hash ^ half * PRIME_1, 23) * PRIME_2 + PRIME_3;
		bytes += 4;
	}
	for (; bytes < end; bytes++)
		hash = rotated(hash ^ *bytes * PRIME_5, 11) * PRIME_1;
	return hash;
}

__attribute__((visibility("default"))) uint64_t hotstage_digest(const void *input, uint64_t length, uint64_t seed)
{
	const unsigned char *bytes = input, *end = bytes + length;
	uint64_t hash = length >= 32 ? blocks_of(&bytes, end, seed) : seed + PRIME_5;

	hash = rest_of(hash + length, bytes, end);
	hash = (hash ^ hash >> 33) * PRIME_2;
	hash = (hash ^ hash >> 29) * PRIME_3;
	hash ^= hash >> 32;
	return hash ? hash : 1;
}
