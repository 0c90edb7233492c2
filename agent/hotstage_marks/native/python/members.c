// SPDX-License-Identifier: Apache-2.0
/* The Python object of a batch: (request, stage, tokens[, modality]) as the library's records. */
#include "request.h"
#include "scope.h"

#define MAX_MEMBERS 65536 /* beyond these a list is nonsense, or does not end */

typedef struct {
	PyObject_HEAD
	struct hotstage_batch_scope scope;
	struct hotstage_batch_member *records; /* while it is open */
	PyObject *members;		       /* as they were given */
	uint64_t modality;
	uint32_t flags;
} Batch;

static PyTypeObject *batch_type;

PyObject *batch_new(PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
	static const enum argument order[] = {ARGUMENT_NAME, ARGUMENT_MODALITY};
	Batch *self = (Batch *)PyType_GenericAlloc(batch_type, 0);
	struct arguments given;
	PyObject *spans;

	if (!self)
		return NULL;
	arguments_read(&given, args, count, keywords, order, 2);
	Py_XINCREF(given.values[ARGUMENT_NAME]);
	self->members = given.values[ARGUMENT_NAME];
	self->modality = given.values[ARGUMENT_MODALITY] ? argument_modality(given.values[ARGUMENT_MODALITY])
							 : HOTSTAGE_MODALITY_MIXED;
	spans = given.values[ARGUMENT_SPANS];
	self->flags = spans == Py_False ? HOTSTAGE_BATCH_WITHOUT_SPANS : 0;
	return (PyObject *)self;
}

/* 0: it is no (request, stage, tokens[, modality]). */
static int read_member(struct hotstage_batch_member *out, PyObject *member, uint64_t modality)
{
	PyObject *request, *tokens;
	Py_ssize_t size = PyTuple_Check(member) ? PyTuple_Size(member) : 0;
	uint64_t count;

	if (size < 3 || size > 4)
		return 0;
	request = PyTuple_GetItem(member, 0);
	tokens = PyTuple_GetItem(member, 2);
	if (!argument_is_number(tokens))
		return 0;
	count = argument_count(tokens);
	*out = (struct hotstage_batch_member){
		.request_hash = request == Py_None ? 0 : request_hash_of(request),
		.tokens = count > UINT32_MAX ? UINT32_MAX : (uint32_t)count,
		.stage = (uint8_t)argument_stage(PyTuple_GetItem(member, 1)),
		.modality = (uint8_t)(size == 4 ? argument_modality(PyTuple_GetItem(member, 3)) : modality),
	};
	return 1;
}

static int read_any_member(struct hotstage_batch_member *out, PyObject *member, uint64_t modality)
{
	PyObject *tuple = PyList_Check(member) ? PyList_AsTuple(member) : (Py_INCREF(member), member);
	int is_one = tuple && read_member(out, tuple, modality);

	Py_XDECREF(tuple);
	if (PyErr_Occurred())
		PyErr_Clear();
	return is_one;
}

static int make_room(Batch *self, uint32_t count)
{
	struct hotstage_batch_member *grown;

	if (count & (count - 1) || (count && count < 16)) /* full at 0, 16, 32, 64 … */
		return 1;
	grown = PyMem_Realloc(self->records, (count ? 2 * count : 16) * sizeof(*grown));
	if (grown)
		self->records = grown;
	return grown != NULL;
}

/* Whatever can be read of the members; -1 with what is no ordinary exception, such as KeyboardInterrupt. */
static int64_t read_members(Batch *self)
{
	PyObject *members = self->members ? PyObject_GetIter(self->members) : NULL, *member;
	uint32_t count = 0, seen = 0;

	while (members && seen++ < MAX_MEMBERS && make_room(self, count) && (member = PyIter_Next(members))) {
		if (read_any_member(&self->records[count], member, self->modality))
			count++;
		else
			hotstage_left_out(HOTSTAGE_COUNT_MEMBERS_MALFORMED, 1);
		Py_DECREF(member);
	}
	Py_XDECREF(members);
	if (!PyErr_Occurred())
		return count;
	if (!PyErr_ExceptionMatches(PyExc_Exception))
		return -1;
	PyErr_Clear();
	return count;
}

static void close_batch(Batch *self)
{
	hotstage_batch_end(&self->scope);
	PyMem_Free(self->records);
	self->records = NULL;
}

static PyObject *batch_begin(PyObject *object, PyObject *Py_UNUSED(ignored))
{
	Batch *self = (Batch *)object;
	int64_t count;

	if (!self->scope.is_open && hotstage_is_watched()) {
		count = read_members(self);
		if (count > 0)
			hotstage_batch_begin(&self->scope, self->records, (uint32_t)count, self->modality, self->flags);
		if (!self->scope.is_open)
			close_batch(self);
		if (count < 0)
			return NULL;
	}
	Py_INCREF(object);
	return object;
}

static PyObject *batch_end(PyObject *object, PyObject *Py_UNUSED(ignored))
{
	close_batch((Batch *)object);
	Py_RETURN_NONE;
}

static PyObject *batch_exit(PyObject *object, PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(count))
{
	close_batch((Batch *)object);
	Py_RETURN_FALSE;
}

static int batch_traverse(PyObject *object, visitproc visit, void *arg)
{
	Py_VISIT(Py_TYPE(object));
	Py_VISIT(((Batch *)object)->members);
	return 0;
}

static int batch_clear(PyObject *object)
{
	Py_CLEAR(((Batch *)object)->members);
	return 0;
}

static void batch_dealloc(PyObject *object)
{
	PyTypeObject *type = Py_TYPE(object);

	PyObject_GC_UnTrack(object);
	close_batch((Batch *)object); /* one that was never ended */
	batch_clear(object);
	PyObject_GC_Del(object);
	Py_DECREF(type);
}

static PyMethodDef batch_methods[] = {
	{"__enter__", batch_begin, METH_NOARGS, "Begin; returns itself."},
	{"__exit__", (PyCFunction)(void (*)(void))batch_exit, METH_FASTCALL, "End."},
	{"begin", batch_begin, METH_NOARGS, "Begin without `with`; returns itself. The members are read now."},
	{"end", batch_end, METH_NOARGS, "End once; later ends do nothing. It may begin again."},
	{NULL, NULL, 0, NULL},
};

static PyType_Slot batch_slots[] = {
	{Py_tp_doc, "Work that several requests share on one thread; made by batch()."},
	{Py_tp_new, type_makes_none},
	{Py_tp_dealloc, batch_dealloc},
	{Py_tp_traverse, batch_traverse},
	{Py_tp_clear, batch_clear},
	{Py_tp_methods, batch_methods},
	{0, NULL},
};

static PyType_Spec batch_spec = {
	.name = "hotstage_marks.Batch",
	.basicsize = sizeof(Batch),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
	.slots = batch_slots,
};

int batch_prepare(PyObject *module)
{
	batch_type = type_prepare(module, "Batch", &batch_spec);
	return batch_type ? 0 : -1;
}
