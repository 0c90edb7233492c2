// SPDX-License-Identifier: Apache-2.0
/*
 * Reading Python arguments without ever raising: what is missing or nonsense becomes its default.
 *
 * Names are interned once, so that the usual case is a comparison of pointers.
 */
#ifndef HOTSTAGE_MARKS_ARGUMENTS_H
#define HOTSTAGE_MARKS_ARGUMENTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h> /* with Py_LIMITED_API (setup.py): one file for every Python that can load it */

#include "../core.h"

enum argument {
	ARGUMENT_NAME,
	ARGUMENT_MODALITY,
	ARGUMENT_TOKENS,
	ARGUMENT_REQUEST,
	ARGUMENT_RID,
	ARGUMENT_ENDPOINT,
	ARGUMENT_INSTANCE,
	ARGUMENT_MODEL,
	ARGUMENT_TRACEPARENT,
	ARGUMENT_OUTCOME,
	ARGUMENT_OUTPUT_TOKENS,
	ARGUMENT_DIGEST,
	ARGUMENT_LORA_RANK,
	ARGUMENT_LORA_MODULE,
	ARGUMENT_STAGE,
	ARGUMENT_ADDRESS,
	ARGUMENT_DIMS,
	ARGUMENT_DTYPE,
	ARGUMENT_SPANS,
	ARGUMENT_COUNT,
};

struct arguments {
	PyObject *values[ARGUMENT_COUNT]; /* borrowed; NULL when not given or None */
};

/* Fills `out` from a fastcall; positional values take the names in `order`, in that order. Unknown ones are dropped. */
void arguments_read(struct arguments *out, PyObject *const *args, Py_ssize_t count, PyObject *keywords,
		    const enum argument *order, Py_ssize_t order_count);

/* Name or id; a new name becomes one of the server's own; anything else: other. */
uint64_t argument_stage(PyObject *value);
uint64_t argument_stage_with_lora(const struct arguments *given, PyObject *stage); /* and LoRA's bits */
uint32_t argument_dtype(PyObject *value); /* name of a type, or the type itself; unknown: UINT32_MAX */
uint64_t argument_modality(PyObject *value); /* name or id; unknown: unknown */
uint64_t argument_outcome(PyObject *value);  /* name or id; unknown: error; not given: ok */
uint64_t argument_count(PyObject *value);    /* a number >= 0; anything else: 0 */
int argument_is_number(PyObject *value);     /* whether argument_count would look at it */
uint64_t argument_digest(PyObject *value);   /* 16 hex digits, or a number; anything else: 0 */

/* The bytes of a string (or of str(value)); `*owner` is to be released. Nonsense gives "". */
const char *argument_text(PyObject *value, Py_ssize_t *length, PyObject **owner);

void argument_copy(char *field, size_t size, PyObject *value); /* into a zeroed field, bounded */
uint64_t argument_hash(PyObject *value);			      /* of an id; nonsense: 0 */

int arguments_prepare(void); /* interns names and builds the tables; -1 with an exception set */

#endif
