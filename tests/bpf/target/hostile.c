// SPDX-License-Identifier: Apache-2.0
/*
 * Programs that leave calls, or go on inside them, in every way that a program can. `hostile SCENE COUNT` plays one
 * and prints what all of its processes made: `LAUNCHES WAITS STATUS UNWOUND`, then their pids, a line each. Each call is
 * noted before it is made, in memory that children, other address spaces and the program after an exec share.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "target.h"

#define PROCESSES 4096
#define STACK (256 * 1024)
#define LAUNCHES 3 /* of each `calls` */
#define WAITS 2

static struct made {
	uint64_t launches, waits, processes;
	int pids[PROCESSES];
	sem_t inside, leave;
	int wanted, unwound, status; /* .. of the child that ended last */
} *made;
static const char *shared_fd; /* a memfd's number */

static void join_in(void)
{
	uint64_t at = __sync_fetch_and_add(&made->processes, 1);

	if (at < PROCESSES)
		made->pids[at] = getpid();
}

static int wait_with(uint64_t how)
{
	__sync_fetch_and_add(&made->waits, 1);
	return cuStreamSynchronize(how);
}

static void calls(void)
{
	for (int i = 0; i < LAUNCHES; i++) {
		__sync_fetch_and_add(&made->launches, 1);
		cuLaunchKernel(0, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0);
	}
	for (int i = 0; i < WAITS; i++)
		wait_with(0);
}

static int inside(int (*what)(void))
{
	target_call_back = what;
	return wait_with(TARGET_CALL_BACK);
}

static void child(int (*what)(void))
{
	int pid = fork();

	if (!pid) {
		join_in();
		what();
		_exit(0);
	}
	waitpid(pid, &made->status, 0);
}

static void in_thread(void *(*what)(void *))
{
	pthread_t thread;

	pthread_create(&thread, 0, what, 0);
	pthread_join(thread, 0);
}

/* ---- what happens inside a call */

static int block(void)
{
	sem_post(&made->inside);
	while (sem_wait(&made->leave))
		;
	return 0;
}

static int kill_self(void) { return kill(getpid(), SIGKILL); }
static int fault(void) { return *(volatile int *)8; }

static int leave_thread(void)
{
	pthread_exit(0);
}

static int execute(void)
{
	execl("/proc/self/exe", "hostile", "after", "1", shared_fd, (char *)0);
	return 1;
}

/* The child is in the call, too, returns from it and goes on. */
static int fork_and_return(void)
{
	int pid = fork();

	if (!pid)
		join_in();
	else
		waitpid(pid, 0, 0);
	return 0;
}

static jmp_buf out;

static void escape_from_handler(int number)
{
	calls();
	longjmp(out, 1);
}

static void call_from_handler(int number)
{
	calls();
}

static int interrupt(void) { return raise(SIGUSR1); }

/* ---- scenes, of one repetition each */

static void *stay_inside(void *unused)
{
	inside(block);
	calls();
	return unused;
}

static int call_on(void)
{
	calls();
	return 0;
}

static void forks(int count)
{
	pthread_t thread;

	pthread_create(&thread, 0, stay_inside, 0);
	while (sem_wait(&made->inside))
		;
	for (int i = 0; i < count; i++)
		child(call_on);
	sem_post(&made->leave);
	pthread_join(thread, 0);
}

static void fork_inside(void)
{
	int me = getpid();

	inside(fork_and_return);
	calls();
	if (getpid() != me)
		_exit(0);
}

static void vfork_and_call(void)
{
	int pid = vfork();

	if (!pid) {
		join_in();
		calls();
		_exit(0);
	}
	waitpid(pid, 0, 0);
	calls();
}

static int in_shared_memory(void *unused)
{
	join_in();
	calls();
	_exit(0);
}

