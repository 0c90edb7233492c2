// SPDX-License-Identifier: Apache-2.0
// A C++ server with marks: a thread for each request, scopes that end by themselves, and a batch of all.
//
//     HERE=$(python -c 'import hotstage_marks, os; print(os.path.dirname(hotstage_marks.__file__))')
//     g++ -std=c++17 -pthread -I$HERE/include server.cpp -L$HERE -lhotstage_marks -Wl,-rpath,$HERE -o server
//     printf 'req-1 4\nreq-2 7\n' | ./server        # lines `ID OUTPUT_TOKENS`
//
// What to look at: Stage, Span and Batch are ten lines each, and an exception ends them as a return does. `rerank` is a
// stage of this server's own. The features are told by where they lie, and stay there until the request ends.
#include <hotstage_marks.h>

#include <deque>
#include <iostream>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

// Synchronous work on this thread: CUDA calls in its scope count for the stage.
class Stage {
public:
	Stage(uint64_t stage, hotstage_modality modality, uint64_t request, uint64_t tokens = 0)
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
	Span(uint64_t stage, hotstage_modality modality, uint64_t request, uint64_t tokens = 0)
	{
		hotstage_span_begin(&scope_, stage, modality, request, tokens);
	}
	~Span() { hotstage_span_end(&scope_); }
	Span(const Span &) = delete;
	Span &operator=(const Span &) = delete;

private:
	hotstage_scope scope_;
};

// Work for several requests on this thread: CUDA calls in its scope are shared out by the members' tokens.
class Batch {
public:
	Batch(std::vector<hotstage_batch_member> members, hotstage_modality modality) : members_(std::move(members))
	{
		hotstage_batch_begin(&scope_, members_.data(), static_cast<uint32_t>(members_.size()), modality, 0);
	}
	~Batch() { hotstage_batch_end(&scope_); }
	Batch(const Batch &) = delete;
	Batch &operator=(const Batch &) = delete;

private:
	std::vector<hotstage_batch_member> members_; // stays until the end
	hotstage_batch_scope scope_;
};

struct Request {
	std::string id;
	uint64_t wanted;
	uint64_t hash = 0;
	std::vector<float> features = {};
};

static void serve(Request &request)
{
	const std::vector<unsigned char> image(request.wanted * 64, static_cast<unsigned char>(request.wanted));
	const uint64_t digest = hotstage_digest(image.data(), image.size(), 0);

	request.hash = hotstage_request_begin_with_digest(request.id.c_str(), "/v1/describe", "cpp-0", "toy-vlm",
							  nullptr, digest);
	{
		Stage encode(HOTSTAGE_STAGE_VISION_ENCODE, HOTSTAGE_MODALITY_IMAGE, request.hash, image.size());
		request.features.assign(image.begin(), image.end());
		hotstage_embedding(request.hash, HOTSTAGE_STAGE_VISION_ENCODE, HOTSTAGE_MODALITY_IMAGE,
				   request.features.data(), static_cast<uint32_t>(request.features.size()),
				   HOTSTAGE_DTYPE_F32);
	}
	Span decode(HOTSTAGE_STAGE_LLM_DECODE, HOTSTAGE_MODALITY_IMAGE, request.hash, request.wanted);
	for (uint64_t token = 1; token <= request.wanted; token++)
		hotstage_tokens(request.hash, token);
}

static float rerank(const std::deque<Request> &requests)
{
	const auto stage = static_cast<uint8_t>(hotstage_stage_id("rerank"));
	std::vector<hotstage_batch_member> members;
	float score = 0;

	for (const Request &request : requests)
		members.push_back({request.hash, static_cast<uint32_t>(request.wanted), stage, HOTSTAGE_MODALITY_TEXT, 0});
	Batch batch(std::move(members), HOTSTAGE_MODALITY_TEXT);
	for (const Request &request : requests)
		score += std::accumulate(request.features.begin(), request.features.end(), 0.0F);
	return score;
}

int main()
{
	std::vector<std::thread> threads;
	std::deque<Request> requests;
	std::string id;
	uint64_t wanted;

	std::cout << "ready" << std::endl;
	while (std::cin >> id >> wanted) {
		requests.push_back({id, wanted});
		threads.emplace_back(serve, std::ref(requests.back()));
	}
	for (std::thread &thread : threads)
		thread.join();
	const float score = rerank(requests);
	for (const Request &request : requests)
		hotstage_request_end(request.hash, score > 0 ? HOTSTAGE_OUTCOME_OK : HOTSTAGE_OUTCOME_ERROR,
				     request.wanted);
	std::cout << (hotstage_is_watched() ? "watched" : "alone") << std::endl;
}
