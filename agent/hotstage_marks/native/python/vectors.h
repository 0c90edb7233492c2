// SPDX-License-Identifier: Apache-2.0
/* Embeddings from Python: where the vector lies, and who keeps it alive. */
#ifndef HOTSTAGE_MARKS_VECTORS_H
#define HOTSTAGE_MARKS_VECTORS_H

#include "arguments.h"

PyObject *marks_embedding(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords);

/* The vector that was kept for a request that was named by its id. */
void vectors_let_go(uint64_t request_hash);

#endif
