#include "daemon/assay/logits.hpp"

#include <algorithm>
#include <cmath>
#include <set>

namespace assay {

LogitDifference compare_logits(std::span<const float> got, std::span<const float> want, std::int64_t vocab) {
    LogitDifference out;
    const auto rows = static_cast<std::int64_t>(want.size()) / vocab;
    std::vector<double> relative;
    double sum_sq_difference = 0, sum_sq = 0;
    std::int64_t agreeing = 0;
    for (std::int64_t r = 0; r < rows; ++r) {
        const float *a = got.data() + r * vocab, *b = want.data() + r * vocab;
        double mean_a = 0, mean_b = 0;
        for (std::int64_t i = 0; i < vocab; ++i) {
            mean_a += double{a[i]};
            mean_b += double{b[i]};
        }
        if (!std::isfinite(mean_a) || !std::isfinite(mean_b)) {
            out.is_finite = false;
            out.worst_row = r;
            out.typical = out.worst = out.kl = out.nmse = INFINITY;
            return out;
        }
        mean_a /= static_cast<double>(vocab);
        mean_b /= static_cast<double>(vocab);
        double difference = 0, size = 0, largest = 0;
        std::int64_t best_a = 0, best_b = 0;
        for (std::int64_t i = 0; i < vocab; ++i) {
            const double d = (double{a[i]} - mean_a) - (double{b[i]} - mean_b);
            difference += d * d;
            size += (double{b[i]} - mean_b) * (double{b[i]} - mean_b);
            largest = std::max(largest, std::fabs(double{a[i]} - double{b[i]}));
            if (a[i] > a[best_a]) best_a = i;
            if (b[i] > b[best_b]) best_b = i;
        }
        double log_a = 0, log_b = 0;
        for (std::int64_t i = 0; i < vocab; ++i) {
            log_a += std::exp(double{a[i]} - double{a[best_a]});
            log_b += std::exp(double{b[i]} - double{b[best_b]});
        }
        log_a = std::log(log_a) + double{a[best_a]};
        log_b = std::log(log_b) + double{b[best_b]};
        double kl = 0;
        for (std::int64_t i = 0; i < vocab; ++i) {
            const double p = double{b[i]} - log_b;
            kl += std::exp(p) * (p - (double{a[i]} - log_a));
        }
        relative.push_back(size > 0 ? std::sqrt(difference / size) : std::sqrt(difference));
        if (relative.back() > out.worst) {
            out.worst = relative.back();
            out.worst_row = r;
        }
        out.kl += kl / static_cast<double>(rows);
        out.max_abs = std::max(out.max_abs, largest);
        sum_sq_difference += difference;
        sum_sq += size;
        if (best_a == best_b || double{b[best_b]} - double{b[best_a]} <= 2 * largest) ++agreeing;
    }
    if (rows == 0) return out;
    std::sort(relative.begin(), relative.end());
    out.typical = relative[static_cast<std::size_t>((rows - 1) * 3 / 4)];
    out.nmse = sum_sq > 0 ? sum_sq_difference / sum_sq : sum_sq_difference;
    out.top1 = static_cast<double>(agreeing) / static_cast<double>(rows);
    return out;
}

double logit_bound(const Candidate& candidate) {
    double rounding = 16 * kUnit;
    const auto look = [&](const model::Weight& w) {
        if (w && w.quant != nullptr) rounding = std::max(rounding, rounding_of_x(w.abi.format, w.precision));
    };
    const std::int64_t layers = candidate.hparams().num_layers;
    for (std::size_t r = 0; r < model::kNumRoles; ++r) {
        look(candidate.weights.whole(static_cast<model::Role>(r)));
        for (std::int64_t l = 0; l < layers; ++l) look(candidate.weights.layer(l, static_cast<model::Role>(r)));
    }
    const std::int32_t kv = candidate.cache.layout(0).planes[0].dtype;
    if (kv == ASSAY_F16) rounding = std::max(rounding, 0x1p-11);
    if (kv == ASSAY_BF16) rounding = std::max(rounding, 0x1p-8);
    // 2.5: the largest of 32 numbers is about so many times their root mean square. Less than a fiftieth
    // is asked of nobody: choices of experts and positions flip at near-ties.
    const double products = 2 * static_cast<double>(layers) + 1;
    return std::clamp(8 * 2.5 * rounding * std::sqrt(products), 0.02, 0.5);
}

RowStatistics row_statistics(std::span<const float> logits, std::span<const std::int32_t> tokens, std::int64_t vocab) {
    RowStatistics out;
    const auto rows = static_cast<std::int64_t>(logits.size()) / vocab;
    std::set<std::int64_t> first;
    for (std::int64_t r = 0; r < rows; ++r) {
        const float* row = logits.data() + r * vocab;
        const auto best = std::max_element(row, row + vocab) - row;
        double sum = 0, weighted = 0;
        bool is_finite = true;
        for (std::int64_t i = 0; i < vocab; ++i) {
            is_finite = is_finite && std::isfinite(row[i]);
            const double d = double{row[i]} - double{row[best]};
            sum += std::exp(d);
            weighted += std::exp(d) * d;
        }
        out.is_finite = out.is_finite && is_finite;
        first.insert(best);
        out.entropy += (std::log(sum) - weighted / sum) / static_cast<double>(rows);
        if (static_cast<std::size_t>(r) < tokens.size())
            out.logprob.push_back(double{row[tokens[static_cast<std::size_t>(r)]]} - double{row[best]} - std::log(sum));
    }
    out.distinct = static_cast<std::int64_t>(first.size());
    return out;
}

std::vector<float> prefill_logits(model::StepDriver& driver, std::int32_t sequence, std::int32_t num_sequences,
                                  std::span<const std::int32_t> tokens, std::span<const std::int32_t> rows, std::int32_t chunk, std::int32_t max_rows) {
    std::vector<float> out;
    std::size_t next = 0;
    for (std::size_t at = 0; at < tokens.size();) {
        // A chunk ends early where it would have more rows than the runner has room for.
        std::size_t end = std::min(tokens.size(), at + static_cast<std::size_t>(chunk));
        const std::size_t first_row = next;
        while (next < rows.size() && static_cast<std::size_t>(rows[next]) < end && next - first_row < static_cast<std::size_t>(max_rows)) ++next;
        if (next < rows.size() && static_cast<std::size_t>(rows[next]) < end) end = static_cast<std::size_t>(rows[next]);
        std::vector<std::vector<std::int32_t>> step(static_cast<std::size_t>(num_sequences));
        step[static_cast<std::size_t>(sequence)].assign(tokens.begin() + static_cast<std::ptrdiff_t>(at), tokens.begin() + static_cast<std::ptrdiff_t>(end));
        std::vector<std::int32_t> wanted;
        for (std::size_t r = first_row; r < next; ++r) wanted.push_back(rows[r] - static_cast<std::int32_t>(at));
        driver.step(step, wanted);
        if (!wanted.empty()) {
            const std::vector<float>& logits = driver.logits();
            out.insert(out.end(), logits.begin(), logits.end());
        }
        at = end;
    }
    return out;
}

std::vector<std::int32_t> spread(std::int32_t n, std::int32_t count) {
    std::vector<std::int32_t> out;
    if (count >= n)
        for (std::int32_t i = 0; i < n; ++i) out.push_back(i);
    else
        for (std::int32_t i = 0; i < count; ++i)
            out.push_back(static_cast<std::int32_t>(static_cast<std::int64_t>(i) * (n - 1) / std::max(count - 1, 1)));
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
}

}  // namespace assay
