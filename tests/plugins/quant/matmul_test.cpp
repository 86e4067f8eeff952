// Every operation of every tier against the definition, on fresh random inputs.

#include "tests/plugins/quant/problem.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace {

using quant_test::Backend;
using quant_test::Problem;
using quant_test::Shape;

struct MatmulCase {
    const char* name;
    std::int64_t m, n;
    /// K for formats with blocks of 1, 32 (64 and 128: rounded up) and 256 elements.
    std::int64_t k1, k32, k256;
};

constexpr MatmulCase kMatmulCases[] = {
    {"one_element", 1, 1, 1, 32, 256},         {"decode", 1, 50, 300, 544, 768},
    {"decode_narrow", 1, 17, 16, 64, 256},     {"two_rows", 2, 33, 37, 96, 512},
    {"three_rows", 3, 16, 5, 256, 256},        {"eight_rows", 8, 31, 64, 288, 512},
    {"seventeen_rows", 17, 48, 129, 160, 768}, {"prefill", 64, 80, 260, 1056, 1024},
};

/// Runs on every tier with one lane and with several, and checks both.
void check_everywhere(const Shape& shape, std::mt19937& rng) {
    const Problem problem{shape, rng};
    const support::TestLanes one{1}, three{3};
    for (const std::string& tier : quant_test::tiers()) {
        SCOPED_TRACE(tier);
        const Backend backend{tier};
        problem.check(problem.run(backend, one.get()), backend);
        problem.check(problem.run(backend, three.get()), backend);
        if (testing::Test::HasFailure()) return;
    }
}

class QuantMatmul : public testing::TestWithParam<std::string> {
protected:
    QuantMatmul() : seed_{std::random_device{}()}, rng_{seed_} {}
    const unsigned seed_;
    std::mt19937 rng_;
};

TEST_P(QuantMatmul, EqualsTheDefinition) {
    const ggml::Format& format = *ggml::find_format(GetParam());
    for (const MatmulCase& c : kMatmulCases) {
        SCOPED_TRACE(testing::Message() << c.name << ", seed " << seed_);
        const auto cols = static_cast<std::int64_t>(format.abi.block_cols);
        const std::int64_t k = cols == 1     ? c.k1
                               : cols == 256 ? c.k256
                                             : (c.k32 + cols - 1) / cols * cols;
        check_everywhere({.formats = {GetParam()}, .n = {c.n}, .k = k, .m = c.m}, rng_);
        if (HasFailure()) return;
    }
}

TEST_P(QuantMatmul, PreciseKeepsXInF32) {
    SCOPED_TRACE(testing::Message() << "seed " << seed_);
    for (const std::int64_t m : {1, 5})
        check_everywhere(
            {.formats = {GetParam()}, .n = {21}, .k = 512, .m = m, .flags = ASSAY_MM_PRECISE},
            rng_);
}

TEST_P(QuantMatmul, PreciseReadsEveryElementAsTheDefinitionDoes) {
    SCOPED_TRACE(testing::Message() << "seed " << seed_);
    // Unit vectors pick single elements: what is added to them is zero.
    const auto cols = static_cast<std::int64_t>(ggml::find_format(GetParam())->abi.block_cols);
    const std::int64_t k = cols == 1 ? 50 : (352 + cols - 1) / cols * cols;
    Problem problem{
        {.formats = {GetParam()}, .n = {33}, .k = k, .m = k, .flags = ASSAY_MM_PRECISE}, rng_};
    for (std::int64_t r = 0; r < k; ++r) {
        std::fill_n(problem.x().row(r), k, 0.0f);
        problem.x().row(r)[r] = 1;
    }
    const support::TestLanes two{2};
    for (const std::string& tier : quant_test::tiers()) {
        SCOPED_TRACE(tier);
        const auto y = problem.run(Backend{tier}, two.get());
        for (std::int64_t n = 0; n < 33; ++n)
            for (std::int64_t r = 0; r < k; ++r)
                ASSERT_EQ(y[0].row(r)[n], problem.weights(0).row(0, n)[r])
                    << "row " << n << ", element " << r;
    }
}

TEST_P(QuantMatmul, FineKeepsFifteenBitsOfX) {
    SCOPED_TRACE(testing::Message() << "seed " << seed_);
    for (const std::int64_t m : {1, 3, 18})
        check_everywhere(
            {.formats = {GetParam()}, .n = {37}, .k = 256, .m = m, .flags = ASSAY_MM_FINE}, rng_);
}

TEST_P(QuantMatmul, GroupedMatchesEachExpert) {
    SCOPED_TRACE(testing::Message() << "seed " << seed_);
    // Empty experts at both ends and in the middle; one with a tile and more.
    const Shape shape{.op = ASSAY_Q_GROUPED,
                      .formats = {GetParam()},
                      .n = {35},
                      .k = 256,
                      .m = 23,
                      .experts = 7,
                      .counts = {0, 1, 0, 19, 2, 3, 0},
                      .has_row_ids = true};
    check_everywhere(shape, rng_);
}

TEST_P(QuantMatmul, BatchedMatchesEachHead) {
    SCOPED_TRACE(testing::Message() << "seed " << seed_);
    for (const std::int64_t m : {1, 4})
        check_everywhere({.op = ASSAY_Q_BATCHED,
                          .formats = {GetParam()},
                          .n = {24},
                          .k = 256,
                          .m = m,
                          .experts = 5},
                         rng_);
}

