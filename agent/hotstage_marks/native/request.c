// SPDX-License-Identifier: Apache-2.0
#include "request.h"

#include <structmember.h>

typedef struct {
	PyObject_HEAD
	struct hotstage_request record;
	PyObject *id;		/* as it was given: the record's copy is bounded */
	PyObject *token;	/* of the context variable, between __enter__ and __exit__ */
	uint64_t output_tokens; /* what marks.tokens said last */
	int is_open;
} Request;

static PyTypeObject RequestType;
static PyObject *current; /* ContextVar */

static void copy_text(char *field, size_t size, PyObject *value)
{
	PyObject *owner;
	Py_ssize_t length;
	const char *bytes = argument_text(value, &length, &owner);

	hotstage_copy(field, size, bytes, (size_t)length);
	Py_XDECREF(owner);
}

static uint64_t hash_text(PyObject *value)
{
	PyObject *owner;
	Py_ssize_t length;
	const char *bytes = argument_text(value, &length, &owner);
	uint64_t hash = hotstage_hash(bytes, (size_t)length);

	Py_XDECREF(owner);
	return hash;
}

PyObject *request_new(const struct arguments *given)
{
	Request *self = (Request *)PyType_GenericAlloc(&RequestType, 0);
	PyObject *id = given->values[ARGUMENT_RID];

	if (!self)
		return NULL;
	self->id = id ? id : Py_None;
	Py_INCREF(self->id);
	self->record.version = 1;
	self->record.size = sizeof(self->record);
	self->record.request_hash = hash_text(id);
	copy_text(self->record.id, sizeof(self->record.id), id);
	copy_text(self->record.endpoint, sizeof(self->record.endpoint), given->values[ARGUMENT_ENDPOINT]);
	copy_text(self->record.instance, sizeof(self->record.instance), given->values[ARGUMENT_INSTANCE]);
	copy_text(self->record.model, sizeof(self->record.model), given->values[ARGUMENT_MODEL]);
	copy_text(self->record.traceparent, sizeof(self->record.traceparent), given->values[ARGUMENT_TRACEPARENT]);
	self->record.input_digest = argument_digest(given->values[ARGUMENT_DIGEST]);
	return (PyObject *)self;
}

void request_fire_begin(PyObject *request)
{
	Request *self = (Request *)request;

	if (self->is_open || !self->record.request_hash)
		return;
	self->is_open = 1;
	hotstage_mark_request_begin(&self->record, self->record.request_hash);
}

static void fire_end(Request *self, uint64_t outcome, uint64_t output_tokens)
{
	if (!self->is_open)
		return;
	self->is_open = 0;
	hotstage_mark_request_end(self->record.request_hash, outcome, output_tokens);
}

PyObject *request_current(void)
{
	PyObject *value = NULL;

	if (PyContextVar_Get(current, Py_None, &value) < 0) {
		PyErr_Clear();
		value = Py_None;
		Py_INCREF(value);
	}
	return value;
}

uint64_t request_hash_of(PyObject *request)
{
	uint64_t hash = 0;

	if (request && !Py_IS_TYPE(request, &RequestType))
		return hash_text(request);
	if (request)
		return ((Request *)request)->record.request_hash;
	request = request_current();
	if (Py_IS_TYPE(request, &RequestType))
		hash = ((Request *)request)->record.request_hash;
	Py_DECREF(request);
	return hash;
}

void request_note_tokens(PyObject *request, uint64_t tokens)
{
	PyObject *held = request ? (Py_INCREF(request), request) : request_current();

	if (Py_IS_TYPE(held, &RequestType))
		((Request *)held)->output_tokens = tokens;
	Py_DECREF(held);
}

PyObject *digest_text(uint64_t digest)
{
	char text[17] = "";

	if (digest)
		snprintf(text, sizeof(text), "%016llx", (unsigned long long)digest);
	return PyUnicode_FromString(text);
}

static PyObject *request_begin(PyObject *self, PyObject *Py_UNUSED(ignored))
{
	request_fire_begin(self);
	Py_INCREF(self);
	return self;
}

static PyObject *request_enter(PyObject *object, PyObject *Py_UNUSED(ignored))
{
	Request *self = (Request *)object;

	request_fire_begin(object);
	Py_XSETREF(self->token, PyContextVar_Set(current, object));
	if (!self->token)
		PyErr_Clear();
	Py_INCREF(object);
	return object;
}

