#include "tests/daemon/engine/loop.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <random>

#include "daemon/config/config.hpp"

namespace engine_test {
namespace {

constexpr std::int32_t kBlockSize = 16, kMaxSeqs = 16, kMaxTokens = 64, kMaxRows = 64, kKvTokens = 1024;

std::unique_ptr<app::Stack> make_stack(const std::string& model, const std::string& backends) {
    config::Config c;
    c.model.path = ASSAY_BUILD_DIR "/goldens/" + model + "/model-bf16.gguf";
    c.plugins.folders = {ASSAY_BUILD_DIR "/plugins/loader", ASSAY_BUILD_DIR "/plugins/device",
                         ASSAY_BUILD_DIR "/plugins/quant", ASSAY_BUILD_DIR "/plugins/attention"};
    c.plugins.probe_timeout = std::chrono::milliseconds{60'000};
    if (backends == "reference") {
        c.backends.attention = {{"reference"}, {"reference"}};
        c.backends.options["cpu"] = {{"tier", "reference"}};
        c.backends.options["ggml"] = {{"tier", "reference"}};
    }
    c.kv.dtype = config::KvDtype::f32;
    c.kv.block_size = kBlockSize;
    c.kv.max_tokens = kKvTokens;
    c.engine.threads = 1;
    app::StackOptions options;
    options.max_seqs = kMaxSeqs;
    options.max_tokens = kMaxTokens;
    options.max_logit_rows = kMaxRows;
    return std::make_unique<app::Stack>(c, options);
}

engine::SchedulerLimits limits_of(const Loop::Settings& s, const app::Stack& stack) {
    engine::SchedulerLimits l;
    l.max_num_seqs = s.max_num_seqs;
    l.max_num_batched_tokens = s.max_num_batched_tokens;
    l.max_logit_rows = s.max_logit_rows;
    l.max_waiting = s.max_waiting;
    l.block_size = stack.cache->block_size();
    l.queue_timeout = s.queue_timeout;
    l.context_length = stack.context_length();
    return l;
}

std::unique_ptr<engine::Sampler> make_sampler(const app::Stack& stack) {
    return std::make_unique<engine::Sampler>(*stack.resolution.device, *stack.stream, kMaxSeqs, kMaxRows,
                                             static_cast<std::int32_t>(stack.hparams().vocab_size));
}

}  // namespace

app::Stack& stack_of(const std::string& model, const std::string& backends) {
    static std::map<std::string, std::unique_ptr<app::Stack>> stacks;
    auto& stack = stacks[model + " " + backends];
    if (!stack) stack = make_stack(model, backends);
    return *stack;
}

template <class T>
std::vector<T> golden(const std::string& model, const std::string& file) {
    std::ifstream in{ASSAY_BUILD_DIR "/goldens/" + model + "/" + file, std::ios::binary};
    const std::string bytes{std::istreambuf_iterator<char>{in}, {}};
    std::vector<T> out(bytes.size() / sizeof(T));
    std::copy(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(out.size() * sizeof(T)),
              reinterpret_cast<char*>(out.data()));
    return out;
}
template std::vector<std::int32_t> golden(const std::string&, const std::string&);
template std::vector<float> golden(const std::string&, const std::string&);

Loop::Loop(Settings settings, engine::Sampler* sampler)
    : stack_{stack_of(settings.model, settings.backends)},
      own_sampler_{sampler == nullptr ? make_sampler(stack_) : nullptr},
      engine{limits_of(settings, stack_), *stack_.runner, sampler == nullptr ? *own_sampler_ : *sampler,
             settings.num_blocks, link, metrics} {
    if (settings.num_blocks > stack_.cache->num_blocks()) throw std::runtime_error{"the cache is smaller"};
    events_.reserve(1024);
    link.on_events([this] {
        take_events();
        if (on_round) on_round(++rounds_);
        if (num_open == 0) link.stop();
    });
}

void Loop::submit(base::Request request) {
    const auto id = static_cast<std::uint64_t>(request.id);
    if (request.received == base::Clock::time_point{}) request.received = base::Clock::now();
    ASSERT_TRUE(outcomes.emplace(id, Outcome{}).second);
    ASSERT_TRUE(link.submit(request));
    ++num_open;
}

std::string Loop::run() {
    std::string why = engine.run();
    take_events();
    return why;
}

void Loop::take_events() {
    using Kind = base::TokenEvent::Kind;
    events_.clear();
    link.drain_events(events_);
    for (base::TokenEvent& e : events_) {
        const auto id = static_cast<std::uint64_t>(e.id);
        const auto it = outcomes.find(id);
        ASSERT_NE(it, outcomes.end()) << "an event of nobody's request " << id;
        Outcome& o = it->second;
        ASSERT_EQ(o.finish, base::FinishReason::none) << "an event after the last of request " << id;
        switch (e.kind) {
            case Kind::accepted:
                ASSERT_FALSE(o.accepted) << "accepted twice: request " << id;
                o.accepted = true;
                break;
            case Kind::admitted:
                ASSERT_TRUE(o.accepted);
                ASSERT_FALSE(o.admitted) << "admitted twice: request " << id;
                o.admitted = true;
                o.cached_tokens = e.cached_tokens;
                break;
            case Kind::prompt_scored:
                ASSERT_TRUE(o.admitted && !o.scored && o.tokens.empty());
                o.scored = true;
                o.prompt = std::move(e.logprobs);
                break;
            case Kind::token:
                ASSERT_TRUE(o.admitted);
                o.tokens.push_back(e.token);
                for (auto& entry : e.logprobs) o.logprobs.push_back(std::move(entry));
                break;
            case Kind::finished: ASSERT_NE(e.finish, base::FinishReason::none); break;
        }
        o.finish = e.finish;
        o.error = e.error;
        o.detail = e.detail;
        if (e.finish != base::FinishReason::none) --num_open;
    }
}

base::Request random_request(std::uint64_t id, std::uint64_t seed, std::size_t prompt_tokens,
                             std::int32_t max_tokens) {
    std::mt19937_64 rng{seed * 1000 + id};
    base::Request r;
    r.id = base::RequestId{id};
    for (std::size_t i = 0; i < prompt_tokens; ++i) r.prompt.push_back(static_cast<std::int32_t>(rng() % 500));
    r.max_tokens = max_tokens;
    r.sampling.temperature = 0.0F;
    return r;
}

Outcome alone(const base::Request& request, const Loop::Settings& like) {
    Loop::Settings settings;
    settings.model = like.model;
    settings.backends = like.backends;
    Loop loop{settings};
    loop.submit(request);
    EXPECT_EQ(loop.run(), "");
    return std::move(loop.outcomes.at(static_cast<std::uint64_t>(request.id)));
}

}  // namespace engine_test
