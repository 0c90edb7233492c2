// SPDX-License-Identifier: Apache-2.0
#include "scope.h"
#include "request.h"

typedef struct {
	PyObject_HEAD
	struct hotstage_scope scope; /* the hash and tokens are set when made, the rest when begun */
	uint64_t stage;		     /* with LoRA's bits */
	uint64_t modality;
	int is_thread_stage;
} Scope;

static PyTypeObject *scope_type;

struct scope_arguments {
	uint64_t stage, modality, request_hash, tokens;
};

static struct scope_arguments scope_read(PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
	static const enum argument order[] = {ARGUMENT_NAME, ARGUMENT_MODALITY, ARGUMENT_TOKENS, ARGUMENT_REQUEST};
	struct arguments given;

	arguments_read(&given, args, count, keywords, order, 4);
	return (struct scope_arguments){
		.stage = argument_stage_with_lora(&given, given.values[ARGUMENT_NAME]),
		.modality = argument_modality(given.values[ARGUMENT_MODALITY]),
		.request_hash = request_hash_of(given.values[ARGUMENT_REQUEST]),
		.tokens = argument_count(given.values[ARGUMENT_TOKENS]),
	};
}

PyObject *scope_new(PyObject *const *args, Py_ssize_t count, PyObject *keywords, int is_thread_stage)
{
	struct scope_arguments given = scope_read(args, count, keywords);
	Scope *self = PyObject_New(Scope, scope_type);

	if (!self)
		return NULL;
	self->stage = given.stage;
	self->modality = given.modality;
	self->is_thread_stage = is_thread_stage;
	self->scope = (struct hotstage_scope){.request_hash = given.request_hash, .tokens = given.tokens};
	return (PyObject *)self;
}

void span_read(struct hotstage_scope *out, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
	struct scope_arguments given = scope_read(args, count, keywords);

	*out = (struct hotstage_scope){
		.word = hotstage_word(given.stage, given.modality),
		.request_hash = given.request_hash,
		.tokens = given.tokens,
	};
}

static void scope_dealloc(PyObject *object)
{
	PyTypeObject *type = Py_TYPE(object);

	PyObject_Free(object);
	Py_DECREF(type);
}

static PyObject *scope_begin(PyObject *object, PyObject *Py_UNUSED(ignored))
{
	Scope *self = (Scope *)object;
	struct hotstage_scope *scope = &self->scope;

	if (!scope->is_open && self->is_thread_stage)
		hotstage_stage_begin(scope, self->stage, self->modality, scope->request_hash, scope->tokens);
	else if (!scope->is_open)
		hotstage_span_begin(scope, self->stage, self->modality, scope->request_hash, scope->tokens);
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

static PyType_Slot scope_slots[] = {
	{Py_tp_doc, "One stage or span, from begin to end; made by stage() or span()."},
	{Py_tp_new, type_makes_none},
	{Py_tp_dealloc, scope_dealloc},
	{Py_tp_methods, scope_methods},
	{Py_tp_getset, scope_getters},
	{0, NULL},
};

static PyType_Spec scope_spec = {
	.name = "hotstage_marks.Scope",
	.basicsize = sizeof(Scope),
	.flags = Py_TPFLAGS_DEFAULT,
	.slots = scope_slots,
};

int scope_prepare(PyObject *module)
{
	scope_type = type_prepare(module, "Scope", &scope_spec);
	return scope_type ? 0 : -1;
}

PyObject *type_makes_none(PyTypeObject *Py_UNUSED(type), PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(keywords))
{
	PyErr_SetString(PyExc_TypeError, "made by stage(), span(), batch(), request() and request_begin() only");
	return NULL;
}

PyTypeObject *type_prepare(PyObject *module, const char *name, PyType_Spec *spec)
{
	PyObject *type = PyType_FromSpec(spec);

	if (!type)
		return NULL;
	Py_INCREF(type);
	return PyModule_AddObject(module, name, type) < 0 ? NULL : (PyTypeObject *)type;
}