std::vector<std::string> format_ids() {
    std::vector<std::string> ids;
    for (const ggml::Format& format : ggml::formats()) ids.emplace_back(format.abi.id);
    return ids;
}
INSTANTIATE_TEST_SUITE_P(Formats, QuantMatmul, testing::ValuesIn(format_ids()),
                         [](const auto& test) { return test.param; });

class QuantFused : public QuantMatmul {};  // by name of the combination

struct FusedCase {
    const char* name;
    Shape shape;
};

const std::vector<FusedCase>& fused_cases() {
    const std::vector<std::string> pair{"q4_k", "q6_k"};
    static const std::vector<FusedCase> kCases{
        {"qkv_of_three_formats",
         {.formats = {"q4_k", "q5_k", "q6_k"}, .n = {64, 16, 17}, .k = 512, .m = 3}},
        {"four_with_plain_ones",
         {.formats = {"f32", "q8_0", "bf16", "q2_k"},
          .n = {5, 40, 16, 33},
          .k = 256,
          .m = 2,
          .has_bias = true}},
        {"bias_and_residual",
         {.formats = {"q8_0"},
          .n = {45},
          .k = 96,
          .m = 9,
          .flags = ASSAY_MM_ACCUMULATE,
          .has_bias = true}},
        {"residual_decode",
         {.formats = {"q6_k"}, .n = {40}, .k = 512, .m = 1, .flags = ASSAY_MM_ACCUMULATE}},
        {"silu", {.formats = pair, .n = {39, 39}, .k = 512, .m = 1, .glu = ASSAY_GLU_SILU}},
        {"silu_prefill",
         {.formats = {"q4_k", "q4_k"}, .n = {32, 32}, .k = 256, .m = 20, .glu = ASSAY_GLU_SILU}},
        {"gelu",
         {.formats = {"q4_0", "q5_1"}, .n = {17, 17}, .k = 96, .m = 5, .glu = ASSAY_GLU_GELU_TANH}},
        {"gelu_plain",
         {.formats = {"bf16", "f16"}, .n = {50, 50}, .k = 70, .m = 6, .glu = ASSAY_GLU_GELU_TANH}},
        {"silu_residual_bias",
         {.formats = {"q8_0", "q8_0"},
          .n = {20, 20},
          .k = 64,
          .m = 3,
          .glu = ASSAY_GLU_SILU,
          .flags = ASSAY_MM_ACCUMULATE,
          .has_bias = true}},
        {"grouped_clamp_with_expert_bias",
         {.op = ASSAY_Q_GROUPED,
          .formats = {"mxfp4", "mxfp4"},
          .n = {33, 33},
          .k = 64,
          .m = 6,
          .experts = 4,
          .counts = {2, 0, 5, 1},
          .has_row_ids = true,
          .glu = ASSAY_GLU_SILU_CLAMP,
          .has_bias = true}},
        {"grouped_silu_without_row_ids",
         {.op = ASSAY_Q_GROUPED,
          .formats = pair,
          .n = {18, 18},
          .k = 256,
          .m = 9,
          .experts = 3,
          .counts = {4, 0, 5},
          .glu = ASSAY_GLU_SILU}},
        {"grouped_more_rows_than_slots",
         {.op = ASSAY_Q_GROUPED,
          .formats = {"q8_0"},
          .n = {18},
          .k = 64,
          .m = 50,
          .experts = 3,
          .counts = {1, 0, 2},
          .has_row_ids = true}},
        {"batched_residual",
         {.op = ASSAY_Q_BATCHED,
          .formats = {"q5_0"},
          .n = {32},
          .k = 64,
          .m = 3,
          .experts = 4,
          .flags = ASSAY_MM_ACCUMULATE}},
        {"fine_silu_of_mixed_kernels",
         {.formats = {"q6_k", "bf16"},
          .n = {40, 40},
          .k = 256,
          .m = 9,
          .glu = ASSAY_GLU_SILU,
          .flags = ASSAY_MM_FINE}},
        {"fine_grouped_residual",
         {.op = ASSAY_Q_GROUPED,
          .formats = {"q4_k"},
          .n = {35},
          .k = 512,
          .m = 30,
          .experts = 4,
          .counts = {1, 0, 12, 3},
          .has_row_ids = true,
          .flags = ASSAY_MM_FINE | ASSAY_MM_ACCUMULATE}},
        {"fine_batched",
         {.op = ASSAY_Q_BATCHED,
          .formats = {"q5_0"},
          .n = {32},
          .k = 64,
          .m = 3,
          .experts = 4,
          .flags = ASSAY_MM_FINE}},
        {"precise_silu",
         {.formats = {"q4_k", "q8_0"},
          .n = {24, 24},
          .k = 256,
          .m = 4,
          .glu = ASSAY_GLU_SILU,
          .flags = ASSAY_MM_PRECISE}},
    };
    return kCases;
}

TEST_P(QuantFused, EqualsTheDefinition) {
    for (const FusedCase& c : fused_cases()) {
        if (GetParam() != c.name) continue;
        SCOPED_TRACE(testing::Message() << "seed " << seed_);
        check_everywhere(c.shape, rng_);
        return;
    }
    FAIL() << "no such case";
}

std::vector<std::string> fused_names() {
    std::vector<std::string> names;
    for (const FusedCase& c : fused_cases()) names.emplace_back(c.name);
    return names;
}
INSTANTIATE_TEST_SUITE_P(Cases, QuantFused, testing::ValuesIn(fused_names()),
                         [](const auto& test) { return test.param; });

}  // namespace
