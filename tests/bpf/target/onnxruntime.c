// SPDX-License-Identifier: Apache-2.0
/*
 * A library that looks like libonnxruntime.so.1: one export, a table of functions of release 1.24
 * behind it. Those that tests call answer as the header says; a session of 1 never comes back, one
 * of 2 fails with a pointer whose lower half is 0. -D flags forge it.
 */
#include <stdint.h>
#include <unistd.h>

#ifndef VERSION
#define VERSION "1.24.0"
#endif
#ifndef LOCAL
#define LOCAL static
#endif

typedef void (*function)(void);

static char failure[] = "a status";

LOCAL void *ort_run(uintptr_t session)
{
	if (session == 1)
		pause();
	if (session == 2)
		return (void *)(1UL << 40);
	return session ? 0 : failure;
}

LOCAL void *ort_create_session(uintptr_t environment)
{
	usleep(100);
	return environment ? 0 : failure;
}

/* What stands in the register of a result is nobody's. */
LOCAL intptr_t ort_release_session(uintptr_t session)
{
	return (intptr_t)session + 77;
}

/* Compilers fold functions of one body into one. */
#define OTHER(n) LOCAL const char *ort_other_##n(void) { return #n; }
#define TEN(each, n) each(n##0) each(n##1) each(n##2) each(n##3) each(n##4) each(n##5) each(n##6) \
	each(n##7) each(n##8) each(n##9)
#define HUNDRED(each, n) TEN(each, n##0) TEN(each, n##1) TEN(each, n##2) TEN(each, n##3) \
	TEN(each, n##4) TEN(each, n##5) TEN(each, n##6) TEN(each, n##7) TEN(each, n##8) TEN(each, n##9)
#define ALL(each) HUNDRED(each, 1) HUNDRED(each, 2) HUNDRED(each, 3) HUNDRED(each, 4) TEN(each, 50) \
	each(510) each(511)
#define SLOT(n) (function)ort_other_##n,

ALL(OTHER)

#ifndef RUN_SLOT
#define RUN_SLOT (function)ort_run
#endif

static const function ort_api[] = {
	ALL(SLOT)
	[7] = (function)ort_create_session,
	[9] = RUN_SLOT,
	[95] = (function)ort_release_session,
#ifdef TWIN
	[200] = (function)ort_run,
#endif
};

#ifdef TWO_TABLES
static const function ort_api_old[] = { ALL(SLOT) };
#endif

LOCAL const void *ort_get_api(uint32_t version)
{
#ifdef TWO_TABLES
	if (version == 1)
		return ort_api_old;
#endif
	return version && version <= 24 ? ort_api : 0;
}

LOCAL const char *ort_get_version(void)
{
	return VERSION;
}

static const struct {
	const void *(*get_api)(uint32_t);
	const char *(*get_version)(void);
} base = { ort_get_api, ort_get_version };

__attribute__((visibility("default"))) const void *OrtGetApiBase(void)
{
	return &base;
}
