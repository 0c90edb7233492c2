// SPDX-License-Identifier: Apache-2.0
/* The Python objects of one stage or span, and of one batch. */
#ifndef HOTSTAGE_MARKS_SCOPE_H
#define HOTSTAGE_MARKS_SCOPE_H

#include "arguments.h"

PyObject *scope_new(PyObject *const *args, Py_ssize_t count, PyObject *keywords, int is_thread_stage);

/* A span without its object: what two processes need to begin and end the same one. Its request_hash may be 0. */
void span_read(struct hotstage_scope *out, PyObject *const *args, Py_ssize_t count, PyObject *keywords);

PyObject *batch_new(PyObject *const *args, Py_ssize_t count, PyObject *keywords);

int scope_prepare(PyObject *module);
int batch_prepare(PyObject *module);

/* A type of these slots under its own name in the module, that Python code cannot make objects of; NULL: an error. */
PyTypeObject *type_prepare(PyObject *module, const char *name, PyType_Spec *spec);
PyObject *type_makes_none(PyTypeObject *type, PyObject *args, PyObject *keywords); /* for Py_tp_new */

#endif
