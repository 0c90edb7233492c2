// SPDX-License-Identifier: Apache-2.0
// A C++ server with marks: a thread for each request, scopes that end by themselves.
//
//     HERE=$(python -c 'import hotstage_marks, os; print(os.path.dirname(hotstage_marks.__file__))')
//     g++ -std=c++17 -pthread -I$HERE/include server.cpp -L$HERE -lhotstage_marks -Wl,-rpath,$HERE -o server
//     printf 'req-1 4\nreq-2 7\n' | ./server        # lines `ID OUTPUT_TOKENS`
//
// What to look at: Stage and Span are ten lines each, and an exception ends them as a return does.
#include <hotstage_marks.h>

#include <iostream>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

// Synchronous work on this thread: CUDA calls in its scope count for the stage.
class Stage {
public:
	Stage(hotstage_stage stage, hotstage_modality modality, uint64_t request, uint64_t tokens = 0)
	{
		hotstage_stage_begin(&scope_, stage, modality, request, tokens);
	}
	~Stage() { hotstage_stage_end(&scope_); }
	Stage(const Stage &) = delete;
	Stage &operator=(const Stage &) = delete;

private:
	hotstage_scope scope_;
};

// The request alone: may begin on one thread and end on another.
class Span {
public:
	Span(hotstage_stage stage, hotstage_modality modality, uint64_t request, uint64_t tokens = 0)
	{
		hotstage_span_begin(&scope_, stage, modality, request, tokens);
	}
	~Span() { hotstage_span_end(&scope_); }
	Span(const Span &) = delete;
	Span &operator=(const Span &) = delete;

private:
	hotstage_scope scope_;
};

static void serve(const std::string &id, uint64_t wanted)
{
	const std::vector<unsigned char> image(wanted * 64, static_cast<unsigned char>(wanted));
	const uint64_t digest = hotstage_digest(image.data(), image.size(), 0);
	const uint64_t request =
		hotstage_request_begin_with_digest(id.c_str(), "/v1/describe", "cpp-0", "toy-vlm", nullptr, digest);
	unsigned long features = 0;

	{
		Stage encode(HOTSTAGE_STAGE_VISION_ENCODE, HOTSTAGE_MODALITY_IMAGE, request, image.size());
		features = std::accumulate(image.begin(), image.end(), 0UL);
	}
	{
		Span decode(HOTSTAGE_STAGE_LLM_DECODE, HOTSTAGE_MODALITY_IMAGE, request, wanted);
		for (uint64_t token = 1; token <= wanted; token++)
			hotstage_tokens(request, token);
	}
	hotstage_request_end(request, features ? HOTSTAGE_OUTCOME_OK : HOTSTAGE_OUTCOME_ERROR, wanted);
}

int main()
{
	std::vector<std::thread> requests;
	std::string id;
	uint64_t wanted;

	std::cout << "ready" << std::endl;
	while (std::cin >> id >> wanted)
		requests.emplace_back(serve, id, wanted);
	for (std::thread &request : requests)
		request.join();
	std::cout << (hotstage_is_watched() ? "watched" : "alone") << std::endl;
}
