// SPDX-License-Identifier: Apache-2.0
#include "vectors.h"
#include "request.h"

#define MAX_KEPT 1024 /* vectors of requests that were named by their ids */

static PyObject *kept; /* request_hash -> vector, oldest first */

struct vector {
	const void *data;
	uint64_t dims;
	uint32_t dtype;
};

/* In the order of enum hotstage_dtype; the buffer protocol has no bfloat16. */
static uint32_t dtype_of_format(const char *format)
{
	static const char codes[] = {'f', 'e', '\0', 'd'};

	format += format && (*format == '@' || *format == '=' || *format == '<');
	for (uint32_t i = 0; format && *format && i < sizeof(codes); i++)
		if (*format == codes[i] && !format[1])
			return i;
	return UINT32_MAX;
}

/*
 * Where the numbers lie. The buffer is given back at once, so that the server can still resize what it belongs to; what
 * is kept is the object.
 */
static struct vector vector_of_buffer(PyObject *object)
{
	struct vector found = {NULL, 0, UINT32_MAX};
	Py_buffer view;
	uint64_t rows = 1;

	if (!object || PyObject_GetBuffer(object, &view, PyBUF_FORMAT | PyBUF_STRIDES) < 0)
		return found;
	for (int i = 0; i < view.ndim - 1; i++)
		rows *= (uint64_t)view.shape[i];
	if (view.ndim > 0 && rows == 1 && PyBuffer_IsContiguous(&view, 'C')) {
		found.data = view.buf;
		found.dims = (uint64_t)view.shape[view.ndim - 1];
		found.dtype = dtype_of_format(view.format);
	}
	PyBuffer_Release(&view);
	return found;
}

static struct vector vector_of(const struct arguments *given)
{
	PyObject *number = given->values[ARGUMENT_ADDRESS];
	struct vector found;

	if (!number)
		return vector_of_buffer(given->values[ARGUMENT_NAME]);
	found = (struct vector){
		.data = (const void *)(uintptr_t)argument_count(number),
		.dims = argument_count(given->values[ARGUMENT_DIMS]),
		.dtype = argument_dtype(given->values[ARGUMENT_DTYPE]),
	};
	return found;
}

void vectors_let_go(uint64_t request_hash)
{
	PyObject *key;

	if (!kept || !PyDict_Size(kept))
		return;
	key = PyLong_FromUnsignedLongLong(request_hash);
	if (!key || PyDict_DelItem(kept, key) < 0)
		PyErr_Clear(); /* it had none */
	Py_XDECREF(key);
}

/* The oldest goes, and the watcher hears that its memory is nobody's any more. */
static void drop_oldest(void)
{
	PyObject *key, *vector;
	Py_ssize_t position = 0;
	uint64_t hash;

	if (PyDict_Size(kept) < MAX_KEPT || !PyDict_Next(kept, &position, &key, &vector))
		return;
	hash = PyLong_AsUnsignedLongLong(key);
	hotstage_embedding(hash, HOTSTAGE_STAGE_OTHER, HOTSTAGE_MODALITY_UNKNOWN, NULL, 0, 0);
	vectors_let_go(hash);
}

static void keep_by_hash(uint64_t request_hash, PyObject *vector)
{
	PyObject *key = PyLong_FromUnsignedLongLong(request_hash);

	if (!kept)
		kept = PyDict_New();
	vectors_let_go(request_hash);
	if (kept && key && vector) {
		drop_oldest();
		PyDict_SetItem(kept, key, vector);
	}
	Py_XDECREF(key);
	if (PyErr_Occurred())
		PyErr_Clear();
}

PyObject *marks_embedding(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
	static const enum argument order[] = {ARGUMENT_NAME};
	struct arguments given;
	struct vector vector;
	uint64_t hash;

	if (!hotstage_is_watched())
		Py_RETURN_FALSE;
	arguments_read(&given, args, count, keywords, order, 1);
	vector = vector_of(&given);
	if (PyErr_Occurred())
		PyErr_Clear();
	hash = request_hash_of(given.values[ARGUMENT_REQUEST]);
	if (vector.dims > UINT32_MAX || !vector.dims)
		vector = (struct vector){NULL, 1, UINT32_MAX}; /* for the library to refuse */
	if (!hotstage_embedding(hash, argument_stage(given.values[ARGUMENT_STAGE]),
				argument_modality(given.values[ARGUMENT_MODALITY]), vector.data,
				(uint32_t)vector.dims, vector.dtype))
		Py_RETURN_FALSE;
	if (!request_keep_vector(given.values[ARGUMENT_REQUEST], given.values[ARGUMENT_NAME]))
		keep_by_hash(hash, given.values[ARGUMENT_NAME]);
	Py_RETURN_TRUE;
}
