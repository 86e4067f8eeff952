#include "tests/plugins/quant/problem.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <stdexcept>

namespace quant_test {
namespace {

constexpr double kEps = 0x1p-24;  // half a unit in the last place of f32
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kGluAlpha = 1.702f, kGluLimit = 7.0f;

/// The elements with the blocks' scales zero: what formats with a min take away, zero for others.
std::vector<float> decode_without_q(const Weights& w) {
    std::vector<float> out(w.decoded.size(), 0.0f);
    const std::int16_t scale_at = w.format->check.scale_at;
    if (w.format->check.min_at < 0 || scale_at < 0) return out;
    std::vector<std::uint8_t> bytes{w.bytes.data(), w.bytes.data() + w.bytes.size()};
    const std::size_t block_bytes = w.format->abi.block_bytes;
    for (std::size_t block = 0; block < bytes.size(); block += block_bytes)
        std::memset(&bytes[block + static_cast<std::size_t>(scale_at)], 0, 2);
    w.format->decode(bytes.data(), static_cast<std::int64_t>(bytes.size() / block_bytes),
                     out.data());
    return out;
}

double activation(std::int32_t glu, double g, double u) {
    switch (glu) {
        case ASSAY_GLU_GELU_TANH:
            return 0.5 * g * (1 + std::tanh(std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g))) * u;
        case ASSAY_GLU_SILU_CLAMP:
            g = std::min(g, double{kGluLimit});
            u = std::clamp(u, -double{kGluLimit}, double{kGluLimit});
            return g / (1 + std::exp(-double{kGluAlpha} * g)) * (u + 1);
        default:
            return g / (1 + std::exp(-g)) * u;
    }
}

}  // namespace

void quantize_dequantize(const float* x, std::int64_t k, float* out, float* rest) {
    for (std::int64_t g = 0; g < k; g += 32) {
        const std::int64_t end = std::min(k, g + 32);
        float peak = 0;
        for (std::int64_t i = g; i < end; ++i) peak = std::max(peak, std::fabs(x[i]));
        const float inverse = peak > 0 ? 127.0f / peak : 0.0f, scale = peak / 127.0f;
        for (std::int64_t i = g; i < end; ++i) {
            const float q = std::nearbyint(x[i] * inverse);
            out[i] = q * scale;
            rest[i] = std::fma(-q, scale, x[i]);
        }
    }
}

Problem::Problem(Shape shape, std::mt19937& rng)
    : shape_{std::move(shape)},
      x_{shape_.m * (shape_.op == ASSAY_Q_BATCHED ? shape_.experts : 1), shape_.k, kNan},
      x_planes_{x_, x_} {
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < shape_.formats.size(); ++i) {
        weights_.push_back(std::make_unique<Weights>(shape_.formats[i], shape_.experts, shape_.n[i],
                                                     shape_.k, rng));
        without_q_.push_back(decode_without_q(*weights_.back()));
        bias_.emplace_back();
        for (std::int64_t j = 0; shape_.has_bias && j < shape_.experts * shape_.n[i]; ++j)
            bias_.back().push_back(normal(rng));
    }
    // Gated activations are interesting within a few units of zero.
    x_.fill_normal(rng, shape_.glu != 0 ? 2.0f / std::sqrt(static_cast<float>(shape_.k)) : 1.0f);
    const std::int64_t num_x = shape_.m * (shape_.op == ASSAY_Q_BATCHED ? shape_.experts : 1);
    std::vector<float> rest(static_cast<std::size_t>(shape_.k)), no_more(rest);
    for (std::int64_t r = 0; r < num_x; ++r) {
        quantize_dequantize(x_.row(r), shape_.k, x_planes_[0].row(r), rest.data());
        quantize_dequantize(rest.data(), shape_.k, x_planes_[1].row(r), no_more.data());
    }

    offset_.assign(1, 0);
    for (std::int32_t count : shape_.counts) offset_.push_back(offset_.back() + count);
    for (std::int64_t s = 0; s < num_slots(); ++s)
        row_ids_.push_back(static_cast<std::int32_t>(
            shape_.has_row_ids ? rng() % static_cast<std::uint64_t>(shape_.m)
                               : static_cast<std::uint64_t>(s)));
    std::int64_t num_y = 0;
    for (std::int64_t n : shape_.n) num_y = std::max(num_y, n);
    residual_.resize(static_cast<std::size_t>(num_y));
    for (float& value : residual_) value = normal(rng);
}

std::int64_t Problem::num_slots() const {
    if (shape_.op == ASSAY_Q_GROUPED) return offset_.back();
    return shape_.m * (shape_.op == ASSAY_Q_BATCHED ? shape_.experts : 1);
}

