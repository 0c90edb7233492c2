// SPDX-License-Identifier: Apache-2.0
#include "request.h"
#include "scope.h"

#include <stdio.h>

typedef struct {
	PyObject_HEAD
	struct hotstage_request record;
	PyObject *id;		/* as it was given: the record's copy is bounded */
	PyObject *token;	/* of the context variable, between __enter__ and __exit__ */
	PyObject *vector;	/* its embedding lies in there */
	uint64_t output_tokens; /* what marks.tokens said last */
	int is_open;
} Request;

static PyTypeObject *request_type;
static PyObject *get_current, *set_current, *reset_current; /* of the context variable */

static int is_request(PyObject *value)
{
	return Py_TYPE(value) == request_type;
}

PyObject *request_new(const struct arguments *given)
{
	Request *self = (Request *)PyType_GenericAlloc(request_type, 0);
	PyObject *id = given->values[ARGUMENT_RID];

	if (!self)
		return NULL;
	self->id = id ? id : Py_None;
	Py_INCREF(self->id);
	self->record.version = 1;
	self->record.size = sizeof(self->record);
	self->record.request_hash = argument_hash(id);
	argument_copy(self->record.id, sizeof(self->record.id), id);
	argument_copy(self->record.endpoint, sizeof(self->record.endpoint), given->values[ARGUMENT_ENDPOINT]);
	argument_copy(self->record.instance, sizeof(self->record.instance), given->values[ARGUMENT_INSTANCE]);
	argument_copy(self->record.model, sizeof(self->record.model), given->values[ARGUMENT_MODEL]);
	argument_copy(self->record.traceparent, sizeof(self->record.traceparent), given->values[ARGUMENT_TRACEPARENT]);
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
	Py_CLEAR(self->vector);
}

PyObject *request_current(void)
{
	PyObject *value = PyObject_CallNoArgs(get_current);

	if (!value) {
		PyErr_Clear();
		value = Py_None;
		Py_INCREF(value);
	}
	return value;
}

uint64_t request_hash_of(PyObject *request)
{
	uint64_t hash = 0;

	if (request && !is_request(request))
		return argument_hash(request);
	if (request)
		return ((Request *)request)->record.request_hash;
	request = request_current();
	if (is_request(request))
		hash = ((Request *)request)->record.request_hash;
	Py_DECREF(request);
	return hash;
}

void request_note_tokens(PyObject *request, uint64_t tokens)
{
	PyObject *held = request ? (Py_INCREF(request), request) : request_current();

	if (is_request(held))
		((Request *)held)->output_tokens = tokens;
	Py_DECREF(held);
}

int request_keep_vector(PyObject *request, PyObject *vector)
{
	PyObject *held = request ? (Py_INCREF(request), request) : request_current(), *before;
	int is_kept = is_request(held) && ((Request *)held)->is_open;

	if (is_kept) {
		before = ((Request *)held)->vector;
		Py_XINCREF(vector);
		((Request *)held)->vector = vector;
		Py_XDECREF(before);
	}
	Py_DECREF(held);
	return is_kept;
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
	Py_CLEAR(self->token);
	self->token = PyObject_CallFunctionObjArgs(set_current, object, NULL);
	if (!self->token)
		PyErr_Clear();
	Py_INCREF(object);
	return object;
}

/* By name, so that asyncio need not be imported: asyncio's, concurrent.futures' and anyio's all end alike. */
static uint64_t outcome_of_exception(PyObject *type)
{
	static const char *const cancelled[] = {"CancelledError", "GeneratorExit", "KeyboardInterrupt"};
	PyObject *name = PyObject_GetAttrString(type, "__name__");
	uint64_t outcome = HOTSTAGE_OUTCOME_ERROR;

	for (size_t i = 0; name && PyUnicode_Check(name) && i < sizeof(cancelled) / sizeof(*cancelled); i++)
		if (PyUnicode_CompareWithASCIIString(name, cancelled[i]) == 0)
			outcome = HOTSTAGE_OUTCOME_CANCELLED;
	Py_XDECREF(name);
	if (PyErr_Occurred())
		PyErr_Clear();
	return outcome;
}

