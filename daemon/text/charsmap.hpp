#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace text {

/// The normalization table of a unigram model (tokenizer.ggml.precompiled_charsmap): which
/// stretches of a text stand for which others.
///
/// Layout: a little-endian u32, the bytes of a double-array trie of u32 units; the trie; then
/// NUL-terminated replacements. A unit: bits 0-7 its label, bit 31 set where it holds a value; bit
/// 8: a value hangs below; bits 10-31: the base, shifted by 8 where bit 9 is set.
/// Source: SentencePiece's normalizer, and Darts-clone. Immutable; any thread.
class Charsmap {
public:
    /// @param blob  "" for none: every text stays
    /// Throws base::ModelError when the sizes do not fit, or the last replacement does not end.
    explicit Charsmap(std::string_view blob);

    struct Match {
        std::size_t bytes = 0;         ///< of the text; 0: nothing here is replaced
        std::string_view replacement;  ///< may be ""
    };
    /// The longest stretch at the beginning of a text that has a replacement.
    [[nodiscard]] Match longest_at(std::string_view text) const noexcept;

private:
    std::vector<std::uint32_t> units_;
    std::string replacements_;
};

}  // namespace text
