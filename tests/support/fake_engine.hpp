#pragma once

#include "daemon/base/engine_link.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace support {

/// The engine's end of an EngineLink without a model: every request is answered by a script, one
/// token a step, on a thread of its own. Obeys cancels and pauses, and counts what is live.
class FakeEngine {
public:
    /// What becomes of one request.
    struct Script {
        std::vector<std::int32_t> tokens;  ///< the reply; after it the end-of-generation token
        bool loops = false;                ///< the reply begins again and never ends by itself
        std::int32_t cached_tokens = 0;
        int fail_after = -1;  ///< tokens before `error`; -1: never
        base::Errc error = base::Errc::device_lost;
        bool refuses = false;  ///< `error` in place of everything else
        bool hold = false;  ///< admitted, then nothing until release()
        bool admit_alone = false;  ///< waits until nothing else runs
    };
    using Write = std::function<Script(const base::Request&)>;

    FakeEngine(base::EngineLink& link, std::int32_t eog, Write write)
        : link_{link}, eog_{eog}, write_{std::move(write)}, thread_{[this] { run(); }} {}
    ~FakeEngine() {
        link_.stop();
        thread_.join();
    }
    FakeEngine(const FakeEngine&) = delete;
    FakeEngine& operator=(const FakeEngine&) = delete;

    void set_step_time(std::chrono::microseconds time) { step_us_ = time.count(); }
    /// More requests than these do not wait: they are refused as queue_full.
    void set_max_waiting(std::size_t n) { max_waiting_ = n; }
    [[nodiscard]] std::size_t num_refused() const { return num_refused_; }
    [[nodiscard]] std::size_t most_waiting() const { return most_waiting_; }
    /// Requests that were held go on.
    void release() { released_ = true; }

    [[nodiscard]] std::size_t num_live() const { return num_live_; }
    [[nodiscard]] std::size_t num_paused() const { return num_paused_; }
    [[nodiscard]] std::size_t num_started() const { return num_started_; }
    [[nodiscard]] std::size_t num_cancelled() const { return num_cancelled_; }
    [[nodiscard]] std::size_t num_tokens() const { return num_tokens_; }
    /// Every request so far, as it arrived.
    [[nodiscard]] std::vector<base::Request> requests() const {
        const std::lock_guard lock{mutex_};
        return requests_;
    }

    /// Log-probability of the token chosen at any position, and of the n-th alternative.
    static constexpr float kLogprob = -0.5F;
    static float alternative(int n) { return kLogprob - static_cast<float>(n); }

private:
    struct Live {
        base::Request request;
        Script script;
        std::size_t position = 0;
        std::int32_t generated = 0;
        bool is_paused = false;
    };

    void run() {
        while (!link_.stopped()) {
            base::Submission item;
            while (link_.next(item)) take(item);
            if (live_.empty() && !waiting_.empty()) {
                Live next = std::move(waiting_.front());
                waiting_.pop_front();
                admit(std::move(next));
            }
            step();
            link_.wake_io();
            if ((live_.empty() && waiting_.empty()) || (!live_.empty() && nothing_moves()))
                link_.wait(1);
            if (step_us_ > 0) std::this_thread::sleep_for(std::chrono::microseconds{step_us_});
        }
    }

    [[nodiscard]] bool nothing_moves() const {
        return std::all_of(live_.begin(), live_.end(), [this](const auto& entry) {
            return entry.second.is_paused || (entry.second.script.hold && !released_);
        });
    }

    void take(base::Submission& item) {
        if (auto* cancel = std::get_if<base::Cancel>(&item)) {
            const auto found = live_.find(static_cast<std::uint64_t>(cancel->id));
            if (found == live_.end()) return;
            ++num_cancelled_;
            finish(found->second, base::FinishReason::cancelled);
            live_.erase(found);
        } else if (const auto* pause = std::get_if<base::Pause>(&item)) {
            const auto found = live_.find(static_cast<std::uint64_t>(pause->id));
            if (found != live_.end()) found->second.is_paused = pause->is_paused;
        } else if (auto* request = std::get_if<base::Request>(&item)) {
            {
                const std::lock_guard lock{mutex_};
                requests_.push_back(*request);
            }
            Live live{std::move(*request), {}};
            live.script = write_(live.request);
            if (live.script.admit_alone && waiting_.size() >= max_waiting_) {
                live.script.refuses = true;
                live.script.error = base::Errc::queue_full;
                ++num_refused_;
            }
            if (live.script.refuses) {
                base::TokenEvent refusal = event(live, base::TokenEvent::Kind::finished);
                refusal.finish = base::FinishReason::error;
                refusal.error = live.script.error;
                link_.publish(std::move(refusal));
                return;
            }
            link_.publish(event(live, base::TokenEvent::Kind::accepted));
            if (live.script.admit_alone) {
                waiting_.push_back(std::move(live));
                most_waiting_ = std::max<std::size_t>(most_waiting_, waiting_.size());
            } else {
                admit(std::move(live));
            }
        }
        num_live_ = live_.size();
        num_paused_ = static_cast<std::size_t>(std::count_if(
            live_.begin(), live_.end(), [](const auto& entry) { return entry.second.is_paused; }));
    }

