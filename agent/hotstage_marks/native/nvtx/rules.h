// SPDX-License-Identifier: Apache-2.0
/* The table of rules: what a range's name says about its stage. */
#ifndef HOTSTAGE_NVTX_RULES_H
#define HOTSTAGE_NVTX_RULES_H

#include <stdint.h>

#define MAX_RULES 256
#define MAX_TEXT 256 /* bytes of a name that are looked at */

enum rule_action {
	RULE_NOTHING = 0,
	RULE_STAGE = 1,
	RULE_REQUEST = 2,
};

/* action 8 | stage 8 | modality 8 | offset of the request's id in the name 8 (0: the name has none) */
typedef uint32_t decision;

#define DECISION(action, stage, modality, id_offset)                                                                   \
	((decision)(action) | (decision)(stage) << 8 | (decision)(modality) << 16 | (decision)(id_offset) << 24)
#define DECISION_ACTION(it) ((it)&0xff)
#define DECISION_STAGE(it) ((it) >> 8 & 0xff)
#define DECISION_MODALITY(it) ((it) >> 16 & 0xff)
#define DECISION_ID_OFFSET(it) ((it) >> 24)

/* Which rules hold in a domain, a bit each. */
struct rule_set {
	uint64_t bits[MAX_RULES / 64];
	uint32_t is_ignored; /* nothing in this domain is ever a stage */
};

/* Reads HOTSTAGE_NVTX_RULES' file, then the shipped table; says on stderr which lines of the file it cannot use. */
void rules_load(void);

/* The rules of a domain by its name; "" is the domain without a name. */
void rules_of_domain(struct rule_set *set, const char *domain);

/*
 * The first rule of the set that fits. `text` is in lower case, `length` <= MAX_TEXT; a name that was cut there fits
 * no rule about its end.
 */
decision rules_decide(const struct rule_set *set, const char *text, uint32_t length, int is_cut);

const char *rules_stage_name(decision result);
const char *rules_modality_name(decision result);

/* Whether no rule tells numbers other than 0 apart, so that "step 17" and "step 18" may share an answer. */
int rules_fold_numbers(void);

#endif
