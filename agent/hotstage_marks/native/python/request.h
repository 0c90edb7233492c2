// SPDX-License-Identifier: Apache-2.0
/* The Python object of one request, and the context variable that holds the current one. */
#ifndef HOTSTAGE_MARKS_REQUEST_H
#define HOTSTAGE_MARKS_REQUEST_H

#include "arguments.h"

/* The hash that a stage, span or count belongs to: a Request, an id, or (NULL) the current request; 0: none. */
uint64_t request_hash_of(PyObject *request);

/* `request` as for request_hash_of; a Request also remembers the count for its end. */
void request_note_tokens(PyObject *request, uint64_t tokens);

/* `request` as above; keeps what its embedding lies in until its end or the next one. 0: it is no open Request. */
int request_keep_vector(PyObject *request, PyObject *vector);

PyObject *request_new(const struct arguments *given); /* NULL only without memory */
void request_fire_begin(PyObject *request);
PyObject *digest_text(uint64_t digest); /* 16 hex digits, "" for 0 */
PyObject *request_current(void); /* new reference; None when there is none */

int request_prepare(PyObject *module);

#endif
