#pragma once

// One product with its inputs, its definition in f64 and its bounds. See quants' rows in
// matmul_test.cpp.

#include "tests/plugins/quant/support.hpp"

#include <array>
#include <memory>
#include <string>
#include <vector>

namespace quant_test {

struct Shape {
    std::int32_t op = ASSAY_Q_MATMUL;
    std::vector<std::string> formats;  // one a fused weight
    std::vector<std::int64_t> n;       // rows of each
    std::int64_t k = 0;
    std::int64_t m = 0;  // rows of x (batched: a head)
    std::int64_t experts = 1;
    std::vector<std::int32_t> counts;  // grouped: slots an expert
    bool has_row_ids = false;          // grouped: slots read rows of x in random order
    std::int32_t glu = ASSAY_GLU_NONE;
    std::uint32_t flags = 0;
    bool has_bias = false;
};

/// Outputs of one run: y[i] as rows with guards.
using Outputs = std::vector<Rows>;

class Problem {
public:
    Problem(Shape shape, std::mt19937& rng);

    /// Runs on the image. y starts as NaN (or as the residual with ACCUMULATE), workspace as
    /// poison. Guards of y and workspace are checked here.
    [[nodiscard]] Outputs run(const Backend& backend, const assay_lanes* lanes) const;

    /// The same rows alone: slots first .. first + count of the call, matmul only.
    [[nodiscard]] Outputs run_rows(const Backend& backend, const assay_lanes* lanes,
                                   std::int64_t first, std::int64_t count) const;

    /// Compares every element with the definition. The bounds count roundings; see bound_of().
    void check(const Outputs& outputs, const Backend& backend) const;

    [[nodiscard]] const Shape& shape() const noexcept { return shape_; }
    [[nodiscard]] const Weights& weights(int i) const noexcept {
        return *weights_[static_cast<std::size_t>(i)];
    }
    [[nodiscard]] Rows& x() noexcept { return x_; }

private:
    struct Product {
        double value, bound;
    };
    [[nodiscard]] std::int64_t num_slots() const;
    [[nodiscard]] int num_outputs() const {
        return shape_.glu != 0 ? 1 : static_cast<int>(shape_.n.size());
    }
    [[nodiscard]] Outputs make_outputs(std::int64_t num_rows) const;
    [[nodiscard]] Outputs call(const Backend& backend, const assay_lanes* lanes, const Rows& x,
                               Outputs y) const;
    [[nodiscard]] Product product(int i, std::int64_t e, std::int64_t r, std::int64_t x_row,
                                  const Backend& backend) const;
    void check_slot(const Outputs& outputs, std::int64_t s, std::int64_t e, std::int64_t x_row,
                    const Backend& backend) const;

    Shape shape_;
    std::vector<std::unique_ptr<Weights>> weights_;
    std::vector<std::vector<float>> without_q_;  // decoded with the scales of blocks zero: what
                                                 // formats with a min take away
    std::vector<std::vector<float>> bias_;       // [experts, n]
    Rows x_;
    std::array<Rows, 2> x_planes_;  // as the integer kernels see it; what that leaves, likewise
    std::vector<std::int32_t> row_ids_, offset_;
    std::vector<float> residual_;
};

/// x as 8 bits per group of 32: scale = max|x| / 127, q = x * (127 / max|x|) to nearest even, in
/// f32;
/// rest = x - scale * q.
void quantize_dequantize(const float* x, std::int64_t k, float* out, float* rest);

}  // namespace quant_test