/* By name, so that asyncio need not be imported: asyncio's, concurrent.futures' and anyio's all end alike. */
static uint64_t outcome_of_exception(PyObject *type)
{
	const char *name = PyType_Check(type) ? strrchr(((PyTypeObject *)type)->tp_name, '.') : NULL;

	name = name ? name + 1 : PyType_Check(type) ? ((PyTypeObject *)type)->tp_name : "";
	if (!strcmp(name, "CancelledError") || !strcmp(name, "GeneratorExit") || !strcmp(name, "KeyboardInterrupt"))
		return HOTSTAGE_OUTCOME_CANCELLED;
	return HOTSTAGE_OUTCOME_ERROR;
}

static PyObject *request_exit(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
	Request *self = (Request *)object;
	int failed = count > 0 && args[0] != Py_None;

	fire_end(self, failed ? outcome_of_exception(args[0]) : HOTSTAGE_OUTCOME_OK, self->output_tokens);
	if (self->token && PyContextVar_Reset(current, self->token) < 0)
		PyErr_Clear(); /* left in another context than it was entered in: nothing to restore there */
	Py_CLEAR(self->token);
	Py_RETURN_FALSE;
}

static PyObject *request_end(PyObject *object, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
	static const enum argument order[] = {ARGUMENT_OUTCOME, ARGUMENT_OUTPUT_TOKENS};
	Request *self = (Request *)object;
	struct arguments given;
	PyObject *tokens;

	arguments_read(&given, args, count, keywords, order, 2);
	tokens = given.values[ARGUMENT_OUTPUT_TOKENS];
	fire_end(self, argument_outcome(given.values[ARGUMENT_OUTCOME]),
		 tokens ? argument_count(tokens) : self->output_tokens);
	Py_RETURN_NONE;
}

static PyObject *request_tokens(PyObject *object, PyObject *value)
{
	Request *self = (Request *)object;

	self->output_tokens = argument_count(value);
	hotstage_tokens(self->record.request_hash, self->output_tokens);
	Py_RETURN_NONE;
}

static PyObject *request_get_hash(PyObject *object, void *Py_UNUSED(closure))
{
	return PyLong_FromUnsignedLongLong(((Request *)object)->record.request_hash);
}

static PyObject *request_get_digest(PyObject *object, void *Py_UNUSED(closure))
{
	return digest_text(((Request *)object)->record.input_digest);
}

static int request_traverse(PyObject *object, visitproc visit, void *arg)
{
	Py_VISIT(((Request *)object)->id);
	Py_VISIT(((Request *)object)->token);
	return 0;
}

static int request_clear(PyObject *object)
{
	Py_CLEAR(((Request *)object)->id);
	Py_CLEAR(((Request *)object)->token);
	return 0;
}

static void request_dealloc(PyObject *object)
{
	PyObject_GC_UnTrack(object);
	request_clear(object);
	Py_TYPE(object)->tp_free(object);
}

static PyMethodDef request_methods[] = {
	{"__enter__", request_enter, METH_NOARGS, "Begin, and be the current request of this context."},
	{"__exit__", (PyCFunction)(void (*)(void))request_exit, METH_FASTCALL, "End: ok, error or cancelled."},
	{"begin", request_begin, METH_NOARGS, "Begin without becoming the current request; returns itself."},
	{"end", (PyCFunction)(void (*)(void))request_end, METH_FASTCALL | METH_KEYWORDS,
	 "end(outcome='ok', output_tokens=None): end once; later ends do nothing."},
	{"tokens", request_tokens, METH_O, "tokens(count): output tokens so far."},
	{NULL, NULL, 0, NULL},
};

static PyMemberDef request_members[] = {
	{"id", T_OBJECT, offsetof(Request, id), READONLY, "The id as it was given."},
	{NULL, 0, 0, 0, NULL},
};

static PyGetSetDef request_getters[] = {
	{"digest", request_get_digest, NULL, "Digest of the input: 16 hex digits, '' for none.", NULL},
	{"hash", request_get_hash, NULL, "FNV-1a 64 of the id: how every mark names the request; 0: none.", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject RequestType = {
	PyVarObject_HEAD_INIT(NULL, 0)
	.tp_name = "hotstage_marks.Request",
	.tp_doc = "One inference request; made by request() or request_begin().",
	.tp_basicsize = sizeof(Request),
	.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
	.tp_dealloc = request_dealloc,
	.tp_traverse = request_traverse,
	.tp_clear = request_clear,
	.tp_free = PyObject_GC_Del,
	.tp_methods = request_methods,
	.tp_members = request_members,
	.tp_getset = request_getters,
};

int request_prepare(PyObject *module)
{
	current = PyContextVar_New("hotstage_marks.current_request", NULL);
	if (!current || PyType_Ready(&RequestType) < 0)
		return -1;
	Py_INCREF(&RequestType);
	return PyModule_AddObject(module, "Request", (PyObject *)&RequestType);
}
