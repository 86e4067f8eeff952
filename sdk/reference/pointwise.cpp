#include "reference/pointwise.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace sdk::reference {

void rmsnorm(const float* x, const float* weight, float* out, std::int64_t num_tokens,
             std::int64_t n, float eps) {
    for (std::int64_t t = 0; t < num_tokens; ++t) {
        const float* row = x + t * n;
        double sum_sq = 0;
        for (std::int64_t i = 0; i < n; ++i) sum_sq += double{row[i]} * row[i];
        const double scale = 1.0 / std::sqrt(sum_sq / static_cast<double>(n) + double{eps});
        for (std::int64_t i = 0; i < n; ++i) {
            const double w = weight != nullptr ? double{weight[i]} : 1.0;
            out[t * n + i] = static_cast<float>(row[i] * scale * w);
        }
    }
}

void add_rmsnorm(const float* x, float* residual, const float* weight, float* out,
                 std::int64_t num_tokens, std::int64_t n, float eps) {
    for (std::int64_t i = 0; i < num_tokens * n; ++i)
        residual[i] = static_cast<float>(double{residual[i]} + double{x[i]});
    rmsnorm(residual, weight, out, num_tokens, n, eps);
}

void layernorm(const float* x, const float* weight, const float* bias, float* out,
               std::int64_t num_tokens, std::int64_t n, float eps) {
    for (std::int64_t t = 0; t < num_tokens; ++t) {
        const float* row = x + t * n;
        double sum = 0;
        for (std::int64_t i = 0; i < n; ++i) sum += double{row[i]};
        const double mean = sum / static_cast<double>(n);
        double sum_sq = 0;
        for (std::int64_t i = 0; i < n; ++i) sum_sq += (row[i] - mean) * (row[i] - mean);
        const double scale = 1.0 / std::sqrt(sum_sq / static_cast<double>(n) + double{eps});
        for (std::int64_t i = 0; i < n; ++i) {
            const double w = weight != nullptr ? double{weight[i]} : 1.0;
            const double b = bias != nullptr ? double{bias[i]} : 0.0;
            out[t * n + i] = static_cast<float>((row[i] - mean) * scale * w + b);
        }
    }
}

void rope_table(const std::int32_t* pos, std::int64_t num_tokens, const double* inv_freq,
                std::int64_t half_dims, float mscale, float* cos_sin) {
    for (std::int64_t t = 0; t < num_tokens; ++t) {
        float* row = cos_sin + t * 2 * half_dims;
        for (std::int64_t i = 0; i < half_dims; ++i) {
            const double angle = pos[t] * inv_freq[i];
            row[i] = static_cast<float>(double{mscale} * std::cos(angle));
            row[half_dims + i] = static_cast<float>(double{mscale} * std::sin(angle));
        }
    }
}

void rope(const float* x, const float* cos_sin, std::int32_t style, float* out,
          std::int64_t num_tokens, std::int64_t num_heads, std::int64_t head_dim,
          std::int64_t half_dims) {
    for (std::int64_t t = 0; t < num_tokens; ++t) {
        const float* cos = cos_sin + t * 2 * half_dims;
        const float* sin = cos + half_dims;
        for (std::int64_t h = 0; h < num_heads; ++h) {
            const float* in = x + (t * num_heads + h) * head_dim;
            float* to = out + (t * num_heads + h) * head_dim;
            for (std::int64_t i = 0; i < half_dims; ++i) {
                const std::int64_t a = style == ASSAY_ROPE_NORM ? 2 * i : i;
                const std::int64_t b = style == ASSAY_ROPE_NORM ? 2 * i + 1 : i + half_dims;
                const double u = in[a], v = in[b];
                to[a] = static_cast<float>(u * cos[i] - v * sin[i]);
                to[b] = static_cast<float>(u * sin[i] + v * cos[i]);
            }
            for (std::int64_t i = 2 * half_dims; i < head_dim; ++i) to[i] = in[i];
        }
    }
}

namespace {

double sigmoid(double x) {
    return 1.0 / (1.0 + std::exp(-x));
}

}  // namespace

double glu(std::int32_t kind, double alpha, double limit, double gate, double up) {
    switch (kind) {
        case ASSAY_GLU_SILU:
            return gate * sigmoid(gate) * up;
        case ASSAY_GLU_GELU_TANH: {
            constexpr double kSqrt2OverPi = 0.79788456080286535588;
            const double inner = kSqrt2OverPi * (gate + 0.044715 * gate * gate * gate);
            return 0.5 * gate * (1.0 + std::tanh(inner)) * up;
        }
        case ASSAY_GLU_SILU_CLAMP: {
            const double g = gate > limit ? limit : gate;
            const double u = up > limit ? limit : up < -limit ? -limit : up;
            return g * sigmoid(alpha * g) * (u + 1.0);
        }
        default:
            return gate * up;
    }
}

double softcap(double x, double cap) {
    return cap * std::tanh(x / cap);
}

void hadamard(const float* x, float* out, std::int64_t num_tokens, std::int64_t n) {
    const double scale = 1.0 / std::sqrt(static_cast<double>(n));
    std::vector<float> row(static_cast<std::size_t>(n));
    for (std::int64_t t = 0; t < num_tokens; ++t) {
        for (std::int64_t i = 0; i < n; ++i) {
            double sum = 0;
            for (std::int64_t j = 0; j < n; ++j) {
                const bool is_odd = std::popcount(static_cast<std::uint64_t>(i & j)) % 2 != 0;
                sum += is_odd ? -double{x[t * n + j]} : double{x[t * n + j]};
            }
            row[static_cast<std::size_t>(i)] = static_cast<float>(sum * scale);
        }
        std::copy(row.begin(), row.end(), out + t * n);
    }
}

