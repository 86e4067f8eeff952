#include "row_kernels.hpp"

#include <cmath>
#include <cstdint>
#include <limits>

namespace cpu {
namespace {

constexpr double kMinusInf = -std::numeric_limits<double>::infinity();

double sigmoid(double x) {
    return 1.0 / (1.0 + std::exp(-x));
}

double softplus(double x) {
    return std::log1p(std::exp(-std::abs(x))) + (x > 0 ? x : 0);
}

void gate(std::int32_t gating, const float* logits, std::int64_t n, double* p) {
    switch (gating) {
        case 1: {
            double max = logits[0], sum = 0;
            for (std::int64_t e = 1; e < n; ++e)
                if (double{logits[e]} > max) max = logits[e];
            for (std::int64_t e = 0; e < n; ++e) sum += p[e] = std::exp(logits[e] - max);
            for (std::int64_t e = 0; e < n; ++e) p[e] /= sum;
            return;
        }
        case 2:
            for (std::int64_t e = 0; e < n; ++e) p[e] = sigmoid(logits[e]);
            return;
        case 4:
            for (std::int64_t e = 0; e < n; ++e) p[e] = std::sqrt(softplus(logits[e]));
            return;
        default:
            for (std::int64_t e = 0; e < n; ++e) p[e] = logits[e];
    }
}

// The index of the largest, the lowest of equals; it is then out of the running.
std::int64_t take_best(double* score, bool* is_taken, std::int64_t n) {
    std::int64_t best = -1;
    for (std::int64_t i = 0; i < n; ++i)
        if (!is_taken[i] && (best < 0 || score[i] > score[best])) best = i;
    is_taken[best] = true;
    return best;
}

void limit_groups(const assay_router& r, bool has_bias, double* score, std::int64_t n) {
    double group_score[kMaxExperts];
    bool is_kept[kMaxExperts] = {};
    const std::int64_t groups = r.num_groups, per_group = n / groups;
    for (std::int64_t g = 0; g < groups; ++g) {
        double first = kMinusInf, second = kMinusInf;
        for (std::int64_t i = g * per_group; i < (g + 1) * per_group; ++i) {
            if (score[i] > first) {
                second = first;
                first = score[i];
            } else if (score[i] > second) {
                second = score[i];
            }
        }
        group_score[g] = first + (has_bias && per_group > 1 ? second : 0.0);
    }
    for (std::int32_t i = 0; i < r.top_groups; ++i) take_best(group_score, is_kept, groups);
    for (std::int64_t i = 0; i < n; ++i)
        if (!is_kept[i / per_group]) score[i] = kMinusInf;
}

}  // namespace

void route_row(const assay_router* r, const float* logits, const float* bias,
               std::int64_t num_experts, std::int32_t* ids, float* weights) {
    double p[kMaxExperts] = {}, score[kMaxExperts] = {}, w[kMaxExperts] = {};
    bool is_taken[kMaxExperts] = {};
    const std::int64_t top_k = r->top_k;
    gate(r->gating, logits, num_experts, p);
    for (std::int64_t e = 0; e < num_experts; ++e) {
        score[e] = bias != nullptr ? p[e] + double{bias[e]} : p[e];
        if (std::isnan(score[e])) score[e] = kMinusInf;
    }
    if (r->num_groups > 1) limit_groups(*r, bias != nullptr, score, num_experts);

    for (std::int64_t j = 0; j < top_k; ++j) {
        ids[j] = static_cast<std::int32_t>(take_best(score, is_taken, num_experts));
        w[j] = p[ids[j]];
    }
    if (r->gating == 3) {
        double max = w[0], sum = 0;
        for (std::int64_t j = 1; j < top_k; ++j)
            if (w[j] > max) max = w[j];
        for (std::int64_t j = 0; j < top_k; ++j) sum += w[j] = std::exp(w[j] - max);
        for (std::int64_t j = 0; j < top_k; ++j) w[j] /= sum;
    }
    if (r->normalize) {
        double sum = 0;
        for (std::int64_t j = 0; j < top_k; ++j) sum += w[j];
        for (std::int64_t j = 0; j < top_k; ++j) w[j] /= sum + 1e-20;
    }
    for (std::int64_t j = 0; j < top_k; ++j)
        weights[j] = static_cast<float>(w[j] * double{r->scale});
}

}  // namespace cpu
