#include "histogram.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace load {

std::size_t Histogram::bucket_of(std::uint64_t value) {
    constexpr std::uint64_t kWhole = std::uint64_t{1} << kBits;
    if (value < kWhole) return static_cast<std::size_t>(value);
    const int shift = static_cast<int>(std::bit_width(value)) - 1 - kBits;
    return (static_cast<std::size_t>(shift + 1) << kBits) +
           static_cast<std::size_t>((value >> shift) - kWhole);
}

std::uint64_t Histogram::upper_bound(std::size_t bucket) {
    constexpr std::size_t kWhole = std::size_t{1} << kBits;
    if (bucket < kWhole) return bucket;
    const std::size_t shift = (bucket >> kBits) - 1;
    const std::uint64_t first = static_cast<std::uint64_t>(kWhole + (bucket & (kWhole - 1)))
                                << shift;
    return first + (std::uint64_t{1} << shift) - 1;
}

void Histogram::record(std::int64_t nanoseconds) {
    const auto value = static_cast<std::uint64_t>(std::max<std::int64_t>(nanoseconds, 0));
    ++buckets_[bucket_of(value)];
    ++count_;
    sum_ += value;
    max_ = std::max(max_, value);
}

double Histogram::mean_ms() const {
    return count_ == 0 ? 0 : static_cast<double>(sum_) / static_cast<double>(count_) / 1e6;
}

double Histogram::percentile_ms(double share) const {
    if (count_ == 0) return 0;
    const auto rank = std::max<std::uint64_t>(
        1, static_cast<std::uint64_t>(std::ceil(share * static_cast<double>(count_))));
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
        seen += buckets_[i];
        if (seen >= rank) return static_cast<double>(std::min(upper_bound(i), max_)) / 1e6;
    }
    return max_ms();
}

}  // namespace load