static void share_memory(void)
{
	char *stack = mmap(0, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int pid = clone(in_shared_memory, stack + STACK, CLONE_VM | SIGCHLD, 0);

	calls();
	waitpid(pid, 0, 0);
	munmap(stack, STACK);
}

static int die_by_kill(void) { return inside(kill_self); }
static int die_by_fault(void) { return inside(fault); }
static int become_another(void) { return inside(execute); }

/* Another thread executes while the first one is inside a call. */
static void *execute_beside(void *unused)
{
	while (sem_wait(&made->inside))
		;
	execute();
	return unused;
}

static int be_replaced(void)
{
	pthread_t thread;

	pthread_create(&thread, 0, execute_beside, 0);
	return inside(block);
}

static void *end_inside(void *unused)
{
	calls();
	inside(leave_thread);
	return unused;
}

static void *call_in_thread(void *unused)
{
	calls();
	return unused;
}

static void interrupted(void)
{
	signal(SIGUSR1, call_from_handler);
	inside(interrupt);
	signal(SIGUSR1, escape_from_handler);
	if (!setjmp(out))
		inside(interrupt);
	sigset_t blocked;
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR1);
	sigprocmask(SIG_UNBLOCK, &blocked, 0); /* longjmp has left it blocked */
	calls();
}

static int call_at_exit(void)
{
	exit(0); /* `last_words` calls */
}

static int is_dying_loudly;

__attribute__((destructor)) static void last_words(void)
{
	if (is_dying_loudly)
		calls();
}

static int exit_inside(void)
{
	is_dying_loudly = 1;
	return inside(call_at_exit);
}

/* Two coroutines take turns between their calls; each on a stack of its own, one above the other. */
static ucontext_t caller, coroutines[2];

static void coroutine(int me)
{
	for (int turn = 0; turn < 4; turn++) {
		calls();
		swapcontext(&coroutines[me], &coroutines[!me]);
	}
	setcontext(&caller);
}

