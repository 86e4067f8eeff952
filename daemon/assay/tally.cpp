#include "daemon/assay/tally.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>

namespace assay {

void Tally::add(float got, const Estimate& want, std::int64_t row, std::int64_t col) {
    ++count_;
    if (std::bit_cast<std::uint32_t>(got) == kSentinel && defect_.empty())
        defect_ = "row " + std::to_string(row) + ", element " + std::to_string(col) + " was not written";
    const double error = std::fabs(double{got} - want.value);
    // Denormals round absolutely.
    const double sigma = want.sigma + 1e-38;
    double ratio = error == 0 ? 0 : error / sigma;
    if (std::isnan(double{got}) != std::isnan(want.value) || (std::isnan(ratio) && !std::isnan(want.value)))
        ratio = std::numeric_limits<double>::infinity();
    if (std::isnan(ratio)) return;  // NaN where the definition has one
    sum_sq_ratio_ += ratio * ratio;
    if (std::isfinite(ratio)) {
        sum_sq_error_ += error * error;
        sum_sq_value_ += want.value * want.value;
    }
    if (ratio <= worst_ && count_ > 1) return;
    worst_ = ratio;
    row_ = row;
    col_ = col;
    got_ = got;
    want_ = want;
}

void Tally::fail(const std::string& what) {
    if (defect_.empty()) defect_ = what;
}

void Tally::merge(const Tally& other) {
    if (defect_.empty()) defect_ = other.defect_;
    if (other.worst_ >= worst_ && other.count_ > 0) {
        worst_ = other.worst_;
        row_ = other.row_;
        col_ = other.col_;
        got_ = other.got_;
        want_ = other.want_;
    }
    count_ += other.count_;
    sum_sq_ratio_ += other.sum_sq_ratio_;
    sum_sq_error_ += other.sum_sq_error_;
    sum_sq_value_ += other.sum_sq_value_;
}

double Tally::figure() const {
    if (!defect_.empty()) return std::numeric_limits<double>::infinity();
    const double rms = count_ >= kMinForRms ? std::sqrt(sum_sq_ratio_ / static_cast<double>(count_)) : 0.0;
    return std::max(worst_ / kMaxSigmas, rms / kMaxRms);
}

bool Tally::passed() const { return figure() <= 1.0; }

double Tally::relative_error() const {
    return sum_sq_value_ > 0 ? std::sqrt(sum_sq_error_ / sum_sq_value_) : std::sqrt(sum_sq_error_);
}

std::string Tally::what() const {
    if (!defect_.empty()) return defect_;
    if (passed()) return {};
    char text[256];
    std::snprintf(text, sizeof text,
                  "row %lld, element %lld: expected %.7g within %.2g, found %.7g (%.3g times the bound; relative error of all %lld "
                  "compared: %.2g)",
                  static_cast<long long>(row_), static_cast<long long>(col_), want_.value, kMaxSigmas * want_.sigma,
                  static_cast<double>(got_), figure(), static_cast<long long>(count_), relative_error());
    return text;
}

}  // namespace assay
