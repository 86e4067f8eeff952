#include "reference/sampling.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace sdk::reference {

void logits_edit(float* logits, std::int64_t vocab_size, const assay_logit_edit* edits,
                 std::int64_t num_edits) {
    for (std::int64_t i = 0; i < num_edits; ++i) {
        const assay_logit_edit& edit = edits[i];
        float& logit = logits[edit.row * vocab_size + edit.token];
        const double l = logit, repetition = edit.repetition;
        logit = static_cast<float>((l > 0 ? l / repetition : l * repetition) + double{edit.add});
    }
}

void logits_mask(float* logits, std::int64_t vocab_size, const std::uint32_t* bits) {
    for (std::int64_t token = 0; token < vocab_size; ++token)
        if ((bits[token / 32] >> (token % 32) & 1u) == 0)
            logits[token] = -std::numeric_limits<float>::infinity();
}

std::vector<std::int32_t> descending_ids(const float* logits, std::int64_t vocab_size) {
    std::vector<std::int32_t> ids;
    for (std::int64_t i = 0; i < vocab_size; ++i)
        if (std::isfinite(logits[i])) ids.push_back(static_cast<std::int32_t>(i));
    std::stable_sort(ids.begin(), ids.end(),
                     [&](std::int32_t a, std::int32_t b) { return logits[a] > logits[b]; });
    return ids;
}

namespace {

void renormalize(std::vector<Candidate>& candidates) {
    double sum = 0;
    for (const Candidate& c : candidates) sum += c.probability;
    for (Candidate& c : candidates) c.probability /= sum;
}

}  // namespace

std::vector<Candidate> distribution(const float* logits, std::int64_t vocab_size,
                                    const assay_sample_row& row) {
    const std::vector<std::int32_t> ids = descending_ids(logits, vocab_size);
    if (ids.empty()) return {};
    if (!(row.temperature > 0)) return {{ids[0], 1.0}};

    const double max = logits[ids[0]];
    std::vector<Candidate> kept;
    kept.reserve(ids.size());
    for (std::int32_t id : ids)
        kept.push_back({id, std::exp((logits[id] - max) / double{row.temperature})});
    if (row.top_k > 0 && static_cast<std::size_t>(row.top_k) < kept.size())
        kept.resize(static_cast<std::size_t>(row.top_k));
    renormalize(kept);

    if (row.top_p < 1) {
        double sum = 0;
        std::size_t n = 0;
        do sum += kept[n++].probability;
        while (sum < double{row.top_p} && n < kept.size());
        kept.resize(n);
        renormalize(kept);
    }
    if (row.min_p > 0) {
        const double floor = double{row.min_p} * kept[0].probability;
        std::size_t n = 1;
        while (n < kept.size() && kept[n].probability >= floor) ++n;
        kept.resize(n);
        renormalize(kept);
    }
    return kept;
}

std::int32_t sample(const float* logits, std::int64_t vocab_size, const assay_sample_row& row) {
    const std::vector<Candidate> candidates = distribution(logits, vocab_size, row);
    if (candidates.empty()) return -1;
    double sum = 0;
    for (const Candidate& c : candidates) {
        sum += c.probability;
        if (sum > double{row.uniform}) return c.id;
    }
    // The probabilities add up to one only but for rounding.
    return candidates.back().id;
}

}  // namespace sdk::reference