static void take_turns(void)
{
	char *stacks = mmap(0, 2 * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (int i = 0; i < 2; i++) {
		getcontext(&coroutines[i]);
		coroutines[i].uc_stack.ss_sp = stacks + i * STACK;
		coroutines[i].uc_stack.ss_size = STACK;
		makecontext(&coroutines[i], (void (*)(void))coroutine, 1, i);
	}
	swapcontext(&caller, &coroutines[0]);
	munmap(stacks, 2 * STACK);
}

/* A coroutine that is left inside a call, and never taken up again. */
static int yield_for_ever(void) { return swapcontext(&coroutines[0], &caller); }
static void left_inside(void) { inside(yield_for_ever); }

static void leave_coroutine(void)
{
	char *stack = mmap(0, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	getcontext(&coroutines[0]);
	coroutines[0].uc_stack.ss_sp = stack;
	coroutines[0].uc_stack.ss_size = STACK;
	makecontext(&coroutines[0], left_inside, 0);
	swapcontext(&caller, &coroutines[0]);
	calls();
}

/* A coroutine that is left inside a call and taken up again after one on a stack above its own. */
static int yield(void) { return swapcontext(&coroutines[0], &coroutines[1]); }
static void first(void) { inside(yield); }

static void second(void)
{
	calls();
	setcontext(&coroutines[0]);
}

static int resume_inside(void)
{
	char *stacks = mmap(0, 2 * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (int i = 0; i < 2; i++) {
		getcontext(&coroutines[i]);
		coroutines[i].uc_stack.ss_sp = stacks + i * STACK;
		coroutines[i].uc_stack.ss_size = STACK;
		coroutines[i].uc_link = &caller;
		makecontext(&coroutines[i], i ? second : first, 0);
	}
	return swapcontext(&caller, &coroutines[0]);
}

/* Cancelled inside a call: whether what is to be done at the end of the frames around it is done. */
static void note_unwinding(void *unused) { made->unwound++; }

static int cancel(void)
{
	pthread_cancel(pthread_self());
	pthread_testcancel();
	return 0;
}

static void *be_cancelled(void *unused)
{
	pthread_cleanup_push(note_unwinding, 0);
	inside(cancel);
	pthread_cleanup_pop(0);
	return unused;
}

/* Sixteen calls within each other; the second time, the innermost leaves all of them. */
static void recurse(void)
{
	__sync_fetch_and_add(&made->waits, 15);
	wait_with(TARGET_DEEP + 15);
	calls();
}

static int again(void);
static int depth;

static int dive(int from)
{
	depth = from;
	return inside(again);
}

static int again(void)
{
	if (--depth)
		return inside(again) * 2;
	longjmp(out, 1);
}

static void surface(void)
{
	if (!setjmp(out))
		dive(12);
	calls();
}

/* The id of a thread that died inside a call comes back, in the same process. */
static volatile int wanted_tid, found_tid;

static void *note_tid(void *unused)
{
	if ((found_tid = gettid()) == wanted_tid)
		calls();
	return unused;
}

static void *die_noted(void *unused)
{
	wanted_tid = gettid();
	inside(leave_thread);
	return unused;
}

static void come_back(void)
{
	int fd = open("/proc/sys/kernel/ns_last_pid", O_WRONLY);
	char text[16];

	in_thread(die_noted);
	for (int i = 0; i < 200 && found_tid != wanted_tid; i++) {
		snprintf(text, sizeof(text), "%d", wanted_tid - 1);
		if (pwrite(fd, text, strlen(text), 0) < 0)
			exit(4);
		in_thread(note_tid);
	}
	close(fd);
	if (found_tid != wanted_tid)
		exit(5);
}

/* The same in another process: its thread's id becomes a child's pid. */
static void *die_and_kill(void *unused)
{
	made->wanted = gettid();
	inside(kill_self);
	return unused;
}

static int end_with_thread(void)
{
	in_thread(die_and_kill);
	return 0;
}

static void come_back_elsewhere(void)
{
	int fd = open("/proc/sys/kernel/ns_last_pid", O_WRONLY), pid = 0;
	char text[16];

	child(end_with_thread);
	for (int i = 0; i < 200 && pid != made->wanted; i++) {
		snprintf(text, sizeof(text), "%d", made->wanted - 1);
		if (pwrite(fd, text, strlen(text), 0) < 0)
			exit(4);
		if (!(pid = fork())) {
			if (getpid() == made->wanted) {
				join_in();
				calls();
			}
			_exit(0);
		}
		waitpid(pid, 0, 0);
	}
	close(fd);
	if (pid != made->wanted)
		exit(5);
}

static void play(const char *scene)
{
	if (!strcmp(scene, "fork_inside"))
		fork_inside();
	else if (!strcmp(scene, "vfork"))
		vfork_and_call();
	else if (!strcmp(scene, "shared_memory"))
		share_memory();
	else if (!strcmp(scene, "killed"))
		child(die_by_kill);
	else if (!strcmp(scene, "faulted"))
		child(die_by_fault);
	else if (!strcmp(scene, "exec_inside"))
		child(become_another);
	else if (!strcmp(scene, "exec_beside"))
		child(be_replaced);
	else if (!strcmp(scene, "exit_inside"))
		child(exit_inside);
	else if (!strcmp(scene, "thread_ends_inside"))
		in_thread(end_inside);
	else if (!strcmp(scene, "threads_die"))
		in_thread(call_in_thread);
	else if (!strcmp(scene, "signals"))
		interrupted();
	else if (!strcmp(scene, "coroutines"))
		take_turns();
	else if (!strcmp(scene, "coroutine_left_inside"))
		leave_coroutine();
	else if (!strcmp(scene, "coroutine_resumed_inside"))
		child(resume_inside);
	else if (!strcmp(scene, "cancelled_inside"))
		in_thread(be_cancelled);
	else if (!strcmp(scene, "deep"))
		recurse();
	else if (!strcmp(scene, "escapes"))
		surface();
	else if (!strcmp(scene, "tid_comes_back"))
		come_back();
	else if (!strcmp(scene, "tid_comes_back_elsewhere"))
		come_back_elsewhere();
	else if (!strcmp(scene, "after"))
		calls();
	else
		exit(3);
}

int main(int argc, char **argv)
{
	int is_after = argc > 3, fd = is_after ? atoi(argv[3]) : memfd_create("made", 0);
	char text[16];

	if (argc < 3 || fd < 0 || (!is_after && ftruncate(fd, sizeof(*made))))
		return 3;
	made = mmap(0, sizeof(*made), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	snprintf(text, sizeof(text), "%d", fd);
	shared_fd = text;
	if (is_after) {
		play(argv[1]);
		return 0;
	}
	sem_init(&made->inside, 1, 0);
	sem_init(&made->leave, 1, 0);
	join_in();
	if (!strcmp(argv[1], "forks"))
		forks(atoi(argv[2]));
	for (int i = 0; strcmp(argv[1], "forks") && i < atoi(argv[2]); i++)
		play(argv[1]);
	printf("%llu %llu %d %d\n", (unsigned long long)made->launches, (unsigned long long)made->waits,
	       made->status, made->unwound);
	for (uint64_t i = 0; i < made->processes && i < PROCESSES; i++)
		printf("%d\n", made->pids[i]);
	return 0;
}
