#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "daemon/base/engine_link.hpp"
#include "daemon/engine/block_pool.hpp"
#include "daemon/engine/sampler.hpp"
#include "daemon/engine/scheduler.hpp"
#include "daemon/metrics/feeds.hpp"
#include "daemon/model/runner.hpp"

namespace engine {

/// The step loop of one model on one device: admit, plan, forward, sample, commit.
///
/// Owns sequences, blocks and the step plan; shares nothing with the io thread but the EngineLink.
/// A backend that fails ends every live request with an error and the loop with it: no later step
/// can be trusted.
///
/// Thread: engine, which is the one that calls run() (construction: control).
class Engine {
public:
    /// Everything must outlive the engine.
    Engine(const SchedulerLimits& limits, model::Runner& runner, Sampler& sampler, std::int32_t num_blocks,
           base::EngineLink& link, metrics::Engine& metrics);

    /// Until link.stop(), or until a backend fails.
    /// @param on_failure  called with what failed before anybody is answered with it, so that whoever asks
    ///                    again at once is refused
    /// @return empty, or what failed, for the operator
    [[nodiscard]] std::string run(const std::function<void(const std::string&)>& on_failure = {});

    /// After a failure: answers what still arrives with it, until link.stop(). Thread: engine.
    void refuse_until_stopped(const std::string& why);

    /// Sequences that hold KV blocks or wait for them. Any thread.
    [[nodiscard]] std::size_t num_live() const { return num_live_.load(std::memory_order_relaxed); }

private:
    void receive();
    void accept(base::Request&& request);
    void obey(const base::Submission& control);
    void expire();
    template <class Condition>
    void expire_if(base::Errc error, Condition condition);
    [[nodiscard]] bool step();
    void deliver();
    void deliver(Sequence& sequence, Sampled& sampled);
    [[nodiscard]] base::FinishReason finish_reason(const Sequence& sequence) const;
    void finish(base::RequestId id, base::FinishReason reason, base::Errc error = {}, std::string detail = {});
    void fail_all(const std::string& why);
    void update_num_live();
    void update_metrics();

    base::EngineLink& link_;
    metrics::Engine& metrics_;
    model::Runner& runner_;
    Sampler& sampler_;
    BlockPool pool_;
    Scheduler scheduler_;
    std::chrono::milliseconds queue_timeout_;
    model::StepPlan plan_;
    std::vector<Sampled> sampled_;
    std::vector<Sequence*> step_sequences_;
    std::vector<Scheduler::Rows> step_rows_;
    std::vector<base::RequestId> finished_;
    std::vector<base::Submission> controls_;
    base::Clock::time_point now_{};
    base::Clock::time_point next_expiry_check_{};
    std::uint64_t preemptions_seen_ = 0, wasted_seen_ = 0, queried_seen_ = 0, found_seen_ = 0;
    std::atomic<std::size_t> num_live_{0};
};

}  // namespace engine
