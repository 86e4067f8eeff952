#pragma once

#include "daemon/base/metadata.hpp"
#include "daemon/text/vocabulary.hpp"

#include <cstdint>
#include <string_view>
#include <vector>

namespace text {

/// Ids that a kind of model has when the file names none.
struct SpecialDefaults {
    std::int32_t bos = kNoToken;
    std::int32_t eos = kNoToken;
    std::int32_t unk = kNoToken;
    std::int32_t sep = kNoToken;
    std::int32_t pad = kNoToken;
    std::int32_t mask = kNoToken;
};

/// Tokens that plain text can become by merging; a file that spells one of them like a well-known
/// mark (some vocabularies have "</s>" as an HTML tag) does not mean that mark.
using OrdinaryTokens = std::vector<bool>;  // [vocab_size], or empty: none known

/// The special ids: the file's keys over the defaults, then well-known texts for those still
/// unknown; tokens found by text become control tokens. Ids outside the vocabulary count as
/// missing.
[[nodiscard]] SpecialIds find_special_ids(const base::Metadata& metadata,
                                          const SpecialDefaults& defaults,
                                          const OrdinaryTokens& ordinary, Vocabulary& vocabulary);

/// The end-of-generation set, ascending. Also corrects the types of the tokens it concerns (a
/// well-known end marker is a control token whatever the file says).
/// @param pre  tokenizer.ggml.pre, "" when the model has none
[[nodiscard]] std::vector<std::int32_t> find_eog_ids(const SpecialIds& special,
                                                     std::string_view pre,
                                                     const OrdinaryTokens& ordinary,
                                                     Vocabulary& vocabulary);

}  // namespace text
