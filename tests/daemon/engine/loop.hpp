#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/app/stack.hpp"
#include "daemon/base/engine_link.hpp"
#include "daemon/engine/engine.hpp"
#include "daemon/metrics/feeds.hpp"

namespace engine_test {

/// A small model of tests/golden with real plugins. Made once per process and setting.
/// @param model     folder of <build>/goldens
/// @param backends  "reference" (definitions) or "cpu" (vector code)
app::Stack& stack_of(const std::string& model, const std::string& backends);

/// int32 or float32 file of <build>/goldens/<model>.
template <class T>
std::vector<T> golden(const std::string& model, const std::string& file);

/// What became of one request, checked for the order of its events as they came.
struct Outcome {
    std::vector<std::int32_t> tokens;
    std::vector<base::TokenLogprobs> logprobs, prompt;
    base::FinishReason finish = base::FinishReason::none;
    base::Errc error{};
    std::string detail;
    std::int32_t cached_tokens = 0;
    bool accepted = false, admitted = false, scored = false;
};

/// The step loop with its io end on the same thread: whatever the test does between steps happens
/// there exactly, run after run.
class Loop {
public:
    struct Settings {
        std::string model = "llama-gqa", backends = "cpu";
        std::int32_t num_blocks = 64;  ///< of 16 tokens
        std::int32_t max_num_seqs = 16, max_num_batched_tokens = 64, max_logit_rows = 32;
        std::int32_t max_waiting = 64;
        std::chrono::milliseconds queue_timeout{3'600'000};
    };
    explicit Loop(Settings settings, engine::Sampler* sampler = nullptr);

    /// Called after each step that published something, with 1, 2, …; events are taken already.
    std::function<void(std::size_t round)> on_round;
    void submit(base::Request request);
    void cancel(std::uint64_t id) { link.cancel(base::RequestId{id}); }
    /// Runs until every request submitted has ended. Returns what Engine::run() did.
    std::string run();

    std::map<std::uint64_t, Outcome> outcomes;
    std::size_t num_open = 0;
    base::EngineLink link{256};
    metrics::Registry registry;
    metrics::Engine metrics{registry};

private:
    void take_events();

    app::Stack& stack_;
    std::unique_ptr<engine::Sampler> own_sampler_;

public:
    engine::Engine engine;

private:
    std::vector<base::TokenEvent> events_;
    std::size_t rounds_ = 0;
};

/// Greedy, with a prompt of random tokens.
[[nodiscard]] base::Request random_request(std::uint64_t id, std::uint64_t seed, std::size_t prompt_tokens,
                                           std::int32_t max_tokens);

/// The same request alone, with room for everything.
[[nodiscard]] Outcome alone(const base::Request& request, const Loop::Settings& like = {});

}  // namespace engine_test
