#pragma once

// Lanes for tests: an assay_lanes over a few threads, or over the caller alone.

#include "abi/common.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace support {

/// `width` lanes: the calling thread is lane 0, the others are threads of this object. Width 1 (the
/// default) starts no thread and runs items in order. Items go to whichever lane asks next, so a
/// result that depends on the lane shows up as a flaky test, and TSan sees real threads.
///
/// One run() at a time, from one thread. The object must outlive every pointer to get().
class TestLanes {
public:
    explicit TestLanes(std::uint32_t width = 1) {
        lanes_.size = sizeof lanes_;
        lanes_.width = width == 0 ? 1 : width;
        lanes_.ctx = this;
        lanes_.run = [](const assay_lanes* lanes, std::uint32_t n, Fn fn, void* arg) {
            static_cast<TestLanes*>(lanes->ctx)->run(n, fn, arg);
        };
        for (std::uint32_t lane = 1; lane < lanes_.width; ++lane)
            workers_.emplace_back([this, lane] { work(lane); });
    }

    ~TestLanes() {
        {
            const std::lock_guard lock{mutex_};
            is_stopping_ = true;
        }
        wake_.notify_all();
        for (std::thread& worker : workers_) worker.join();
    }

    TestLanes(const TestLanes&) = delete;
    TestLanes& operator=(const TestLanes&) = delete;

    [[nodiscard]] const assay_lanes* get() const noexcept { return &lanes_; }

private:
    using Fn = void (*)(void* arg, std::uint32_t i, std::uint32_t lane);

    void run(std::uint32_t n, Fn fn, void* arg) {
        if (workers_.empty()) {
            for (std::uint32_t i = 0; i < n; ++i) fn(arg, i, 0);
            return;
        }
        {
            const std::lock_guard lock{mutex_};
            fn_ = fn;
            arg_ = arg;
            num_items_ = n;
            next_.store(0, std::memory_order_relaxed);
            num_busy_ = static_cast<std::uint32_t>(workers_.size());
            ++generation_;
        }
        wake_.notify_all();
        take_items(fn, arg, n, 0);
        std::unique_lock lock{mutex_};
        done_.wait(lock, [this] { return num_busy_ == 0; });
    }

    void take_items(Fn fn, void* arg, std::uint32_t n, std::uint32_t lane) {
        for (std::uint32_t i = next_.fetch_add(1); i < n; i = next_.fetch_add(1)) fn(arg, i, lane);
    }

    void work(std::uint32_t lane) {
        std::uint64_t seen = 0;
        std::unique_lock lock{mutex_};
        for (;;) {
            wake_.wait(lock, [&] { return is_stopping_ || generation_ != seen; });
            if (is_stopping_) return;
            seen = generation_;
            const Fn fn = fn_;
            void* const arg = arg_;
            const std::uint32_t n = num_items_;
            lock.unlock();
            take_items(fn, arg, n, lane);
            lock.lock();
            if (--num_busy_ == 0) done_.notify_one();
        }
    }

    assay_lanes lanes_{};
    std::mutex mutex_;
    std::condition_variable wake_, done_;
    std::atomic<std::uint32_t> next_{0};
    std::uint64_t generation_ = 0;  // of run() calls; a worker joins each once
    std::uint32_t num_items_ = 0, num_busy_ = 0;
    bool is_stopping_ = false;
    Fn fn_ = nullptr;
    void* arg_ = nullptr;
    std::vector<std::thread> workers_;
};

}  // namespace support
