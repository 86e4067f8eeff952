#pragma once

#include "daemon/text/merge_table.hpp"
#include "daemon/text/tokenizer.hpp"

#include <memory>

namespace text {

struct PretokenizerRow;

struct BpeOptions {
    bool nfc = false;        ///< normalize first
    bool lowercase = false;  ///< likewise
};

/// BPE (tokenizer.ggml.model = gpt2 and its relatives), over bytes or over characters as the row
/// says.
///
/// Text is cut into pieces (Pretokenizer), and within each piece the adjacent pair that comes
/// first in tokenizer.ggml.merges is merged, until none is left.
/// Source: Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units", 2016.
[[nodiscard]] std::unique_ptr<Tokenizer> make_bpe(TokenizerParts parts, MergeTable merges,
                                                  const PretokenizerRow& row, BpeOptions options);

}  // namespace text
