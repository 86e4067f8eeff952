#include "reference/attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace sdk::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double dot(const float* a, const float* b, std::int64_t n) {
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += double{a[i]} * b[i];
    return sum;
}

double scaled(double score, const Softmax& softmax) {
    score *= double{softmax.scale};
    if (softmax.softcap != 0)
        score = double{softmax.softcap} * std::tanh(score / double{softmax.softcap});
    return score;
}

/// out = sum_s p[s] value[s, :], p the softmax of `score` with one more logit where sink is given.
/// @param score         [n]; -inf: not visible
/// @param value         row s at value + s * value_stride, dim entries
void weigh(const std::vector<double>& score, const float* value, std::int64_t value_stride,
           std::int64_t dim, const float* sink, float* out, float* lse) {
    if (std::all_of(score.begin(), score.end(), [](double s) { return s == -kInfinity; })) {
        std::fill(out, out + dim, 0.0F);
        if (lse != nullptr) *lse = -std::numeric_limits<float>::infinity();
        return;
    }
    double top = *std::max_element(score.begin(), score.end());
    if (sink != nullptr) top = std::max(top, double{*sink});
    double denominator = sink != nullptr ? std::exp(double{*sink} - top) : 0.0;
    std::vector<double> sum(static_cast<std::size_t>(dim), 0.0);
    for (std::size_t s = 0; s < score.size(); ++s) {
        if (score[s] == -kInfinity) continue;
        const double p = std::exp(score[s] - top);
        denominator += p;
        const float* row = value + static_cast<std::int64_t>(s) * value_stride;
        for (std::size_t d = 0; d < sum.size(); ++d) sum[d] += p * row[d];
    }
    for (std::size_t d = 0; d < sum.size(); ++d) out[d] = static_cast<float>(sum[d] / denominator);
    if (lse != nullptr) *lse = static_cast<float>(top + std::log(denominator));
}

}  // namespace

void gqa_attention(const float* q, const float* k, const float* v, std::int64_t q_len,
                   std::int64_t kv_len, std::int64_t num_q_heads, std::int64_t num_kv_heads,
                   std::int64_t head_dim, std::int64_t v_head_dim, const Softmax& softmax,
                   float* out, float* lse) {
    std::vector<double> score(static_cast<std::size_t>(kv_len));
    for (std::int64_t j = 0; j < q_len; ++j) {
        const std::int64_t q_pos = kv_len - q_len + j;
        for (std::int64_t h = 0; h < num_q_heads; ++h) {
            const std::int64_t row = j * num_q_heads + h;
            const std::int64_t kv_head = h / (num_q_heads / num_kv_heads);
            for (std::int64_t s = 0; s < kv_len; ++s) {
                const bool visible =
                    s <= q_pos && (softmax.window == 0 || q_pos - s < softmax.window);
                const float* key = k + (s * num_kv_heads + kv_head) * head_dim;
                score[static_cast<std::size_t>(s)] =
                    visible ? scaled(dot(q + row * head_dim, key, head_dim), softmax) : -kInfinity;
            }
            weigh(score, v + kv_head * v_head_dim, num_kv_heads * v_head_dim, v_head_dim,
                  softmax.sinks != nullptr ? softmax.sinks + h : nullptr, out + row * v_head_dim,
                  lse != nullptr ? lse + row : nullptr);
        }
    }
}

void mla_attention(const float* q, const float* latent, std::int64_t q_len, std::int64_t kv_len,
                   std::int64_t num_q_heads, std::int64_t kv_lora_rank,
                   std::int64_t qk_rope_head_dim, const std::int32_t* topk, std::int64_t index_topk,
                   const Softmax& softmax, float* out, float* lse) {
    const std::int64_t width = kv_lora_rank + qk_rope_head_dim;
    std::vector<double> score(static_cast<std::size_t>(kv_len));
    for (std::int64_t j = 0; j < q_len; ++j) {
        const std::int64_t q_pos = kv_len - q_len + j;
        const std::int32_t* chosen = topk != nullptr ? topk + j * index_topk : nullptr;
        for (std::int64_t h = 0; h < num_q_heads; ++h) {
            const std::int64_t row = j * num_q_heads + h;
            for (std::int64_t s = 0; s < kv_len; ++s) {
                const bool visible =
                    s <= q_pos && (softmax.window == 0 || q_pos - s < softmax.window) &&
                    (chosen == nullptr ||
                     std::find(chosen, chosen + index_topk, s) != chosen + index_topk);
                score[static_cast<std::size_t>(s)] =
                    visible ? scaled(dot(q + row * width, latent + s * width, width), softmax)
                            : -kInfinity;
            }
            weigh(score, latent, width, kv_lora_rank,
                  softmax.sinks != nullptr ? softmax.sinks + h : nullptr, out + row * kv_lora_rank,
                  lse != nullptr ? lse + row : nullptr);
        }
    }
}

void index_scores(const float* q, const float* k, const float* head_weight, std::int64_t q_len,
                  std::int64_t kv_len, std::int64_t index_n_heads, std::int64_t index_head_dim,
                  double* score) {
    for (std::int64_t j = 0; j < q_len; ++j)
        for (std::int64_t s = 0; s < kv_len; ++s) {
            double sum = 0;
            for (std::int64_t h = 0; h < index_n_heads; ++h) {
                const std::int64_t row = j * index_n_heads + h;
                const double match =
                    dot(q + row * index_head_dim, k + s * index_head_dim, index_head_dim);
                sum += double{head_weight[row]} * (match < 0 ? 0.0 : match);
            }
            score[j * kv_len + s] = s <= kv_len - q_len + j ? sum : -kInfinity;
        }
}

void index_topk(const double* score, std::int64_t num_visible, std::int64_t index_topk,
                std::int32_t* positions) {
    const auto is_better = [score](std::int32_t a, std::int32_t b) {
        if (std::isnan(score[a]) != std::isnan(score[b])) return std::isnan(score[a]);
        if (score[a] > score[b]) return true;
        if (score[a] < score[b]) return false;
        return a < b;
    };
    std::vector<std::int32_t> order(static_cast<std::size_t>(num_visible));
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), is_better);
    order.resize(static_cast<std::size_t>(std::min(num_visible, index_topk)));
    std::sort(order.begin(), order.end());
    std::fill(positions, positions + index_topk, -1);
    std::copy(order.begin(), order.end(), positions);
}

}  // namespace sdk::reference
