#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace assay {

/// An output as the definition has it, and how far rounding may move it: one standard deviation, from
/// the format and dtypes of its inputs (docs/assay.md, "Bounds").
struct Estimate {
    double value = 0;
    double sigma = 0;
};

/// What nobody computes: all bits set, a NaN in every float dtype and -1 as an integer. Outputs are
/// filled with it beforehand; what still holds it afterwards was not written.
inline constexpr std::uint32_t kSentinel = 0xffffffffU;
inline constexpr int kSentinelByte = 0xff;

/// Compares outputs with estimates and remembers the worst.
///
/// An output passes within kMaxSigmas of its value. Rounding errors are bounded and independent, so
/// that by Hoeffding's inequality a sum of them lies outside 8 sigma, sigma^2 being the sum of their
/// squared ranges' halves, once in 4e13. All outputs together pass when the root of their mean squared
/// error is at most kMaxRms sigma; what bounded errors can do at most is 1.
class Tally {
public:
    static constexpr double kMaxSigmas = 8;
    static constexpr double kMaxRms = 2;
    static constexpr std::int64_t kMinForRms = 64;  ///< fewer outputs say nothing of their mean

    void add(float got, const Estimate& want, std::int64_t row, std::int64_t col);
    /// A defect that has no number: an output not written, a guard overwritten. The first is kept.
    void fail(const std::string& what);
    void merge(const Tally& other);

    [[nodiscard]] std::int64_t count() const { return count_; }
    [[nodiscard]] bool passed() const;
    /// Share of the bound, at most 1 when passed: the larger of worst / 8 sigma and rms / 2 sigma.
    [[nodiscard]] double figure() const;
    /// Root of mean squared error over root of mean square of the values.
    [[nodiscard]] double relative_error() const;
    /// "" when passed, else what was expected and found, and where.
    [[nodiscard]] std::string what() const;

private:
    std::int64_t count_ = 0, row_ = 0, col_ = 0;
    double worst_ = 0, sum_sq_ratio_ = 0, sum_sq_error_ = 0, sum_sq_value_ = 0;
    float got_ = 0;
    Estimate want_;
    std::string defect_;
};

}  // namespace assay
