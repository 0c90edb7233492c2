// SPDX-License-Identifier: Apache-2.0
#include "arguments.h"

static const char *const ARGUMENT_NAMES[ARGUMENT_COUNT] = {
	"name",	    "modality", "tokens",      "request", "rid",	   "endpoint",
	"instance", "model",	"traceparent", "outcome", "output_tokens", "digest",
};
static const char *const STAGE_NAMES[] = {
	"gateway",	 "media_fetch",	 "media_decode", "preprocess", "tokenize",    "queue",
	"model_load",	 "lora_apply",	 "vision_encode", "audio_encode", "video_encode", "cross_modal_align",
	"llm_prefill",	 "llm_decode",	 "kv_transfer",	 "sample",     "detokenize",  "other",
};
static const char *const MODALITY_NAMES[] = {"text", "image", "audio", "video", "mixed", "unknown"};
static const char *const OUTCOME_NAMES[] = {"ok", "error", "cancelled", "refused"};

_Static_assert(sizeof(STAGE_NAMES) / sizeof(*STAGE_NAMES) == HOTSTAGE_STAGE_OTHER + 1, "one name a stage");
_Static_assert(sizeof(MODALITY_NAMES) / sizeof(*MODALITY_NAMES) == HOTSTAGE_MODALITY_UNKNOWN + 1, "one name each");

static PyObject *argument_names[ARGUMENT_COUNT];
static PyObject *stage_ids, *modality_ids, *outcome_ids; /* name -> id */

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
	for (int i = 0; i < ARGUMENT_COUNT; i++) {
		argument_names[i] = PyUnicode_InternFromString(ARGUMENT_NAMES[i]);
		if (!argument_names[i])
			return -1;
	}
	stage_ids = table_of(STAGE_NAMES, HOTSTAGE_STAGE_OTHER + 1);
	modality_ids = table_of(MODALITY_NAMES, HOTSTAGE_MODALITY_UNKNOWN + 1);
	outcome_ids = table_of(OUTCOME_NAMES, HOTSTAGE_OUTCOME_REFUSED + 1);
	return stage_ids && modality_ids && outcome_ids ? 0 : -1;
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
	Py_ssize_t keyword_count = keywords ? PyTuple_GET_SIZE(keywords) : 0;

	memset(out, 0, sizeof(*out));
	for (Py_ssize_t i = 0; i < count && i < order_count; i++)
		out->values[order[i]] = args[i] == Py_None ? NULL : args[i];
	for (Py_ssize_t i = 0; i < keyword_count; i++) {
		int which = argument_named(PyTuple_GET_ITEM(keywords, i));

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

uint64_t argument_stage(PyObject *value)
{
	return id_of(value, stage_ids, HOTSTAGE_STAGE_OTHER, HOTSTAGE_STAGE_OTHER);
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

uint64_t argument_count(PyObject *value)
{
	PyObject *number = value ? PyNumber_Index(value) : NULL; /* numpy's integers have it too */
	long long count = number ? PyLong_AsLongLong(number) : 0;

	Py_XDECREF(number);
	if (PyErr_Occurred())
		PyErr_Clear();
	return count > 0 ? (uint64_t)count : 0;
}

uint64_t argument_digest(PyObject *value)
{
	PyObject *number = NULL;
	uint64_t digest = 0;

	if (value && PyUnicode_Check(value))
		number = PyUnicode_GET_LENGTH(value) == 16 ? PyLong_FromUnicodeObject(value, 16) : NULL;
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