void softmax(const float* x, double* out, std::int64_t n) {
    const double max = *std::max_element(x, x + n);
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += out[i] = std::exp(x[i] - max);
    for (std::int64_t i = 0; i < n; ++i) out[i] /= sum;
}

void log_softmax(const float* x, double* out, std::int64_t n) {
    constexpr double kInf = std::numeric_limits<double>::infinity();
    double max = -kInf;
    for (std::int64_t i = 0; i < n; ++i)
        if (std::isfinite(x[i])) max = std::max(max, double{x[i]});
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i)
        if (std::isfinite(x[i])) sum += std::exp(x[i] - max);
    for (std::int64_t i = 0; i < n; ++i)
        out[i] = std::isfinite(x[i]) ? x[i] - max - std::log(sum) : -kInf;
}

namespace {

constexpr double kMinusInf = -std::numeric_limits<double>::infinity();

// What one expert's logit becomes before the choice; softmax is a matter of the whole row.
double gate(std::int32_t gating, double logit) {
    switch (gating) {
        case 2:
            return sigmoid(logit);
        case 4:
            return std::sqrt(std::log1p(std::exp(-std::abs(logit))) + std::max(logit, 0.0));
        default:
            return logit;
    }
}

// Sets the scores outside the best groups to -inf.
void limit_groups(const assay_router& r, bool has_bias, std::vector<double>& score) {
    const auto groups = static_cast<std::size_t>(r.num_groups);
    const std::size_t per_group = score.size() / groups;
    std::vector<double> group_score(groups);
    for (std::size_t g = 0; g < groups; ++g) {
        const auto first = score.begin() + static_cast<std::ptrdiff_t>(g * per_group);
        std::vector<double> members(first, first + static_cast<std::ptrdiff_t>(per_group));
        std::sort(members.begin(), members.end(), std::greater<>{});
        group_score[g] = members[0] + (has_bias && per_group > 1 ? members[1] : 0.0);
    }
    std::vector<std::size_t> order(groups);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return group_score[a] > group_score[b]; });
    for (std::size_t rank = static_cast<std::size_t>(r.top_groups); rank < groups; ++rank)
        for (std::size_t i = 0; i < per_group; ++i) score[order[rank] * per_group + i] = kMinusInf;
}

void route_token(const assay_router& r, const float* logits, const float* bias,
                 std::int64_t num_experts, std::int32_t* ids, float* weights) {
    const auto n = static_cast<std::size_t>(num_experts);
    const auto top_k = static_cast<std::size_t>(r.top_k);
    std::vector<double> p(n), score(n);
    if (r.gating == 1)
        softmax(logits, p.data(), num_experts);
    else
        for (std::size_t e = 0; e < n; ++e) p[e] = gate(r.gating, logits[e]);
    for (std::size_t e = 0; e < n; ++e) {
        score[e] = p[e] + (bias != nullptr ? double{bias[e]} : 0.0);
        if (std::isnan(score[e])) score[e] = kMinusInf;
    }
    if (r.num_groups > 1) limit_groups(r, bias != nullptr, score);

    std::vector<std::size_t> order(n);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return score[a] > score[b]; });

    std::vector<double> w(top_k);
    for (std::size_t j = 0; j < top_k; ++j) w[j] = p[order[j]];
    if (r.gating == 3) {
        const double max = *std::max_element(w.begin(), w.end());
        double sum = 0;
        for (double& v : w) sum += v = std::exp(v - max);
        for (double& v : w) v /= sum;
    }
    if (r.normalize) {
        const double sum = std::accumulate(w.begin(), w.end(), 0.0) + 1e-20;
        for (double& v : w) v /= sum;
    }
    for (std::size_t j = 0; j < top_k; ++j) {
        ids[j] = static_cast<std::int32_t>(order[j]);
        weights[j] = static_cast<float>(w[j] * double{r.scale});
    }
}

}  // namespace

void router(const assay_router& r, const float* logits, const float* bias, std::int64_t num_tokens,
            std::int64_t num_experts, std::int32_t* ids, float* weights) {
    for (std::int64_t t = 0; t < num_tokens; ++t)
        route_token(r, logits + t * num_experts, bias, num_experts, ids + t * r.top_k,
                    weights + t * r.top_k);
}

void expert_sort(const std::int32_t* ids, std::int64_t num_tokens, std::int64_t top_k,
                 std::int64_t num_experts, std::int32_t* slot_of, std::int32_t* row_ids,
                 std::int32_t* offset) {
    std::int32_t slot = 0;
    for (std::int64_t e = 0; e < num_experts; ++e) {
        offset[e] = slot;
        for (std::int64_t pair = 0; pair < num_tokens * top_k; ++pair) {
            if (ids[pair] != e) continue;
            slot_of[pair] = slot;
            row_ids[slot] = static_cast<std::int32_t>(pair / top_k);
            ++slot;
        }
    }
    offset[num_experts] = slot;
}

void expert_combine(const float* y, const std::int32_t* slot_of, const float* weights,
                    bool accumulate, float* out, std::int64_t num_tokens, std::int64_t top_k,
                    std::int64_t n) {
    for (std::int64_t t = 0; t < num_tokens; ++t) {
        for (std::int64_t i = 0; i < n; ++i) {
            double sum = accumulate ? double{out[t * n + i]} : 0.0;
            for (std::int64_t j = 0; j < top_k; ++j)
                sum += double{weights[t * top_k + j]} * y[slot_of[t * top_k + j] * n + i];
            out[t * n + i] = static_cast<float>(sum);
        }
    }
}

}  // namespace sdk::reference
