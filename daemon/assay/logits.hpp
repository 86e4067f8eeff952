#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "daemon/assay/context.hpp"

namespace assay {

/// How far two sets of logits of the same rows are apart. The first is the one that is judged.
struct LogitDifference {
    double typical = 0;   ///< relative error of the row at the 75th percentile
    double worst = 0;     ///< of the worst row
    double kl = 0;        ///< mean KL divergence, nats, of the second to the first
    double max_abs = 0;
    double nmse = 0;      ///< mean squared difference over mean squared logit, both without the row's mean
    double top1 = 1;      ///< share of rows with the same first choice, near-ties aside
    std::int64_t worst_row = 0;
    bool is_finite = true;
};
[[nodiscard]] LogitDifference compare_logits(std::span<const float> got, std::span<const float> want, std::int64_t vocab);

/// What rounding may do to logits, as a relative error: that of one product, by its weight's format and
/// the cache's dtype, times the square root of the number of products behind one another, times 8.
/// Errors of layers are independent; a random walk of them is what is left at the end.
[[nodiscard]] double logit_bound(const Candidate& candidate);

/// Natural log-probabilities of `tokens[i]` under row i, and the mean entropy of the rows.
struct RowStatistics {
    std::vector<double> logprob;
    double entropy = 0;        ///< nats, mean over rows
    std::int64_t distinct = 0; ///< first choices that differ from one another
    bool is_finite = true;
};
[[nodiscard]] RowStatistics row_statistics(std::span<const float> logits, std::span<const std::int32_t> tokens, std::int64_t vocab);

/// Rows of logits of one sequence, prefilled in chunks of the runner's size.
/// @param rows  ascending positions whose logits are wanted
[[nodiscard]] std::vector<float> prefill_logits(model::StepDriver& driver, std::int32_t sequence, std::int32_t num_sequences,
                                                std::span<const std::int32_t> tokens, std::span<const std::int32_t> rows, std::int32_t chunk,
                                                std::int32_t max_rows);

/// `count` of [0, n), first and last among them, ascending.
[[nodiscard]] std::vector<std::int32_t> spread(std::int32_t n, std::int32_t count);

}  // namespace assay
