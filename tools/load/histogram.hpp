#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace load {

/// How often which time was seen, in a fixed amount of memory: each power of two of nanoseconds has
/// 64 equal buckets, so a percentile is off by less than 1.6 %. Recording is a few instructions.
class Histogram {
public:
    void record(std::int64_t nanoseconds);

    [[nodiscard]] std::uint64_t count() const { return count_; }
    [[nodiscard]] double mean_ms() const;
    [[nodiscard]] double max_ms() const { return static_cast<double>(max_) / 1e6; }
    /// The time that `share` (0 to 1) of all did not exceed, in milliseconds; 0 when nothing was
    /// recorded.
    [[nodiscard]] double percentile_ms(double share) const;

private:
    static constexpr int kBits = 6;  // buckets a power of two, as a power of two
    static std::size_t bucket_of(std::uint64_t value);
    static std::uint64_t upper_bound(std::size_t bucket);

    std::array<std::uint64_t, std::size_t{64} << kBits> buckets_{};
    std::uint64_t count_ = 0;
    std::uint64_t sum_ = 0;
    std::uint64_t max_ = 0;
};

}  // namespace load
