#pragma once

// The codebooks from their sets, while compiling: for the host's copy (codebooks.cpp) and the GPU's.

#include "plugins/quant/ggml/formats/codebooks.hpp"

#include <cstddef>

namespace ggml {

#include "plugins/quant/ggml/formats/codebooks.inc"

inline constexpr std::uint8_t kLevels2[] = {8, 25, 43};
inline constexpr std::uint8_t kLevels3Xxs[] = {4, 12, 20, 28, 36, 44, 52, 62};
inline constexpr std::uint8_t kLevels3S[] = {1, 3, 5, 7, 9, 11, 13, 15};
inline constexpr std::uint8_t kLevels1[] = {0xf8, 0, 8};

/// Entry i is the i-th smallest code of the set, a digit an element: the levels of its digits.
template <class T, int kSize, std::size_t kNumLevels, std::size_t kNumWords>
constexpr Codebook<T, kSize> expand(const std::uint64_t (&set)[kNumWords],
                                    const std::uint8_t (&levels)[kNumLevels]) {
    Codebook<T, kSize> book{};
    std::size_t num = 0;
    for (std::size_t code = 0; code < kNumWords * 64; ++code) {
        if ((set[code / 64] >> (code % 64) & 1u) == 0) continue;
        std::size_t digits = code;
        for (std::size_t j = 0; j < sizeof(T); ++j, digits /= kNumLevels)
            book.entry[num] |= static_cast<T>(T{levels[digits % kNumLevels]} << (8 * j));
        ++num;
    }
    if (num != kSize) throw "the set has another size";
    return book;
}

}  // namespace ggml
