// SPDX-License-Identifier: Apache-2.0
/*
 * A short life with a library: open it, call one of its functions so often, end. Quick enough to be started by hundreds.
 *
 *     caller MODE COUNT SYMBOL LIBRARY...
 *
 * MODE now: calls at once. told: says "ready" when the libraries are open, and calls at each line of its input.
 * fork: COUNT children, each calls once; the process waits for all of them.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int (*function)(void *, unsigned long, void *);

static function open_libraries(char **paths, const char *symbol)
{
	void *first = NULL, *opened;

	for (; *paths; paths++) {
		opened = dlopen(*paths, RTLD_NOW | RTLD_LOCAL);
		if (!opened) {
			fprintf(stderr, "%s\n", dlerror());
			exit(2);
		}
		if (!first)
			first = opened;
	}
	return (function)dlsym(first, symbol);
}

static void call(function called, long count)
{
	while (count--)
		called(NULL, 4096, NULL);
}

static void fork_callers(function called, long count)
{
	for (long i = 0; i < count; i++) {
		pid_t child = fork();

		if (child < 0)
			exit(3);
		if (!child) {
			called(NULL, 4096, NULL);
			_exit(0);
		}
		if (i % 64 == 63)
			while (wait(NULL) > 0)
				;
	}
	while (wait(NULL) > 0)
		;
}

int main(int argc, char **argv)
{
	long count = argc > 4 ? atol(argv[2]) : 0;
	function called = argc > 4 ? open_libraries(argv + 4, argv[3]) : NULL;
	char line[64];

	if (!called)
		return 2;
	if (!strcmp(argv[1], "now")) {
		call(called, count);
		return 0;
	}
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strcmp(argv[1], "fork"))
			fork_callers(called, count);
		else
			call(called, count);
		puts("done");
		fflush(stdout);
	}
	return 0;
}
