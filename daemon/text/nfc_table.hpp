#pragma once

#include <cstdint>
#include <span>

namespace text {

/// The canonical decomposition of a character into one or two others, not applied recursively.
struct Decomposition {
    char32_t code_point;
    char32_t first;
    char32_t second;  ///< 0: a singleton
    bool composes;    ///< false: NFC does not put these two together
};

/// Characters with one canonical combining class other than 0.
struct CombiningRange {
    char32_t first, last;
    std::uint8_t combining_class;
};

[[nodiscard]] std::span<const Decomposition> decompositions();     // ascending
[[nodiscard]] std::span<const CombiningRange> combining_ranges();  // ascending

}  // namespace text
