// SPDX-License-Identifier: Apache-2.0
#include "arguments.h"

static const char *const ARGUMENT_NAMES[ARGUMENT_COUNT] = {
	"name",	    "modality", "tokens",      "request", "rid",	   "endpoint",
	"instance", "model",	"traceparent", "outcome", "output_tokens", "digest",
	"lora_rank", "lora_module", "stage",	"address", "dims",	   "dtype",
	"spans",
};
static const char *const MODALITY_NAMES[] = {"text", "image", "audio", "video", "mixed", "unknown"};
static const char *const OUTCOME_NAMES[] = {"ok", "error", "cancelled", "refused"};

static const char *const LORA_NAMES[] = {
	"unknown",   "q_proj",	  "k_proj",   "v_proj",	      "o_proj",	      "gate_proj", "up_proj",	"down_proj",
	"qkv_proj",  "gate_up_proj", "embed_tokens", "lm_head", "vision",     "projector", "all",	"other",
};
static const char *const DTYPE_NAMES[] = {"float32", "float16", "bfloat16", "float64"};

#define LEARNED_NAMES 64 /* spellings of the server's own stages that are found at once */

_Static_assert(sizeof(LORA_NAMES) / sizeof(*LORA_NAMES) == HOTSTAGE_LORA_OTHER + 1, "one name a module");
_Static_assert(sizeof(MODALITY_NAMES) / sizeof(*MODALITY_NAMES) == HOTSTAGE_MODALITY_UNKNOWN + 1, "one name each");

static PyObject *argument_names[ARGUMENT_COUNT];
static PyObject *stage_ids, *modality_ids, *outcome_ids, *lora_ids; /* name -> id */

static PyObject *table_of(const char *const *names, Py_ssize_t count)
{
	PyObject *table = PyDict_New();

	for (Py_ssize_t i = 0; table && i < count; i++) {
		PyObject *id = PyLong_FromSsize_t(i);

		if (!id || PyDict_SetItemString(table, names[i], id) < 0)
			Py_CLEAR(table);
		Py_XDECREF(id);
	}
	return table;
}

int arguments_prepare(void)
{
	const char *names[HOTSTAGE_STAGE_OTHER + 1];

	for (int i = 0; i < ARGUMENT_COUNT; i++) {
		argument_names[i] = PyUnicode_InternFromString(ARGUMENT_NAMES[i]);
		if (!argument_names[i])
			return -1;
	}
	for (uint64_t stage = 0; stage <= HOTSTAGE_STAGE_OTHER; stage++)
		names[stage] = hotstage_stage_name(stage);
	stage_ids = table_of(names, HOTSTAGE_STAGE_OTHER + 1);
	modality_ids = table_of(MODALITY_NAMES, HOTSTAGE_MODALITY_UNKNOWN + 1);
	outcome_ids = table_of(OUTCOME_NAMES, HOTSTAGE_OUTCOME_REFUSED + 1);
	lora_ids = table_of(LORA_NAMES, HOTSTAGE_LORA_OTHER + 1);
	return stage_ids && modality_ids && outcome_ids && lora_ids ? 0 : -1;
}

static int argument_named(PyObject *name)
{
	for (int i = 0; i < ARGUMENT_COUNT; i++)
		if (name == argument_names[i])
			return i;
	for (int i = 0; i < ARGUMENT_COUNT; i++) /* a name that was built at run time is not interned */
		if (PyUnicode_CompareWithASCIIString(name, ARGUMENT_NAMES[i]) == 0)
			return i;
	return -1;
}

void arguments_read(struct arguments *out, PyObject *const *args, Py_ssize_t count, PyObject *keywords,
		    const enum argument *order, Py_ssize_t order_count)
{
	Py_ssize_t keyword_count = keywords ? PyTuple_Size(keywords) : 0;

	memset(out, 0, sizeof(*out));
	for (Py_ssize_t i = 0; i < count && i < order_count; i++)
		out->values[order[i]] = args[i] == Py_None ? NULL : args[i];
	for (Py_ssize_t i = 0; i < keyword_count; i++) {
		int which = argument_named(PyTuple_GetItem(keywords, i));

		if (which >= 0)
			out->values[which] = args[count + i] == Py_None ? NULL : args[count + i];
	}
}

static uint64_t id_of(PyObject *value, PyObject *table, uint64_t highest, uint64_t otherwise)
{
	unsigned long id;

	if (!value)
		return otherwise;
	if (PyUnicode_Check(value)) {
		value = PyDict_GetItemWithError(table, value);
		if (!value) {
			PyErr_Clear();
			return otherwise;
		}
	}
	if (!PyLong_Check(value))
		return otherwise;
	id = PyLong_AsUnsignedLong(value);
	if (id == (unsigned long)-1 && PyErr_Occurred())
		PyErr_Clear();
	return id <= highest ? id : otherwise;
}

