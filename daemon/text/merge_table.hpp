#pragma once

#include "daemon/text/vocabulary.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace text {

/// The merges of a BPE vocabulary, by pairs of symbol ids.
///
/// A symbol is a token (its id is the token's) or a text that occurs only inside merges (its id is
/// vocab_size or more). Immutable after construction.
class MergeTable {
public:
    struct Merge {
        std::int32_t rank = -1;    ///< its place in tokenizer.ggml.merges; -1: no such merge
        std::int32_t merged = -1;  ///< symbol id of the joined text
    };

    /// @param merges  "left right" each; of a repeated pair the first counts
    /// Throws base::ModelError on an entry without a separating space.
    MergeTable(const Vocabulary& vocabulary, const std::vector<std::string>& merges);

    [[nodiscard]] Merge find(std::int32_t left, std::int32_t right) const noexcept;

    /// The symbol of a single byte; -1 when no token and no merge has it.
    [[nodiscard]] std::int32_t byte_symbol(unsigned char byte) const noexcept {
        return byte_symbols_[byte];
    }

    /// Which tokens some merge results in.
    [[nodiscard]] const std::vector<bool>& results() const noexcept { return results_; }

    /// The symbol of a single character; -1 when no token and no merge has it.
    [[nodiscard]] std::int32_t character_symbol(const Vocabulary& vocabulary,
                                                std::string_view character) const;

private:
    struct Slot {
        std::uint64_t pair = kNoPair;
        Merge merge;
    };
    static constexpr std::uint64_t kNoPair = ~std::uint64_t{0};

    [[nodiscard]] std::size_t slot_of(std::uint64_t pair) const noexcept;

    std::vector<Slot> slots_;  // open addressing, a power of two, at most half full
    std::int32_t byte_symbols_[256];
    std::unordered_map<std::string, std::int32_t> characters_;  // those that are no token
    std::vector<bool> results_;                                 // [vocab_size]
};

}  // namespace text
