#pragma once

#include "daemon/text/text_range.hpp"
#include "daemon/text/vocabulary.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace text {

/// One stretch of a text: either a special token, or raw text between them.
struct Fragment {
    std::int32_t token = kNoToken;  ///< kNoToken: raw text
    std::string_view text;
};

/// Finds the texts of special tokens in a text, leftmost first, and of several that begin at one
/// place the longest.
///
/// Source: Hugging Face tokenizers, added-token matching (one leftmost-longest pass).
class SpecialSplitter {
public:
    /// @param model_name    general.name: some models' tokens take the white space beside them
    /// @param pre           tokenizer.ggml.pre, and architecture: general.architecture, likewise
    SpecialSplitter(const Vocabulary& vocabulary, std::string_view model_name, std::string_view pre,
                    std::string_view architecture);

    /// @param parse_special  false: only user-defined tokens are looked for
    /// @param plain          where even so only user-defined ones are; ascending, apart
    /// @return the text in order; raw fragments are never empty and never adjacent
    [[nodiscard]] std::vector<Fragment> split(std::string_view text, bool parse_special,
                                              std::span<const TextRange> plain = {}) const;

private:
    struct Ending {
        std::int32_t token = kNoToken;
        bool user_defined = false;
        bool strip_left = false;   ///< takes the white space before it
        bool strip_right = false;  ///< takes the white space after it
    };

    void add(std::string_view text, Ending ending);
    [[nodiscard]] const Ending* longest_at(std::string_view text, bool parse_special,
                                           std::size_t& bytes) const;

    std::array<bool, 256> is_first_{};                           // bytes that begin a special token
    std::vector<Ending> nodes_{1};                               // trie; the root is 0
    std::unordered_map<std::uint64_t, std::uint32_t> children_;  // node * 256 + byte -> node
};

}  // namespace text
