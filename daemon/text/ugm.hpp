#pragma once

#include "daemon/text/charsmap.hpp"
#include "daemon/text/tokenizer.hpp"

#include <memory>

namespace text {

struct UgmOptions {
    bool remove_extra_whitespaces = false;
};

/// Unigram (tokenizer.ggml.model "t5"): of all ways to cut the normalized text into tokens, the one
/// with the greatest sum of scores. A character that is no token is an unknown one; unknown
/// neighbours are one token.
/// Source: SentencePiece's normalizer and unigram model.
[[nodiscard]] std::unique_ptr<Tokenizer> make_ugm(TokenizerParts parts, Charsmap charsmap,
                                                  UgmOptions options);

}  // namespace text
