#pragma once

// Definitions of what happens between logits and a token: edits, masks, log-probabilities and the
// draw. One row of vocab_size f32 logits at a time; double arithmetic, plain sorts.
//
// Only finite logits take part. NaN and infinities of either sign have probability zero, so that a
// broken row can neither crash a sampler nor be chosen; a row without any finite logit yields no
// token (-1), which the caller must treat as a failure of whoever made the logits.

#include "abi/device.h"

#include <cstdint>
#include <vector>

namespace sdk::reference {

/// logits[row, token] = (l > 0 ? l / repetition : l * repetition) + add, for each edit.
/// @param logits  [rows, vocab_size]
/// Source: Keskar et al., "CTRL", 2019, section 4.1 (repetition); the additive part is the OpenAI
/// API reference's presence and frequency penalties and logit_bias.
void logits_edit(float* logits, std::int64_t vocab_size, const assay_logit_edit* edits,
                 std::int64_t num_edits);

/// logits[token] = -inf where bit token % 32 of bits[token / 32] is 0.
void logits_mask(float* logits, std::int64_t vocab_size, const std::uint32_t* bits);

/// Ids of the finite logits, largest first, lower id first of equals.
[[nodiscard]] std::vector<std::int32_t> descending_ids(const float* logits,
                                                       std::int64_t vocab_size);

/// One candidate of a draw: its id and its probability after every cut.
struct Candidate {
    std::int32_t id;
    double probability;
};

/// The distribution that sample() draws from, most likely first, lower id first of equals.
///
///   temperature 0 (or not above 0): the largest logit alone
///   p = softmax(logits / temperature)
///   top_k > 0: the top_k most likely; p is renormalised
///   top_p < 1: the shortest prefix whose sum reaches top_p, at least one; p is renormalised
///   min_p > 0: those with p >= min_p * (largest p); p is renormalised
///
/// Source: Holtzman et al., "The Curious Case of Neural Text Degeneration", 2019, section 3.1
/// (top_p); Fan et al., "Hierarchical Neural Story Generation", 2018, section 5.4 (top_k); Nguyen
/// et al., "Turning Up the Heat: Min-p Sampling", 2024, section 3.
[[nodiscard]] std::vector<Candidate> distribution(const float* logits, std::int64_t vocab_size,
                                                  const assay_sample_row& row);

/// The first candidate whose cumulative probability exceeds row.uniform; -1 when there is none.
[[nodiscard]] std::int32_t sample(const float* logits, std::int64_t vocab_size,
                                  const assay_sample_row& row);

}  // namespace sdk::reference
