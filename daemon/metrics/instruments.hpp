#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace metrics {

/// Counts deltas that made no sense (negative, NaN) instead of letting them spoil a value or fail
/// a request.
using Mistakes = std::atomic<std::uint64_t>;

/// A value that only grows. One relaxed atomic: each counter has one writing thread (io or
/// engine), so there is nothing to shard. Any thread.
class Counter {
public:
    void add(std::int64_t delta = 1) noexcept {
        if (delta < 0) {
            if (mistakes_ != nullptr) mistakes_->fetch_add(1, std::memory_order_relaxed);
            return;
        }
        value_.fetch_add(static_cast<std::uint64_t>(delta), std::memory_order_relaxed);
    }
    [[nodiscard]] std::uint64_t value() const noexcept {
        return value_.load(std::memory_order_relaxed);
    }
    void report_mistakes_to(Mistakes& mistakes) noexcept { mistakes_ = &mistakes; }

private:
    std::atomic<std::uint64_t> value_{0};
    Mistakes* mistakes_ = nullptr;
};

/// A value that goes up and down. Any thread.
class Gauge {
public:
    void set(double value) noexcept {
        if (value != value) {
            if (mistakes_ != nullptr) mistakes_->fetch_add(1, std::memory_order_relaxed);
            return;
        }
        value_.store(value, std::memory_order_relaxed);
    }
    void add(double delta) noexcept {
        double seen = value_.load(std::memory_order_relaxed);
        while (!value_.compare_exchange_weak(seen, seen + delta, std::memory_order_relaxed)) {
        }
    }
    [[nodiscard]] double value() const noexcept { return value_.load(std::memory_order_relaxed); }
    void report_mistakes_to(Mistakes& mistakes) noexcept { mistakes_ = &mistakes; }

private:
    std::atomic<double> value_{0};
    Mistakes* mistakes_ = nullptr;
};

/// Observations in buckets of fixed upper bounds. Any thread; no lock.
class Histogram {
public:
    /// A scrape's view; `counts` are per bucket, the last one is above every bound.
    struct Snapshot {
        std::vector<std::uint64_t> counts;  // [bounds + 1]
        double sum = 0;
    };

    /// @param bounds  ascending, inclusive; must outlive the histogram
    void set_bounds(std::span<const double> bounds);
    /// Negative values count as 0; NaN is dropped.
    void observe(double value) noexcept;
    [[nodiscard]] Snapshot snapshot() const;
    void report_mistakes_to(Mistakes& mistakes) noexcept { mistakes_ = &mistakes; }

private:
    std::span<const double> bounds_;
    std::vector<std::atomic<std::uint64_t>> counts_;  // [bounds + 1], sized once
    std::atomic<double> sum_{0};
    Mistakes* mistakes_ = nullptr;
};

}  // namespace metrics
