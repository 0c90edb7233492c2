// SPDX-License-Identifier: Apache-2.0
/*
 * hotstage_marks._native: the marks as Python objects. Nothing here raises into the server: bad values become
 * defaults, unknown names become `other` or `unknown`; only a failed allocation of the object itself is an error.
 */
#include "arguments.h"
#include "request.h"
#include "scope.h"
#include "vectors.h"

static PyObject *marks_stage(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
	return scope_new(args, count, keywords, 1);
}

static PyObject *marks_span(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
	return scope_new(args, count, keywords, 0);
}

static PyObject *marks_span_begin(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count,
				  PyObject *keywords)
{
	struct hotstage_scope span;

	span_read(&span, args, count, keywords);
	if (span.request_hash)
		hotstage_mark_span_begin(span.word, span.request_hash, span.tokens);
	Py_RETURN_NONE;
}

static PyObject *marks_span_end(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count,
				PyObject *keywords)
{
	struct hotstage_scope span;

	span_read(&span, args, count, keywords);
	if (span.request_hash)
		hotstage_mark_span_end(span.word, span.request_hash, span.tokens);
	Py_RETURN_NONE;
}

static PyObject *marks_batch(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
	return batch_new(args, count, keywords);
}

static PyObject *marks_define_stage(PyObject *Py_UNUSED(module), PyObject *name)
{
	return PyLong_FromUnsignedLongLong(argument_stage(name));
}

/* What the server has made up, and what was left out. */
static PyObject *marks_statistics(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
	static const char *const names[HOTSTAGE_COUNTS] = {
		"stages_refused", "batches_nested",    "batches_broken",
		"members_cut",	  "members_malformed", "embeddings_refused",
	};
	PyObject *stages = PyDict_New(), *all = stages ? Py_BuildValue("{s:N}", "stages", stages) : NULL;

	for (uint64_t id = HOTSTAGE_STAGE_FIRST_OWN; all && hotstage_stage_name(id); id++) {
		PyObject *number = PyLong_FromUnsignedLongLong(id);

		if (!number || PyDict_SetItemString(stages, hotstage_stage_name(id), number) < 0)
			Py_CLEAR(all);
		Py_XDECREF(number);
	}
	for (uint64_t i = 0; all && i < HOTSTAGE_COUNTS; i++) {
		PyObject *count = PyLong_FromUnsignedLongLong(hotstage_statistic(i));

		if (!count || PyDict_SetItemString(all, names[i], count) < 0)
			Py_CLEAR(all);
		Py_XDECREF(count);
	}
	return all;
}

static PyObject *marks_request(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count,
			       PyObject *keywords)
{
	static const enum argument order[] = {ARGUMENT_RID};
	struct arguments given;

	arguments_read(&given, args, count, keywords, order, 1);
	return request_new(&given);
}

static PyObject *marks_request_begin(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
	PyObject *request = marks_request(module, args, count, keywords);

	if (request)
		request_fire_begin(request);
	return request;
}

static PyObject *marks_request_end(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count,
				   PyObject *keywords)
{
	static const enum argument order[] = {ARGUMENT_RID, ARGUMENT_OUTCOME, ARGUMENT_OUTPUT_TOKENS};
	struct arguments given;
	PyObject *id;

	arguments_read(&given, args, count, keywords, order, 3);
	id = given.values[ARGUMENT_RID];
	if (id) {
		uint64_t hash = request_hash_of(id);

		hotstage_request_end(hash, argument_outcome(given.values[ARGUMENT_OUTCOME]),
				     argument_count(given.values[ARGUMENT_OUTPUT_TOKENS]));
		vectors_let_go(hash);
	}
	Py_RETURN_NONE;
}

static PyObject *marks_tokens(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count,
			      PyObject *keywords)
{
	static const enum argument order[] = {ARGUMENT_TOKENS, ARGUMENT_REQUEST};
	struct arguments given;
	uint64_t tokens;

	arguments_read(&given, args, count, keywords, order, 2);
	tokens = argument_count(given.values[ARGUMENT_TOKENS]);
	request_note_tokens(given.values[ARGUMENT_REQUEST], tokens);
	hotstage_tokens(request_hash_of(given.values[ARGUMENT_REQUEST]), tokens);
	Py_RETURN_NONE;
}

