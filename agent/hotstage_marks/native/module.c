// SPDX-License-Identifier: Apache-2.0
/*
 * hotstage_marks._native: the marks as Python objects. Nothing here raises into the server: bad values become
 * defaults, unknown names become `other` or `unknown`; only a failed allocation of the object itself is an error.
 */
#include "arguments.h"
#include "request.h"

#include <structmember.h>

typedef struct {
	PyObject_HEAD
	struct hotstage_scope scope; /* the word, hash and tokens are set when made, the rest when begun */
	int is_thread_stage;
} Scope;

static PyTypeObject ScopeType;

static PyObject *scope_new(PyObject *const *args, Py_ssize_t count, PyObject *keywords, int is_thread_stage)
{
	static const enum argument order[] = {ARGUMENT_NAME, ARGUMENT_MODALITY, ARGUMENT_TOKENS, ARGUMENT_REQUEST};
	struct arguments given;
	Scope *self = PyObject_New(Scope, &ScopeType);

	if (!self)
		return NULL;
	arguments_read(&given, args, count, keywords, order, 4);
	self->is_thread_stage = is_thread_stage;
	self->scope = (struct hotstage_scope){
		.word = HOTSTAGE_WORD(argument_stage(given.values[ARGUMENT_NAME]),
				      argument_modality(given.values[ARGUMENT_MODALITY])),
		.request_hash = request_hash_of(given.values[ARGUMENT_REQUEST]),
		.tokens = argument_count(given.values[ARGUMENT_TOKENS]),
	};
	return (PyObject *)self;
}

static PyObject *scope_begin(PyObject *object, PyObject *Py_UNUSED(ignored))
{
	Scope *self = (Scope *)object;
	struct hotstage_scope *scope = &self->scope;
	uint64_t stage = scope->word & 0xff, modality = scope->word >> 8;

	if (!scope->is_open && self->is_thread_stage)
		hotstage_stage_begin(scope, stage, modality, scope->request_hash, scope->tokens);
	else if (!scope->is_open)
		hotstage_span_begin(scope, stage, modality, scope->request_hash, scope->tokens);
	Py_INCREF(object);
	return object;
}

static void scope_close(Scope *self)
{
	if (self->is_thread_stage)
		hotstage_stage_end(&self->scope);
	else
		hotstage_span_end(&self->scope);
}

static PyObject *scope_exit(PyObject *object, PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(count))
{
	scope_close((Scope *)object);
	Py_RETURN_FALSE;
}

static PyObject *scope_end(PyObject *object, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
	static const enum argument order[] = {ARGUMENT_TOKENS};
	Scope *self = (Scope *)object;
	struct arguments given;

	arguments_read(&given, args, count, keywords, order, 1);
	if (given.values[ARGUMENT_TOKENS])
		self->scope.tokens = argument_count(given.values[ARGUMENT_TOKENS]);
	scope_close(self);
	Py_RETURN_NONE;
}

static PyObject *scope_get_tokens(PyObject *object, void *Py_UNUSED(closure))
{
	return PyLong_FromUnsignedLongLong(((Scope *)object)->scope.tokens);
}

static int scope_set_tokens(PyObject *object, PyObject *value, void *Py_UNUSED(closure))
{
	((Scope *)object)->scope.tokens = argument_count(value);
	return 0;
}

static PyMethodDef scope_methods[] = {
	{"__enter__", scope_begin, METH_NOARGS, "Begin; returns itself."},
	{"__exit__", (PyCFunction)(void (*)(void))scope_exit, METH_FASTCALL, "End."},
	{"begin", scope_begin, METH_NOARGS, "Begin without `with`; returns itself."},
	{"end", (PyCFunction)(void (*)(void))scope_end, METH_FASTCALL | METH_KEYWORDS,
	 "end(tokens=None): end once; later ends do nothing."},
	{NULL, NULL, 0, NULL},
};

static PyGetSetDef scope_getters[] = {
	{"tokens", scope_get_tokens, scope_set_tokens, "Tokens of this stage; may be set until the end.", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject ScopeType = {
	PyVarObject_HEAD_INIT(NULL, 0)
	.tp_name = "hotstage_marks.Scope",
	.tp_doc = "One stage or span, from begin to end; made by stage() or span().",
	.tp_basicsize = sizeof(Scope),
	.tp_flags = Py_TPFLAGS_DEFAULT,
	.tp_dealloc = (destructor)PyObject_Free,
	.tp_methods = scope_methods,
	.tp_getset = scope_getters,
};

static PyObject *marks_stage(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
	return scope_new(args, count, keywords, 1);
}

static PyObject *marks_span(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
	return scope_new(args, count, keywords, 0);
}

/* The words of a span without its object: what two processes need to begin and end the same one. */
static void span_read(struct hotstage_scope *out, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
	static const enum argument order[] = {ARGUMENT_NAME, ARGUMENT_MODALITY, ARGUMENT_TOKENS, ARGUMENT_REQUEST};
	struct arguments given;

	arguments_read(&given, args, count, keywords, order, 4);
	out->word = HOTSTAGE_WORD(argument_stage(given.values[ARGUMENT_NAME]),
				  argument_modality(given.values[ARGUMENT_MODALITY]));
	out->request_hash = request_hash_of(given.values[ARGUMENT_REQUEST]);
	out->tokens = argument_count(given.values[ARGUMENT_TOKENS]);
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
	if (id)
		hotstage_request_end(request_hash_of(id), argument_outcome(given.values[ARGUMENT_OUTCOME]),
				     argument_count(given.values[ARGUMENT_OUTPUT_TOKENS]));
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
		copy = malloc((size_t)view.len);
		if (!copy || PyBuffer_ToContiguous(copy, &view, view.len, 'C') < 0) {
			PyBuffer_Release(&view);
			free(copy);
			return 0;
		}
	}
	Py_BEGIN_ALLOW_THREADS /* an image takes a millisecond */
	digest = hotstage_digest(copy ? copy : view.buf, (uint64_t)view.len, seed);
	Py_END_ALLOW_THREADS
	free(copy);
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
	if (arguments_prepare() < 0 || request_prepare(module) < 0 || PyType_Ready(&ScopeType) < 0)
		goto failed;
	Py_INCREF(&ScopeType);
	if (PyModule_AddObject(module, "Scope", (PyObject *)&ScopeType) < 0)
		goto failed;
	return module;
failed:
	Py_DECREF(module);
	return NULL;
}
