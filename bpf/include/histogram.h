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

static __always_inline __u32 histogram_slot_of(__u64 duration_ns)
{
	__u64 value;
	__u32 bit = 0, eighth;

	if (duration_ns >= HOTSTAGE_LAST_NS)
		return HOTSTAGE_HISTOGRAM_SLOTS - 1;
	value = duration_ns * HOTSTAGE_UNITS_PER_NS;
	if (value < 1ULL << HOTSTAGE_FIRST_BIT)
		return 0;
	if (value >= 1ULL << 58)
		return HOTSTAGE_HISTOGRAM_SLOTS - 1;

	/* The highest bit comes to bit 63, `bit` counts the shifts. */
	if (!(value >> 32)) {
		value <<= 32;
		bit += 32;
	}
	if (!(value >> 48)) {
		value <<= 16;
		bit += 16;
	}
	if (!(value >> 56)) {
		value <<= 8;
		bit += 8;
	}
	if (!(value >> 60)) {
		value <<= 4;
		bit += 4;
	}
	if (!(value >> 62)) {
		value <<= 2;
		bit += 2;
	}
	if (!(value >> 63)) {
		value <<= 1;
		bit += 1;
	}

	if (value < HOTSTAGE_EIGHTH_4)
		eighth = value < HOTSTAGE_EIGHTH_2 ? value >= HOTSTAGE_EIGHTH_1
						   : 2 + (value >= HOTSTAGE_EIGHTH_3);
	else
		eighth = value < HOTSTAGE_EIGHTH_6 ? 4 + (value >= HOTSTAGE_EIGHTH_5)
						   : 6 + (value >= HOTSTAGE_EIGHTH_7);
	return 1 + (63 - HOTSTAGE_FIRST_BIT - bit) * 8 + eighth;
}

#endif
