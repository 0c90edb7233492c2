// SPDX-License-Identifier: Apache-2.0
/* Preloaded: passes calls on to FFmpeg's libraries, and counts them and those that failed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#define AT_END (-0x20464f45) /* AVERROR_EOF */
#define NOT_YET (-11)

struct truth {
	const char *name, *library;
	int (*real)(long, long, long, long, long, long, long, long);
	long calls, errors;
};

static int find_library(struct dl_phdr_info *info, size_t size, void *data)
{
	struct truth *of = data;
	const char *file = strrchr(info->dlpi_name, '/');

	(void)size;
	if (!file || strncmp(file + 1, of->library, strlen(of->library)))
		return 0;
	*(void **)&of->real = dlsym(dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD), of->name);
	return 1;
}

static int pass(struct truth *of, long a, long b, long c, long d, long e, long f, long g, long h)
{
	int result;

	if (!of->real)
		dl_iterate_phdr(find_library, of);
	result = of->real(a, b, c, d, e, f, g, h);
	of->calls++;
	of->errors += result < 0 && result != AT_END && result != NOT_YET;
	return result;
}

#define COUNTED(library, name)                                                                   \
	static struct truth name##_truth = {#name, library, 0, 0, 0};                            \
	int name(long a, long b, long c, long d, long e, long f, long g, long h)                 \
	{                                                                                        \
		return pass(&name##_truth, a, b, c, d, e, f, g, h);                              \
	}
COUNTED("libavcodec", avcodec_send_packet)
COUNTED("libavcodec", avcodec_receive_frame)
COUNTED("libavcodec", avcodec_send_frame)
COUNTED("libavcodec", avcodec_receive_packet)
COUNTED("libavcodec", avcodec_open2)
COUNTED("libavformat", avformat_open_input)
COUNTED("libavformat", avformat_find_stream_info)
COUNTED("libavformat", av_read_frame)
COUNTED("libswscale", sws_scale)
COUNTED("libswscale", sws_scale_frame)

static struct truth *all[] = {
	&avcodec_send_packet_truth, &avcodec_receive_frame_truth, &avcodec_send_frame_truth,
	&avcodec_receive_packet_truth, &avcodec_open2_truth, &avformat_open_input_truth,
	&avformat_find_stream_info_truth, &av_read_frame_truth, &sws_scale_truth, &sws_scale_frame_truth,
};

void tell_truth(void)
{
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		printf("%s=%ld/%ld ", all[i]->name, all[i]->calls, all[i]->errors);
	puts("");
	fflush(stdout);
}