static PyObject *request_exit(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
	Request *self = (Request *)object;
	int failed = count > 0 && args[0] != Py_None;

	fire_end(self, failed ? outcome_of_exception(args[0]) : HOTSTAGE_OUTCOME_OK, self->output_tokens);
	if (self->token) {
		PyObject *done = PyObject_CallFunctionObjArgs(reset_current, self->token, NULL);

		if (!done)
			PyErr_Clear(); /* left in another context than it was entered in: nothing to restore there */
		Py_XDECREF(done);
	}
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

static PyObject *request_get_id(PyObject *object, void *Py_UNUSED(closure))
{
	PyObject *id = ((Request *)object)->id ? ((Request *)object)->id : Py_None;

	Py_INCREF(id);
	return id;
}

static PyObject *request_get_digest(PyObject *object, void *Py_UNUSED(closure))
{
	return digest_text(((Request *)object)->record.input_digest);
}

static int request_traverse(PyObject *object, visitproc visit, void *arg)
{
	Py_VISIT(Py_TYPE(object));
	Py_VISIT(((Request *)object)->id);
	Py_VISIT(((Request *)object)->token);
	Py_VISIT(((Request *)object)->vector);
	return 0;
}

static int request_clear(PyObject *object)
{
	Request *self = (Request *)object;

	if (self->vector) /* it was never ended: the watcher hears that the memory is nobody's any more */
		hotstage_embedding(self->record.request_hash, HOTSTAGE_STAGE_OTHER, HOTSTAGE_MODALITY_UNKNOWN, NULL, 0,
				   0);
	Py_CLEAR(self->id);
	Py_CLEAR(self->vector);
	Py_CLEAR(self->token);
	return 0;
}

static void request_dealloc(PyObject *object)
{
	PyTypeObject *type = Py_TYPE(object);

	PyObject_GC_UnTrack(object);
	request_clear(object);
	PyObject_GC_Del(object);
	Py_DECREF(type);
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

static PyGetSetDef request_getters[] = {
	{"id", request_get_id, NULL, "The id as it was given.", NULL},
	{"digest", request_get_digest, NULL, "Digest of the input: 16 hex digits, '' for none.", NULL},
	{"hash", request_get_hash, NULL, "FNV-1a 64 of the id: how every mark names the request; 0: none.", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot request_slots[] = {
	{Py_tp_doc, "One inference request; made by request() or request_begin()."},
	{Py_tp_new, type_makes_none},
	{Py_tp_dealloc, request_dealloc},
	{Py_tp_traverse, request_traverse},
	{Py_tp_clear, request_clear},
	{Py_tp_methods, request_methods},
	{Py_tp_getset, request_getters},
	{0, NULL},
};

static PyType_Spec request_spec = {
	.name = "hotstage_marks.Request",
	.basicsize = sizeof(Request),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
	.slots = request_slots,
};

/* By its methods: the stable interface of Python has no functions for context variables. */
static int prepare_current(void)
{
	PyObject *contextvars = PyImport_ImportModule("contextvars");
	PyObject *class = contextvars ? PyObject_GetAttrString(contextvars, "ContextVar") : NULL;
	PyObject *arguments = Py_BuildValue("(s)", "hotstage_marks.current_request");
	PyObject *none = Py_BuildValue("{s:O}", "default", Py_None);
	PyObject *current = class && arguments && none ? PyObject_Call(class, arguments, none) : NULL;

	if (current) {
		get_current = PyObject_GetAttrString(current, "get");
		set_current = PyObject_GetAttrString(current, "set");
		reset_current = PyObject_GetAttrString(current, "reset");
	}
	Py_XDECREF(contextvars);
	Py_XDECREF(class);
	Py_XDECREF(arguments);
	Py_XDECREF(none);
	Py_XDECREF(current);
	return get_current && set_current && reset_current ? 0 : -1;
}

int request_prepare(PyObject *module)
{
	request_type = type_prepare(module, "Request", &request_spec);
	return request_type ? prepare_current() : -1;
}
