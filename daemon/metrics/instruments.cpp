#include "daemon/metrics/instruments.hpp"

#include <algorithm>

namespace metrics {

void Histogram::set_bounds(std::span<const double> bounds) {
    bounds_ = bounds;
    counts_ = std::vector<std::atomic<std::uint64_t>>(bounds.size() + 1);
}

void Histogram::observe(double value) noexcept {
    if (value < 0 || value != value) {
        if (mistakes_ != nullptr) mistakes_->fetch_add(1, std::memory_order_relaxed);
        if (value != value) return;
        value = 0;
    }
    const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
    counts_[static_cast<std::size_t>(bucket)].fetch_add(1, std::memory_order_relaxed);
    double seen = sum_.load(std::memory_order_relaxed);
    while (!sum_.compare_exchange_weak(seen, seen + value, std::memory_order_relaxed)) {
    }
}

Histogram::Snapshot Histogram::snapshot() const {
    Snapshot out;
    out.counts.reserve(counts_.size());
    for (const auto& count : counts_) out.counts.push_back(count.load(std::memory_order_relaxed));
    out.sum = sum_.load(std::memory_order_relaxed);
    return out;
}

}  // namespace metrics
