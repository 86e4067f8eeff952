#include "plugins/quant/ggml/formats/codebooks.hpp"

#include <cstddef>

namespace ggml {
namespace {

#include "plugins/quant/ggml/formats/codebooks.inc"

constexpr std::uint8_t kLevels2[] = {8, 25, 43};
constexpr std::uint8_t kLevels3Xxs[] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr std::uint8_t kLevels3S[] = {1, 3, 5, 7, 9, 11, 13, 15};
constexpr std::uint8_t kLevels1[] = {0xf8, 0, 8};

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

}  // namespace

// clang-format off
constinit const Codebook<std::uint64_t, 256> kIq2XxsCodebook = expand<std::uint64_t, 256>(kIq2xxsSet, kLevels2);
constinit const Codebook<std::uint64_t, 512> kIq2XsCodebook = expand<std::uint64_t, 512>(kIq2xsSet, kLevels2);
constinit const Codebook<std::uint64_t, 1024> kIq2SCodebook = expand<std::uint64_t, 1024>(kIq2sSet, kLevels2);
constinit const Codebook<std::uint32_t, 256> kIq3XxsCodebook = expand<std::uint32_t, 256>(kIq3xxsSet, kLevels3Xxs);
constinit const Codebook<std::uint32_t, 512> kIq3SCodebook = expand<std::uint32_t, 512>(kIq3sSet, kLevels3S);
constinit const Codebook<std::uint64_t, 2048> kIq1Codebook = expand<std::uint64_t, 2048>(kIq1sSet, kLevels1);
// clang-format on

}  // namespace ggml
