// Compute-bound: 2 f64 operations per cached entry and head, on one vector unit of two or four
// doubles. Entries of a dot product are summed in kPartial interleaved parts, so that the compiler
// may keep them in vector registers; any order of an f64 sum is as good as another here.

#include "rows.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace attention::reference {
namespace {

constexpr std::int64_t kPartial = 8;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

double dot(const double* a, const float* b, std::int64_t n) noexcept {
    double part[kPartial] = {};
    std::int64_t i = 0;
    for (; i + kPartial <= n; i += kPartial)
        for (std::int64_t j = 0; j < kPartial; ++j) part[j] += a[i + j] * double{b[i + j]};
    double sum = 0;
    for (; i < n; ++i) sum += a[i] * double{b[i]};
    for (const double p : part) sum += p;
    return sum;
}

/// Larger score first, NaN above every number, then the lower position.
struct IsBetter {
    const double* score;
    bool operator()(std::int32_t a, std::int32_t b) const noexcept {
        if (std::isnan(score[a]) != std::isnan(score[b])) return std::isnan(score[a]);
        if (score[a] > score[b]) return true;
        if (score[a] < score[b]) return false;
        return a < b;
    }
};

}  // namespace

bool attend_row(const Layer& layer, const Cache& cache, const assay_attn_args& a, std::int64_t row,
                std::int64_t head, const Scratch& scratch) noexcept {
    const Sequence seq = sequence(*a.batch, sequence_of_row(*a.batch, row));
    const std::int64_t pos = seq.position(row);

    std::int64_t n = 0;  // keys that the query sees
    if (layer.is_sparse()) {
        n = selected_slots(sdk::at<std::int32_t>(a.topk_slots, row), layer.index_topk, seq, pos,
                           cache.page_tokens, scratch.slots, scratch.scratch);
        if (n < 0) return false;
    } else {
        const std::int64_t begin =
            layer.window != 0 ? std::max<std::int64_t>(0, pos - layer.window + 1) : 0;
        for (std::int64_t p = begin; p <= pos; ++p)
            scratch.slots[n++] = static_cast<std::int32_t>(seq.slot(p, cache.page_tokens));
    }

    float* out = sdk::at<float>(a.out, row, head);
    float* lse = a.lse.data != nullptr ? sdk::at<float>(a.lse, row, head) : nullptr;
    const std::int64_t kv_head = head / layer.group;
    const auto* keys = static_cast<const float*>(a.planes[0]) + kv_head * layer.key_dim;
    const auto* values =
        layer.is_mla() ? keys : static_cast<const float*>(a.planes[1]) + kv_head * layer.value_dim;
    const std::int64_t value_stride = layer.is_mla() ? layer.key_row() : layer.value_row();

    const float* q = sdk::at<float>(a.q, row, head);
    std::copy(q, q + layer.key_dim, scratch.query);
    double top = -kInfinity;
    for (std::int64_t i = 0; i < n; ++i) {
        double score =
            dot(scratch.query, keys + scratch.slots[i] * layer.key_row(), layer.key_dim) *
            double{layer.scale};
        if (layer.softcap != 0)
            score = double{layer.softcap} * std::tanh(score / double{layer.softcap});
        scratch.score[i] = score;
        top = std::max(top, score);
    }
    if (n == 0) {
        std::fill(out, out + layer.value_dim, 0.0F);
        if (lse != nullptr) *lse = -std::numeric_limits<float>::infinity();
        return true;
    }

    double denominator = 0;
    if (layer.has_sinks) {
        const double sink = *sdk::at<float>(a.sinks, head);
        top = std::max(top, sink);
        denominator = std::exp(sink - top);
    }
    std::fill(scratch.sum, scratch.sum + layer.value_dim, 0.0);
    for (std::int64_t i = 0; i < n; ++i) {
        const double p = std::exp(scratch.score[i] - top);
        const float* value = values + scratch.slots[i] * value_stride;
        denominator += p;
        for (std::int64_t d = 0; d < layer.value_dim; ++d) scratch.sum[d] += p * double{value[d]};
    }
    for (std::int64_t d = 0; d < layer.value_dim; ++d)
        out[d] = static_cast<float>(scratch.sum[d] / denominator);
    if (lse != nullptr) *lse = static_cast<float>(top + std::log(denominator));
    return true;
}

void index_row(const Layer& layer, const Cache& cache, const assay_attn_index_args& a,
               std::int64_t row, const Scratch& scratch) noexcept {
    const Sequence seq = sequence(*a.batch, sequence_of_row(*a.batch, row));
    const std::int64_t num_visible = seq.position(row) + 1;
    const std::int64_t chosen = std::min(num_visible, layer.index_topk);
    const std::int64_t dim = layer.index_head_dim;
    const auto* keys = static_cast<const float*>(a.planes[kIndexPlane]);
    const float* weight = sdk::at<float>(a.head_weight, row);

    for (std::int64_t p = 0; p < num_visible; ++p) scratch.slots[p] = static_cast<std::int32_t>(p);
    if (chosen < num_visible) {
        for (std::int64_t h = 0; h < layer.index_n_heads; ++h) {
            const float* q = sdk::at<float>(a.q, row, h);
            std::copy(q, q + dim, scratch.query + h * dim);
        }
        for (std::int64_t p = 0; p < num_visible; ++p) {
            const float* key = keys + seq.slot(p, cache.page_tokens) * dim;
            double score = 0;
            for (std::int64_t h = 0; h < layer.index_n_heads; ++h) {
                const double match = dot(scratch.query + h * dim, key, dim);
                score += double{weight[h]} * (match < 0 ? 0.0 : match);
            }
            scratch.score[p] = score;
        }
        std::nth_element(scratch.slots, scratch.slots + chosen, scratch.slots + num_visible,
                         IsBetter{scratch.score});
        std::sort(scratch.slots, scratch.slots + chosen);
    }
    auto* out = sdk::at<std::int32_t>(a.topk_slots, row);
    for (std::int64_t i = 0; i < chosen; ++i)
        out[i] = static_cast<std::int32_t>(seq.slot(scratch.slots[i], cache.page_tokens));
    std::fill(out + chosen, out + layer.index_topk, -1);
}

}  // namespace attention::reference
