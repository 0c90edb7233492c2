// SPDX-License-Identifier: Apache-2.0
/* Everything at once, from many threads and a forked child, with pops too many: only staying alive counts. */
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static void *work(void *salt)
{
	char name[64];
	nvtxDomainHandle_t domain = nvtxDomainCreateA("app");
	nvtxEventAttributes_t event = {.version = NVTX_VERSION, .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
				       .messageType = NVTX_MESSAGE_TYPE_REGISTERED};

	for (int i = 0; i < 20000; i++) {
		snprintf(name, sizeof(name), "%s %p %d", i % 2 ? "decode" : "layer", salt, i);
		nvtxRangePushA(name);
		nvtxRangePushW(L"sample");
		event.message.registered = nvtxDomainRegisterStringA(domain, name);
		nvtxDomainRangePushEx(domain, &event);
		nvtxRangePop();
		nvtxDomainRangePop(domain);
		nvtxRangeEnd(nvtxRangeStartA(name));
		nvtxRangePop();
		nvtxMarkA(name);
		if (i % 7 == 0)
			nvtxRangePop();
	}
	nvtxDomainDestroy(domain);
	return NULL;
}

int main(void)
{
	pthread_t threads[4];
	pid_t child;
	int status = 1;

	alarm(30);
	nvtxMarkA("start"); /* a child forked while NVTX itself starts would wait for ever, without any injection */
	for (long i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, work, (void *)i);
	child = fork();
	alarm(30);
	work(&threads);
	if (!child)
		return 0;
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	waitpid(child, &status, 0);
	return !WIFEXITED(status) || WEXITSTATUS(status);
}
