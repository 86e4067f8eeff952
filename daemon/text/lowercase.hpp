#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace text {

/// Characters first, first + step, … last, whose lower-case form is `distance` away.
struct LowercaseRun {
    char32_t first, last;
    std::uint8_t step;
    std::int32_t distance;
};

[[nodiscard]] std::span<const LowercaseRun> lowercase_runs();  // ascending

/// Every character in lower case, each by itself: a sigma at the end of a word is no special case.
/// Ill-formed parts are kept as they are.
/// Source: Unicode Character Database, simple lower-case mappings, and the full one of U+0130.
[[nodiscard]] std::string to_lowercase(std::string_view text);

}  // namespace text
