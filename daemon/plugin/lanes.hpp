#pragma once

#include "abi/common.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace plugin {

/// Worker lanes lent to plugins' CPU code: width - 1 threads, and the thread that calls run().
///
/// Items are claimed in shrinking chunks, so that uneven items balance; which lane runs which item
/// changes from call to call, and arithmetic must not depend on it. Idle lanes spin for `spin`,
/// then sleep, so a decode step that calls run() every few microseconds pays no system call, and an
/// idle daemon takes no processor time. A lane that is slow to wake delays nobody: the others take
/// its share.
///
/// Thread: run() by one thread at a time, never from inside an item (checked; aborts). Cost: no
/// allocation, no lock.
class WorkerLanes {
public:
    struct Settings {
        std::uint32_t width = 1;             ///< lanes, the caller's included; at least 1
        std::chrono::microseconds spin{40};  ///< before an idle lane sleeps
        std::string name = "lane";           ///< threads are called name/1, name/2, …
    };

    /// Starts the threads. Spinning is switched off where `width` exceeds the processors that this
    /// process may use: a spinning lane would then hold up the one that has work.
    /// Throws std::system_error when a thread cannot be started.
    explicit WorkerLanes(Settings settings);
    ~WorkerLanes();
    WorkerLanes(const WorkerLanes&) = delete;
    WorkerLanes& operator=(const WorkerLanes&) = delete;

    [[nodiscard]] std::uint32_t width() const noexcept { return abi_.width; }

    /// What a stream and the service parallel/1 carry. Lives as long as this object.
    [[nodiscard]] const assay_lanes* abi() const noexcept { return &abi_; }

    /// Calls fn(arg, i, lane) once for each i in [0, n); returns when all are done.
    void run(std::uint32_t n, void (*fn)(void*, std::uint32_t, std::uint32_t), void* arg) noexcept;

    /// Processors that this process may run on, by its affinity and its control group; at least 1. More
    /// lanes than a quota allows would be stopped together in the middle of a step.
    [[nodiscard]] static std::uint32_t num_processors();

private:
    using Item = void (*)(void*, std::uint32_t, std::uint32_t);

    void work(std::uint32_t lane) noexcept;
    void wait_for_run(std::uint32_t seen) noexcept;
    void wait_for_rest() noexcept;
    void drain(std::uint32_t generation, std::uint32_t lane) noexcept;
    void stop() noexcept;

    // One run is one generation. `ticket_` holds the generation (high half) and the next unclaimed
    // item (low half), so a lane that wakes late can never claim an item of a run it has not read.
    alignas(64) std::atomic<std::uint64_t> ticket_{0};
    alignas(64) std::atomic<std::uint32_t> pending_{0};  // items not finished; a futex
    alignas(64) std::atomic<std::uint32_t> epoch_{0};    // latest generation; a futex
    std::atomic<std::uint32_t> sleepers_{0};
    std::atomic<bool> caller_sleeps_{false};
    std::atomic<bool> stopping_{false};
    std::atomic<bool> busy_{false};
    std::atomic<std::uint32_t> num_items_{0};
    std::atomic<Item> item_{nullptr};
    std::atomic<void*> arg_{nullptr};

    assay_lanes abi_{};
    std::chrono::microseconds spin_;
    std::vector<std::thread> threads_;  // [width - 1]
};

}  // namespace plugin
