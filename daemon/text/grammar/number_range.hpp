#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace grammar {

/// Digits that an unbounded integer may have.
inline constexpr int kMaxDigits = 18;

/// A pattern for the decimal integers of a range, ends included; "" for an empty range. Bounds that
/// are missing, or have more digits than kMaxDigits, are those of kMaxDigits digits.
[[nodiscard]] std::string integer_pattern(std::optional<std::int64_t> min,
                                          std::optional<std::int64_t> max);

/// A pattern for decimal numbers between two integers: without exponent, with up to kMaxDigits
/// digits behind the point. "" for an empty range.
/// @param exclusive  whether the bound itself is outside
[[nodiscard]] std::string decimal_pattern(std::optional<std::int64_t> min, bool exclusive_min,
                                          std::optional<std::int64_t> max, bool exclusive_max);

/// Any JSON number, of a bounded length.
[[nodiscard]] std::string number_pattern();

}  // namespace grammar
