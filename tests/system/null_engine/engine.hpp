#pragma once

#include "daemon/base/engine_link.hpp"
#include "tests/system/null_engine/script.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <unordered_map>
#include <vector>

namespace null_engine {

/// The engine's end of an EngineLink without a model, for measuring what the server costs: each
/// step gives every live sequence that is not paused one token, at a given pace, and wakes the io
/// thread once. Requests that a script knows are answered by it, all others by time stamps
/// (codec.hpp).
class Engine {
public:
    /// @param period  from one step to the next; 0: as fast as the io thread takes events
    Engine(base::EngineLink& link, const Script& script, std::chrono::nanoseconds period);
    ~Engine();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    [[nodiscard]] std::uint64_t num_tokens() const { return num_tokens_; }
    [[nodiscard]] std::size_t num_live() const { return num_live_; }
    [[nodiscard]] std::size_t num_paused() const { return num_paused_; }

private:
    struct Live {
        base::RequestId id;
        std::int32_t max_tokens;
        std::int32_t generated = 0;
        const std::vector<std::int32_t>* reply;  // null: time stamps
        bool is_paused = false;
    };

    void run();
    void take(base::Submission& item);
    void begin(const base::Request& request);
    void step();
    /// One token. @return whether the sequence is over
    bool advance(Live& live, base::Clock::time_point now);
    void publish(base::RequestId id, base::TokenEvent::Kind kind, base::FinishReason finish);
    void remove(std::size_t at);

    base::EngineLink& link_;
    const Script& script_;
    std::chrono::nanoseconds period_;
    std::vector<Live> live_;                                   // in no order
    std::unordered_map<std::uint64_t, std::size_t> position_;  // of a request in live_
    std::atomic<std::uint64_t> num_tokens_{0};
    std::atomic<std::size_t> num_live_{0};
    std::atomic<std::size_t> num_paused_{0};
    std::thread thread_;  // last: it uses all of the above
};

}  // namespace null_engine
