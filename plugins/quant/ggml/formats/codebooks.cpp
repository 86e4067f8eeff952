#include "plugins/quant/ggml/formats/expand.hpp"

namespace ggml {

// clang-format off
constinit const Codebook<std::uint64_t, 256> kIq2XxsCodebook = expand<std::uint64_t, 256>(kIq2xxsSet, kLevels2);
constinit const Codebook<std::uint64_t, 512> kIq2XsCodebook = expand<std::uint64_t, 512>(kIq2xsSet, kLevels2);
constinit const Codebook<std::uint64_t, 1024> kIq2SCodebook = expand<std::uint64_t, 1024>(kIq2sSet, kLevels2);
constinit const Codebook<std::uint32_t, 256> kIq3XxsCodebook = expand<std::uint32_t, 256>(kIq3xxsSet, kLevels3Xxs);
constinit const Codebook<std::uint32_t, 512> kIq3SCodebook = expand<std::uint32_t, 512>(kIq3sSet, kLevels3S);
constinit const Codebook<std::uint64_t, 2048> kIq1Codebook = expand<std::uint64_t, 2048>(kIq1sSet, kLevels1);
// clang-format on

}  // namespace ggml