static uint64_t own_stage_named(PyObject *name)
{
	const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
	uint64_t stage = hotstage_stage_id(text);
	PyObject *id;

	if (!text || stage == HOTSTAGE_STAGE_OTHER || PyDict_Size(stage_ids) > HOTSTAGE_STAGE_OTHER + LEARNED_NAMES) {
		PyErr_Clear();
		return stage;
	}
	id = PyLong_FromUnsignedLongLong(stage);
	if (!id || PyDict_SetItem(stage_ids, name, id) < 0)
		PyErr_Clear();
	Py_XDECREF(id);
	return stage;
}

uint64_t argument_stage(PyObject *value)
{
	uint64_t stage = id_of(value, stage_ids, HOTSTAGE_STAGE_LAST_OWN, UINT64_MAX);

	if (stage == UINT64_MAX && value && PyUnicode_Check(value))
		return own_stage_named(value);
	return stage <= HOTSTAGE_STAGE_OTHER || hotstage_stage_name(stage) ? stage : HOTSTAGE_STAGE_OTHER;
}

uint64_t argument_stage_with_lora(const struct arguments *given, PyObject *name)
{
	PyObject *rank = given->values[ARGUMENT_LORA_RANK], *module = given->values[ARGUMENT_LORA_MODULE];
	uint64_t stage = argument_stage(name), ranks;

	if (stage != HOTSTAGE_STAGE_LORA_APPLY || (!rank && !module))
		return stage;
	ranks = argument_count(rank);
	return HOTSTAGE_LORA(ranks, module ? id_of(module, lora_ids, HOTSTAGE_LORA_OTHER, HOTSTAGE_LORA_OTHER) : 0);
}

/* `torch.float32`, `float32` and numpy's type all end alike. */
uint32_t argument_dtype(PyObject *value)
{
	PyObject *owner;
	Py_ssize_t length;
	const char *text = argument_text(value, &length, &owner), *dot = strrchr(text, '.');
	uint32_t dtype = UINT32_MAX;

	for (uint32_t i = 0; i < sizeof(DTYPE_NAMES) / sizeof(*DTYPE_NAMES); i++)
		if (!strcmp(dot ? dot + 1 : text, DTYPE_NAMES[i]))
			dtype = i;
	Py_XDECREF(owner);
	return dtype;
}

uint64_t argument_modality(PyObject *value)
{
	return id_of(value, modality_ids, HOTSTAGE_MODALITY_UNKNOWN, HOTSTAGE_MODALITY_UNKNOWN);
}

uint64_t argument_outcome(PyObject *value)
{
	return value ? id_of(value, outcome_ids, HOTSTAGE_OUTCOME_REFUSED, HOTSTAGE_OUTCOME_ERROR)
		     : HOTSTAGE_OUTCOME_OK;
}

int argument_is_number(PyObject *value)
{
	return value && PyIndex_Check(value);
}

uint64_t argument_count(PyObject *value)
{
	PyObject *number = value ? PyNumber_Index(value) : NULL; /* numpy's integers have it too */
	long long count = number ? PyLong_AsLongLong(number) : 0;

	Py_XDECREF(number);
	if (PyErr_Occurred())
		PyErr_Clear();
	return count > 0 ? (uint64_t)count : 0;
}

static PyObject *number_of_hex(PyObject *text)
{
	const char *digits = PyUnicode_AsUTF8AndSize(text, NULL);

	return digits ? PyLong_FromString(digits, NULL, 16) : NULL;
}

uint64_t argument_digest(PyObject *value)
{
	PyObject *number = NULL;
	uint64_t digest = 0;

	if (value && PyUnicode_Check(value))
		number = PyUnicode_GetLength(value) == 16 ? number_of_hex(value) : NULL;
	else if (value)
		number = PyNumber_Index(value);
	if (number)
		digest = PyLong_AsUnsignedLongLong(number);
	Py_XDECREF(number);
	if (PyErr_Occurred()) {
		PyErr_Clear();
		digest = 0;
	}
	return digest;
}

const char *argument_text(PyObject *value, Py_ssize_t *length, PyObject **owner)
{
	const char *bytes = NULL;

	*length = 0;
	*owner = NULL;
	if (!value)
		return "";
	if (PyUnicode_Check(value)) {
		Py_INCREF(value);
		*owner = value;
	} else {
		*owner = PyObject_Str(value);
	}
	if (*owner)
		bytes = PyUnicode_AsUTF8AndSize(*owner, length);
	if (bytes)
		return bytes;
	PyErr_Clear(); /* a lone surrogate, or a __str__ that raises */
	*length = 0;
	return "";
}

void argument_copy(char *field, size_t size, PyObject *value)
{
	PyObject *owner;
	Py_ssize_t length;
	const char *bytes = argument_text(value, &length, &owner);

	hotstage_copy(field, size, bytes, (size_t)length);
	Py_XDECREF(owner);
}

uint64_t argument_hash(PyObject *value)
{
	PyObject *owner;
	Py_ssize_t length;
	const char *bytes = argument_text(value, &length, &owner);
	uint64_t hash = hotstage_hash(bytes, (size_t)length);

	Py_XDECREF(owner);
	return hash;
}
