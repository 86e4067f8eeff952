#pragma once

// The codebooks of the iq formats: for each index the levels of eight (or four) neighbours. Data
// only: the kernels of every tier read it.

#include <cstdint>

namespace ggml {

template <class T, int kSize>
struct Codebook {
    static constexpr int kNumEntries = kSize;
    alignas(64) T entry[kSize];  // byte j belongs to element j
};

extern const Codebook<std::uint64_t, 256> kIq2XxsCodebook;  // 8, 25 or 43
extern const Codebook<std::uint64_t, 512> kIq2XsCodebook;   // the same
extern const Codebook<std::uint64_t, 1024> kIq2SCodebook;   // the same
extern const Codebook<std::uint32_t, 256> kIq3XxsCodebook;  // 4, 12, 20, 28, 36, 44, 52 or 62
extern const Codebook<std::uint32_t, 512> kIq3SCodebook;    // 1, 3, ..., 15
extern const Codebook<std::uint64_t, 2048> kIq1Codebook;    // -8, 0 or 8: eight times the level

}  // namespace ggml