Outputs Problem::make_outputs(std::int64_t num_rows) const {
    Outputs y;
    for (int i = 0; i < num_outputs(); ++i) {
        const std::int64_t n = shape_.n[static_cast<std::size_t>(i)];
        y.emplace_back(num_rows, n, kNan);
        if ((shape_.flags & ASSAY_MM_ACCUMULATE) == 0) continue;
        for (std::int64_t r = 0; r < num_rows; ++r)
            std::copy_n(residual_.begin(), n, y.back().row(r));
    }
    return y;
}

Outputs Problem::call(const Backend& backend, const assay_lanes* lanes, const Rows& x,
                      Outputs y) const {
    assay_matmul a{};
    a.size = sizeof a;
    a.num_weights = static_cast<std::int32_t>(weights_.size());
    const bool is_batched = shape_.op == ASSAY_Q_BATCHED;
    a.x = is_batched ? x.tensor3(shape_.experts) : x.tensor();
    for (std::size_t i = 0; i < weights_.size(); ++i) {
        a.w[i] = &weights_[i]->abi;
        if (i < y.size()) a.y[i] = is_batched ? y[i].tensor3(shape_.experts) : y[i].tensor();
        if (!shape_.has_bias) continue;
        a.bias[i] = shape_.op == ASSAY_Q_GROUPED
                        ? sdk::make_tensor(bias_[i].data(), ASSAY_F32, shape_.experts, shape_.n[i])
                        : sdk::make_tensor(bias_[i].data(), ASSAY_F32, shape_.n[i]);
    }
    a.glu = shape_.glu;
    a.glu_alpha = kGluAlpha;
    a.glu_limit = kGluLimit;
    a.flags = shape_.flags;
    if (shape_.op == ASSAY_Q_GROUPED) {
        a.expert_offset = offset_.data();
        a.row_ids = shape_.has_row_ids ? row_ids_.data() : nullptr;
        a.num_slots = offset_.back();
        a.max_rows_per_expert = offset_.back();
    }
    const std::int64_t max_m = shape_.op == ASSAY_Q_GROUPED ? offset_.back() : a.x.shape[0];
    Workspace workspace{
        image().workspace_bytes(backend.self(), shape_.op, a.w, a.num_weights, max_m)};
    a.workspace = workspace.data();
    a.workspace_bytes =
        image().workspace_bytes(backend.self(), shape_.op, a.w, a.num_weights, max_m);

    const auto run = shape_.op == ASSAY_Q_BATCHED   ? image().batched_matmul
                     : shape_.op == ASSAY_Q_GROUPED ? image().grouped_matmul
                                                    : image().matmul;
    const assay_stream s = stream(lanes);
    assay_error err = sdk::make_error();
    EXPECT_EQ(run(backend.self(), &a, &s, &err), ASSAY_OK) << err.text;
    EXPECT_TRUE(workspace.is_guard_untouched());
    for (const Rows& rows : y) EXPECT_TRUE(rows.is_outside_untouched());
    return y;
}

Outputs Problem::run(const Backend& backend, const assay_lanes* lanes) const {
    return call(backend, lanes, x_, make_outputs(num_slots()));
}

Outputs Problem::run_rows(const Backend& backend, const assay_lanes* lanes, std::int64_t first,
                          std::int64_t count) const {
    if (shape_.op != ASSAY_Q_MATMUL) throw std::logic_error{"run_rows is for matmul"};
    Rows x{count, shape_.k, kNan};
    for (std::int64_t r = 0; r < count; ++r) std::copy_n(x_.row(first + r), shape_.k, x.row(r));
    return call(backend, lanes, x, make_outputs(count));
}

