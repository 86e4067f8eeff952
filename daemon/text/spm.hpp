#pragma once

#include "daemon/text/tokenizer.hpp"

#include <memory>

namespace text {

/// SentencePiece BPE (tokenizer.ggml.model = llama): of all adjacent pairs whose joined text is a
/// token, the one with the highest score is merged first. Characters that are no token fall back
/// to byte tokens, then to the unknown token.
/// Source: Kudo & Richardson, "SentencePiece", 2018.
[[nodiscard]] std::unique_ptr<Tokenizer> make_spm(TokenizerParts parts);

}  // namespace text
