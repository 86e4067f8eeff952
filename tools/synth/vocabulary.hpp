#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace synth {

/// A byte-level BPE vocabulary that encodes any text: 256 bytes, merges of lower-case letters and
/// a leading space, and control tokens at the end.
struct Vocabulary {
    std::vector<std::string> tokens, merges;
    std::vector<std::int32_t> types;
    std::uint32_t bos = 0, eos = 0, eot = 0;
    std::string chat_template;  ///< Jinja2
};

inline constexpr std::uint32_t kMinVocabulary = 264;

/// @param size  tokens, from kMinVocabulary to 475,000. @throws std::invalid_argument
[[nodiscard]] Vocabulary make_vocabulary(std::uint32_t size);

}  // namespace synth
