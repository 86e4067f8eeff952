// index(): scores of every cached index key, then the exact best. Waves of tokens: first the
// scores, shared out by chunks of keys, then the selections, one token each.

#include "workspace.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

namespace attention::flash {
namespace {

constexpr std::int64_t kIndexChunk = 1024;  // keys of one item of scoring

/// An unsigned number that orders as the score does: NaN above all, -0 as +0.
std::uint32_t rank_of(float score) noexcept {
    if (std::isnan(score)) return 0xffffffffU;
    const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, score + 0.0F);
    return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

/// Slots of the topk best of score[0 .. n), n > topk, ascending by position. Of equal scores the
/// lower position wins: above the threshold all, at the threshold the first.
void select(const float* score, std::int64_t n, std::int64_t topk, const Sequence& seq,
            std::int64_t page_tokens, std::uint32_t* order, std::int32_t* out) noexcept {
    for (std::int64_t p = 0; p < n; ++p) order[p] = rank_of(score[p]);
    std::nth_element(order, order + topk - 1, order + n, std::greater<>{});
    const std::uint32_t threshold = order[topk - 1];
    std::int64_t at_threshold =
        topk - std::count_if(order, order + topk, [=](std::uint32_t r) { return r > threshold; });
    for (std::int64_t p = 0; p < n; ++p) {
        const std::uint32_t rank = rank_of(score[p]);
        if (rank < threshold || (rank == threshold && at_threshold-- <= 0)) continue;
        *out++ = static_cast<std::int32_t>(seq.slot(p, page_tokens));
    }
}

/// Scores of keys [begin, end) for the token of a row.
void score_chunk(const Instance& in, const Layer& layer, const assay_attn_index_args& a,
                 std::int64_t row, const Sequence& seq, std::int64_t begin, std::int64_t end,
                 const Scratch& s, float* score) {
    const std::int64_t dim = layer.index_head_dim, pad = padded(dim);
    for (std::int64_t h = 0; h < layer.index_n_heads; ++h) {
        const float* q = sdk::at<float>(a.q, row, h);
        std::copy(q, q + dim, s.query + h * pad);
        std::fill(s.query + h * pad + dim, s.query + (h + 1) * pad, 0.0F);
    }
    const auto* keys = static_cast<const float*>(a.planes[kIndexPlane]);
    for (std::int64_t base = begin; base < end; base += kTile) {
        const std::int64_t n = std::min(kTile, end - base);
        for (std::int64_t k = 0; k < n; ++k) {
            s.key[k] = keys + seq.slot(base + k, in.cache.page_tokens) * dim;
            if (dim == pad) continue;
            float* copy = s.key_tile + k * pad;
            std::copy(s.key[k], s.key[k] + dim, copy);
            std::fill(copy + dim, copy + pad, 0.0F);
            s.key[k] = copy;
        }
        for (std::int64_t k = n; k % 4 != 0; ++k) s.key[k] = s.key[n - 1];
        in.kernels->index({layer.index_n_heads, pad, n, s.query, sdk::at<float>(a.head_weight, row),
                           s.key, s.score, score + base});
    }
}

}  // namespace

void index(const Instance& in, const Layer& layer, const assay_attn_index_args& a,
           const assay_stream& stream) {
    check_index(layer, in.cache, a);
    const std::int64_t first = first_row(*a.batch), end = end_row(*a.batch);
    if (first == end) return;
    const Workspace w = open_workspace(in, *a.batch, a.workspace, a.workspace_bytes);
    const std::int64_t workers =
        stream.lanes != nullptr ? std::min<std::int64_t>(in.max_workers, stream.lanes->width) : 1;
    const std::int64_t stride = padded(in.limits.max_kv_len + kTile);
    const std::int32_t longest =
        *std::max_element(a.batch->kv_len, a.batch->kv_len + a.batch->num_seqs);
    const std::int64_t chunks = (longest + kIndexChunk - 1) / kIndexChunk;

    for (std::int64_t wave = first; wave < end; wave += w.index_wave) {
        const std::int64_t tokens = std::min(w.index_wave, end - wave);
        for_each_item(
            stream.lanes, tokens * chunks, workers, [&](std::int64_t item, std::int64_t worker) {
                const std::int64_t token = item / chunks, row = wave + token;
                const Sequence seq = sequence(*a.batch, sequence_of_row(*a.batch, row));
                const std::int64_t n = seq.position(row) + 1;
                const std::int64_t begin = item % chunks * kIndexChunk;
                if (n <= layer.index_topk || begin >= n) return;
                score_chunk(in, layer, a, row, seq, begin, std::min(n, begin + kIndexChunk),
                            w.workers[worker], w.scores + token * stride);
            });
        for_each_item(stream.lanes, tokens, workers, [&](std::int64_t token, std::int64_t worker) {
            const std::int64_t row = wave + token;
            const Sequence seq = sequence(*a.batch, sequence_of_row(*a.batch, row));
            const std::int64_t n = seq.position(row) + 1;
            auto* out = sdk::at<std::int32_t>(a.topk_slots, row);
            if (n > layer.index_topk) {
                select(w.scores + token * stride, n, layer.index_topk, seq, in.cache.page_tokens,
                       w.workers[worker].order, out);
                return;
            }
            for (std::int64_t p = 0; p < n; ++p)
                out[p] = static_cast<std::int32_t>(seq.slot(p, in.cache.page_tokens));
            std::fill(out + n, out + layer.index_topk, -1);
        });
    }
}

}  // namespace attention::flash