/// The value in f64 and the roundings that may lie between it and the kernel's f32 result:
///  reference    one, at the end, and the f64 sum of k terms;
///  f32 kernels  k / 16 + 1 in a lane, 4 where the lanes meet;
///  integers     on x as it was quantized: in a lane up to 2 a run of 256 (scale and min part), 1
///  in
///               each term's scale, 4 where the lanes meet, 3 that only the decoder does (product,
///               min, difference) and 2 in x quantized here; relative to the scale and min parts
///               apart;
///  16-bit       half a step of 11 bits of x and of w, or of twice as many of x.
Problem::Product Problem::product(int i, std::int64_t e, std::int64_t r, std::int64_t x_row,
                                  const Backend& backend) const {
    const auto index = static_cast<std::size_t>(i);
    const float* w = weights_[index]->row(e, r);
    const std::int64_t k = shape_.k;
    const Definition exact = define(w, x_.row(x_row), k);
    const auto num_k = static_cast<double>(k);
    const ggml::Format& format = *weights_[index]->format;
    switch (backend.arithmetic(format, shape_.op, shape_.m, shape_.flags)) {
        case Arithmetic::f64:
            return {exact.value, num_k * 0x1p-53 * exact.magnitude};
        case Arithmetic::f32:
            return {exact.value, (num_k / 16 + 5) * kEps * exact.magnitude};
        case Arithmetic::half: {
            const bool is_plain = format.abi.block_cols == 1, is_bf16 = std::string_view{"bf16"} == format.abi.id;
            const bool is_twice = is_plain || (shape_.flags & ASSAY_MM_FINE) != 0;
            const double of_w = is_plain ? 0 : 0x1p-11, of_x = !is_twice ? 0x1p-11 : is_bf16 ? 0x1p-16 : 0x1p-21;
            double sum_x = 0;  // subnormal weights lose a fixed amount
            for (std::int64_t j = 0; j < k; ++j) sum_x += std::fabs(double{x_.row(x_row)[j]});
            return {exact.value, (1.01 * (of_w + of_x) + num_k * 2 * kEps) * exact.magnitude + 0x1p-25 * sum_x};
        }
        case Arithmetic::integer:
            break;
    }

    const float* w0 = without_q_[index].data() + (e * shape_.n[index] + r) * k;
    const int num_planes = (shape_.flags & ASSAY_MM_FINE) != 0 ? 2 : 1;
    Product p{};
    for (int plane = 0; plane < num_planes; ++plane) {
        const float* x = x_planes_[static_cast<std::size_t>(plane)].row(x_row);
        double parts = 0;
        for (std::int64_t j = 0; j < k; ++j)
            parts += (std::fabs(double{w[j]} - w0[j]) + std::fabs(double{w0[j]})) *
                     std::fabs(double{x[j]});
        p.value += define(w, x, k).value;
        p.bound += (2 * std::ceil(num_k / 256) + 10) * kEps * parts;
    }
    // What quantizing x may cost: half a step of 8 bits; with a second plane that many steps finer.
    const double steps = num_planes == 2 ? 254 : 1;
    EXPECT_LE(std::fabs(p.value - exact.value),
              exact.rounding_of_x / steps * 1.001 + 2 * kEps * exact.magnitude);
    if (num_planes == 2) p.bound += kEps * (std::fabs(p.value) + p.bound);
    return p;
}

void Problem::check_slot(const Outputs& outputs, std::int64_t s, std::int64_t e, std::int64_t x_row,
                         const Backend& backend) const {
    const bool is_reference = backend.is_reference();
    for (int i = 0; i < num_outputs(); ++i) {
        const auto index = static_cast<std::size_t>(i);
        for (std::int64_t r = 0; r < shape_.n[index]; ++r) {
            Product p[2] = {product(i, e, r, x_row, backend), {}};
            if (shape_.glu != 0) p[1] = product(i + 1, e, r, x_row, backend);
            // Each further operation in f32 rounds once; the reference rounds once in all.
            const double step = is_reference ? 0 : kEps;
            for (std::size_t part = 0; part < 2; ++part) {
                if (!shape_.has_bias || (part == 1 && shape_.glu == 0)) continue;
                p[part].value +=
                    double{bias_[index + part][static_cast<std::size_t>(e * shape_.n[index] + r)]};
                p[part].bound += step * (std::fabs(p[part].value) + p[part].bound);
            }
            double value = p[0].value, bound = p[0].bound;
            if (shape_.glu != 0) {
                // Slopes: of g sigmoid(g) and of gelu at most 1.13, of u (or u + 1) exactly 1. The
                // f32 activation itself has fewer than 16 roundings.
                value = activation(shape_.glu, p[0].value, p[1].value);
                const double u = std::fabs(p[1].value) + 1, act = std::fabs(p[0].value);
                bound =
                    1.13 * p[0].bound * (u + p[1].bound) + act * p[1].bound + 16 * step * act * u;
            }
            if ((shape_.flags & ASSAY_MM_ACCUMULATE) != 0) {
                value += double{residual_[static_cast<std::size_t>(r)]};
                bound += step * (std::fabs(value) + bound);
            }
            bound += kEps * (std::fabs(value) + bound) + 1e-40;
            const double got = double{outputs[index].row(s)[r]};
            ASSERT_TRUE(std::fabs(got - value) <= bound)  // false for NaN
                << "y[" << i << "][" << s << ", " << r << "] = " << got << ", definition " << value
                << ", bound " << bound << ", expert " << e;
        }
    }
}

void Problem::check(const Outputs& outputs, const Backend& backend) const {
    for (std::int64_t e = 0; e < shape_.experts; ++e) {
        if (shape_.op == ASSAY_Q_GROUPED) {
            for (std::int32_t s = offset_[static_cast<std::size_t>(e)];
                 s < offset_[static_cast<std::size_t>(e) + 1]; ++s)
                check_slot(outputs, s, e, row_ids_[static_cast<std::size_t>(s)], backend);
            continue;
        }
        const std::int64_t heads = shape_.op == ASSAY_Q_BATCHED ? shape_.experts : 1;
        for (std::int64_t m = 0; m < shape_.m; ++m)
            check_slot(outputs, m * heads + e, e, m * heads + e, backend);
        if (testing::Test::HasFatalFailure()) return;
    }
}

}  // namespace quant_test