    void admit(Live&& live) {
        base::TokenEvent admitted = event(live, base::TokenEvent::Kind::admitted);
        admitted.cached_tokens = live.script.cached_tokens;
        link_.publish(std::move(admitted));
        score_prompt(live);
        ++num_started_;
        live_.emplace(static_cast<std::uint64_t>(live.request.id), std::move(live));
    }

    void score_prompt(const Live& live) {
        if (!live.request.prompt_logprobs) return;
        base::TokenEvent scored = event(live, base::TokenEvent::Kind::prompt_scored);
        for (const std::int32_t token : live.request.prompt)
            scored.logprobs.push_back(logprobs(token, live.request.num_logprobs));
        link_.publish(std::move(scored));
    }

    void step() {
        for (auto entry = live_.begin(); entry != live_.end();) {
            const bool is_over = advance(entry->second);
            entry = is_over ? live_.erase(entry) : std::next(entry);
        }
        num_live_ = live_.size();
    }

    /// One token. @return whether the request is over
    bool advance(Live& live) {
        if (live.is_paused || (live.script.hold && !released_)) return false;
        if (live.request.max_tokens == 0) return finish(live, base::FinishReason::length);
        if (live.generated == live.script.fail_after) {
            base::TokenEvent failed = event(live, base::TokenEvent::Kind::finished);
            failed.finish = base::FinishReason::error;
            failed.error = live.script.error;
            failed.detail = "scripted failure";
            link_.publish(std::move(failed));
            return true;
        }
        if (live.position == live.script.tokens.size() && live.script.loops) live.position = 0;
        base::TokenEvent out = event(live, base::TokenEvent::Kind::token);
        ++live.generated;
        const bool is_end = live.position >= live.script.tokens.size();
        out.token = is_end ? eog_ : live.script.tokens[live.position++];
        const auto& stops = live.request.stop_tokens;
        if (std::binary_search(stops.begin(), stops.end(), out.token))
            out.finish = base::FinishReason::stop;
        else if (live.generated == live.request.max_tokens)
            out.finish = base::FinishReason::length;
        if (live.request.num_logprobs >= 0)
            out.logprobs.push_back(logprobs(out.token, live.request.num_logprobs));
        ++num_tokens_;
        const bool is_over = out.finish != base::FinishReason::none;
        link_.publish(std::move(out));
        return is_over;
    }

    static base::TokenLogprobs logprobs(std::int32_t token, std::int32_t n) {
        base::TokenLogprobs out{kLogprob, {}};
        for (int i = 0; i < n; ++i) out.top.emplace_back(token + i, alternative(i));
        return out;
    }

    static base::TokenEvent event(const Live& live, base::TokenEvent::Kind kind) {
        base::TokenEvent out;
        out.id = live.request.id;
        out.kind = kind;
        out.at = base::Clock::now();
        return out;
    }

    bool finish(const Live& live, base::FinishReason reason) {
        base::TokenEvent out = event(live, base::TokenEvent::Kind::finished);
        out.finish = reason;
        link_.publish(std::move(out));
        return true;
    }

    base::EngineLink& link_;
    std::int32_t eog_;
    Write write_;
    std::unordered_map<std::uint64_t, Live> live_;
    std::deque<Live> waiting_;
    std::atomic<std::size_t> max_waiting_{static_cast<std::size_t>(-1)};
    std::atomic<std::size_t> num_refused_{0};
    std::atomic<std::size_t> most_waiting_{0};
    std::atomic<std::int64_t> step_us_{0};
    std::atomic<bool> released_{false};
    std::atomic<std::size_t> num_live_{0};
    std::atomic<std::size_t> num_paused_{0};
    std::atomic<std::size_t> num_started_{0};
    std::atomic<std::size_t> num_cancelled_{0};
    std::atomic<std::size_t> num_tokens_{0};
    mutable std::mutex mutex_;
    std::vector<base::Request> requests_;
    std::thread thread_;  // last: it uses all of the above
};

}  // namespace support
