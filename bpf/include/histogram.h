// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * The slot of a duration in a base-2 exponential histogram of scale 3 whose unit is the second, as
 * OpenTelemetry's and Prometheus's: slot 0 below 2^-22 s, then eight slots an octave up to 2^8 s,
 * then the overflow.
 *
 * The unit is 2^-50 s: ns * 1125900 (2^50 / 10^9, off by 8e-8), so that nothing is lost before the
 * comparison.
 */
#ifndef HOTSTAGE_HISTOGRAM_H
#define HOTSTAGE_HISTOGRAM_H

#define HOTSTAGE_UNITS_PER_NS 1125900ULL
#define HOTSTAGE_FIRST_BIT 28 /* 2^-22 s */
#define HOTSTAGE_LAST_BIT 57  /* below 2^8 s */
#define HOTSTAGE_LAST_NS                                                         \
	(1ULL << 38) /* 275 s: all of it is overflow, and the product still fits \
		      */

/*
 * 2^63 * 2^(k/8): where the slots of an octave begin, for a value shifted so that its highest bit
 * is bit 63.
 */
#define HOTSTAGE_EIGHTH_1 0x8b95c1e3ea8bd6e7ULL
#define HOTSTAGE_EIGHTH_2 0x9837f0518db8a970ULL
#define HOTSTAGE_EIGHTH_3 0xa5fed6a9b15138ebULL
#define HOTSTAGE_EIGHTH_4 0xb504f333f9de6485ULL
#define HOTSTAGE_EIGHTH_5 0xc5672a115506dadeULL
#define HOTSTAGE_EIGHTH_6 0xd744fccad69d6af5ULL
#define HOTSTAGE_EIGHTH_7 0xeac0c6e7dd24392fULL

/* 1 where there is no bit from `bit` on, else 0; without a branch, since the verifier goes through both sides of each. */
static __always_inline __u64 is_below_bit(__u64 value, __u32 bit)
{
	return ((value >> bit) - 1) >> 63;
}

/* 1 where value < limit, else 0, of two that have their highest bits set; without a branch, too. */
#define IS_BELOW(value, limit) (((value) - (limit)) >> 63)

static __always_inline __u32 histogram_slot_of(__u64 duration_ns)
{
	__u64 value, shift, bit = 63 - HOTSTAGE_LAST_BIT, eighth;

	if (duration_ns >= HOTSTAGE_LAST_NS)
		return HOTSTAGE_HISTOGRAM_SLOTS - 1;
	value = duration_ns * HOTSTAGE_UNITS_PER_NS;
	if (value < 1ULL << HOTSTAGE_FIRST_BIT)
		return 0;
	if (value >= 2ULL << HOTSTAGE_LAST_BIT)
		return HOTSTAGE_HISTOGRAM_SLOTS - 1;

	/* The highest bit comes to bit 63, `bit` counts the shifts. */
	value <<= bit;
#pragma clang loop unroll(full)
	for (__u32 step = 16; step; step >>= 1) {
		shift = is_below_bit(value, 64 - step) * step;
		value <<= shift;
		bit += shift;
	}
	eighth = 7 - IS_BELOW(value, HOTSTAGE_EIGHTH_1) - IS_BELOW(value, HOTSTAGE_EIGHTH_2) -
		 IS_BELOW(value, HOTSTAGE_EIGHTH_3) - IS_BELOW(value, HOTSTAGE_EIGHTH_4) -
		 IS_BELOW(value, HOTSTAGE_EIGHTH_5) - IS_BELOW(value, HOTSTAGE_EIGHTH_6) -
		 IS_BELOW(value, HOTSTAGE_EIGHTH_7);
	return (__u32)(1 + (63 - HOTSTAGE_FIRST_BIT - bit) * 8 + eighth);
}

#endif