/* Of anything with bytes: an array's shape and type count as well, a string is its UTF-8; 0: it has none. */
static uint64_t digest_of(PyObject *input, uint64_t seed)
{
	Py_buffer view;
	uint64_t digest;
	char *copy = NULL;

	if (PyUnicode_Check(input)) {
		Py_ssize_t length;
		const char *text = PyUnicode_AsUTF8AndSize(input, &length);

		return text ? hotstage_digest(text, (uint64_t)length, seed) : 0;
	}
	if (PyObject_GetBuffer(input, &view, PyBUF_FULL_RO) < 0)
		return 0;
	if (view.ndim > 1 || view.itemsize != 1) {
		seed = view.ndim ? hotstage_digest(view.shape, (uint64_t)view.ndim * sizeof(*view.shape), seed) : seed;
		seed = view.format ? hotstage_digest(view.format, strlen(view.format), seed) : seed;
	}
	if (!PyBuffer_IsContiguous(&view, 'C')) {
		copy = PyMem_Malloc((size_t)view.len);
		if (!copy || PyBuffer_ToContiguous(copy, &view, view.len, 'C') < 0) {
			PyBuffer_Release(&view);
			PyMem_Free(copy);
			return 0;
		}
	}
	Py_BEGIN_ALLOW_THREADS /* an image takes a millisecond */
	digest = hotstage_digest(copy ? copy : view.buf, (uint64_t)view.len, seed);
	Py_END_ALLOW_THREADS
	PyMem_Free(copy);
	PyBuffer_Release(&view);
	return digest;
}

static PyObject *marks_digest(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
	uint64_t digest = 0;

	for (Py_ssize_t i = 0; i < count; i++) {
		digest = digest_of(args[i], digest);
		if (!digest) {
			PyErr_Clear();
			break;
		}
	}
	return digest_text(digest);
}

static PyObject *marks_is_watched(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
	return PyBool_FromLong(hotstage_is_watched());
}

static PyObject *marks_current_request(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
	return request_current();
}

static PyObject *marks_request_hash(PyObject *Py_UNUSED(module), PyObject *id)
{
	return PyLong_FromUnsignedLongLong(id == Py_None ? 0 : request_hash_of(id));
}

#define FAST(function) (PyCFunction)(void (*)(void))(function), METH_FASTCALL | METH_KEYWORDS

static PyMethodDef functions[] = {
	{"stage", FAST(marks_stage), "stage(name, *, modality='unknown', tokens=0, request=None) -> Scope"},
	{"span", FAST(marks_span), "span(name, *, modality='unknown', tokens=0, request=None) -> Scope"},
	{"span_begin", FAST(marks_span_begin), "span_begin(name, *, modality='unknown', tokens=0, request=None)"},
	{"span_end", FAST(marks_span_end), "span_end(name, *, modality='unknown', tokens=0, request=None)"},
	{"request", FAST(marks_request),
	 "request(rid, *, endpoint='', instance='', model='', traceparent='', digest='') -> Request"},
	{"request_begin", FAST(marks_request_begin), "request_begin(rid, ...) -> Request, begun"},
	{"request_end", FAST(marks_request_end), "request_end(rid, *, outcome='ok', output_tokens=0)"},
	{"tokens", FAST(marks_tokens), "tokens(count, *, request=None): output tokens so far"},
	{"batch", FAST(marks_batch), "batch(members, *, modality='mixed', spans=True) -> Batch"},
	{"define_stage", marks_define_stage, METH_O, "define_stage(name) -> the id of the stage of that name."},
	{"statistics", marks_statistics, METH_NOARGS, "The stages that were made up, and counts of what was left out."},
	{"embedding", FAST(marks_embedding),
	 "embedding(vector=None, *, stage='other', modality='unknown', request=None, address=None, dims=0, dtype=None)"
	 " -> whether it was told"},
	{"digest", (PyCFunction)(void (*)(void))marks_digest, METH_FASTCALL,
	 "digest(*inputs) -> 16 hex digits of the bytes, '' if there are none to be had."},
	{"is_watched", marks_is_watched, METH_NOARGS, "Whether anybody listens at this moment."},
	{"current_request", marks_current_request, METH_NOARGS, "The current context's Request, or None."},
	{"request_hash", marks_request_hash, METH_O, "How marks name this request: FNV-1a 64 of its id."},
	{NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT,
	.m_name = "hotstage_marks._native",
	.m_doc = "Stages and requests, told to whoever watches.",
	.m_size = -1,
	.m_methods = functions,
};

PyMODINIT_FUNC PyInit__native(void)
{
	PyObject *module = PyModule_Create(&definition);

	if (!module)
		return NULL;
	if (arguments_prepare() < 0 || request_prepare(module) < 0 || scope_prepare(module) < 0 ||
	    batch_prepare(module) < 0)
		goto failed;
	return module;
failed:
	Py_DECREF(module);
	return NULL;
}
