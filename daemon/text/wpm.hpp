#pragma once

#include "daemon/text/tokenizer.hpp"

#include <memory>

namespace text {

struct WpmOptions {
    bool lowercase = true;
    bool strip_accents = true;
};

/// WordPiece (tokenizer.ggml.model "bert"): words, each cut into the longest tokens from the left;
/// a word with a stretch that is no token is one unknown token.
/// Source: Hugging Face tokenizers, BertNormalizer, BertPreTokenizer and WordPiece.
[[nodiscard]] std::unique_ptr<Tokenizer> make_wpm(TokenizerParts parts, WpmOptions options);

}  // namespace text
