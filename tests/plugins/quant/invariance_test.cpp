// The bits of a row: the same alone and in any batch, with one lane and with several, today and on
// the next run, and in every SIMD tier.

#include "tests/plugins/quant/problem.hpp"

#include <gtest/gtest.h>

#include <cstring>

namespace {

using quant_test::Backend;
using quant_test::Outputs;
using quant_test::Problem;
using quant_test::Rows;

void expect_same_bits(const Rows& a, std::int64_t row_a, const Rows& b, std::int64_t row_b,
                      std::int64_t n) {
    ASSERT_EQ(std::memcmp(a.row(row_a), b.row(row_b), static_cast<std::size_t>(n) * 4), 0)
        << "row " << row_a << " and row " << row_b;
}

std::int64_t k_of(const ggml::Format& format) {
    const auto cols = static_cast<std::int64_t>(format.abi.block_cols);
    return cols == 1 ? 173 : cols == 256 ? 768 : (352 + cols - 1) / cols * cols;
}

TEST(QuantInvariance, ARowHasTheSameBitsAloneAndInEveryBatch) {
    std::mt19937 rng{std::random_device{}()};
    const support::TestLanes one{1}, three{3};
    for (const std::string& tier : quant_test::tiers()) {
        const Backend backend{tier};
        for (const ggml::Format& format : ggml::formats()) {
            for (const std::uint32_t flags : {0u, ASSAY_MM_PRECISE, ASSAY_MM_FINE}) {
                SCOPED_TRACE(tier + " " + format.abi.id);
                const Problem problem{{.formats = {format.abi.id},
                                       .n = {43},
                                       .k = k_of(format),
                                       .m = 37,
                                       .flags = flags},
                                      rng};
                const Outputs whole = problem.run(backend, one.get());
                const Outputs again = problem.run(backend, three.get());
                for (std::int64_t r = 0; r < 37; ++r)
                    expect_same_bits(whole[0], r, again[0], r, 43);
                for (const std::int64_t count : {1, 2, 3, 5, 16, 17}) {
                    for (const std::int64_t first : {0, 11, 20}) {
                        const Outputs part = problem.run_rows(backend, three.get(), first, count);
                        for (std::int64_t r = 0; r < count; ++r)
                            expect_same_bits(whole[0], first + r, part[0], r, 43);
                    }
                }
                if (HasFatalFailure()) return;
            }
        }
    }
}

TEST(QuantInvariance, SimdTiersAgreeToTheBit) {
    std::mt19937 rng{std::random_device{}()};
    const support::TestLanes two{2};
    for (const ggml::Format& format : ggml::formats()) {
        for (const std::int64_t m : {1, 2, 9}) {
            SCOPED_TRACE(format.abi.id);
            const Problem problem{{.formats = {format.abi.id, format.abi.id},
                                   .n = {29, 29},
                                   .k = k_of(format),
                                   .m = m,
                                   .glu = ASSAY_GLU_SILU},
                                  rng};
            std::vector<Outputs> results;
            for (const std::string& tier : quant_test::tiers())
                if (tier != "reference") results.push_back(problem.run(Backend{tier}, two.get()));
            for (std::size_t i = 1; i < results.size(); ++i)
                for (std::int64_t r = 0; r < m; ++r)
                    expect_same_bits(results[0][0], r, results[i][0], r, 29);
        }
    }
}

TEST(QuantInvariance, GroupedAndPlainProductsAgreeToTheBit) {
    std::mt19937 rng{std::random_device{}()};
    const support::TestLanes two{2};
    for (const std::string& tier : quant_test::tiers()) {
        SCOPED_TRACE(tier);
        const Backend backend{tier};
        // One expert whose slots are the rows of x in order is a plain product.
        const auto seed = rng();
        std::mt19937 same_a{seed}, same_b{seed};
        const Problem plain{{.formats = {"q4_k"}, .n = {32}, .k = 512, .m = 6}, same_a};
        const Problem grouped{{.op = ASSAY_Q_GROUPED,
                               .formats = {"q4_k"},
                               .n = {32},
                               .k = 512,
                               .m = 6,
                               .experts = 1,
                               .counts = {6}},
                              same_b};
        const Outputs a = plain.run(backend, two.get()), b = grouped.run(backend, two.get());
        for (std::int64_t r = 0; r < 6; ++r) expect_same_bits(a[0], r, b[0], r, 32);
    }
}

TEST(QuantInvariance, ANanInOneRowOfXStaysThere) {
    std::mt19937 rng{std::random_device{}()};
    const support::TestLanes two{2};
    for (const std::string& tier : quant_test::tiers()) {
        const Backend backend{tier};
        for (const float poison :
             {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
            SCOPED_TRACE(tier);
            Problem problem{{.formats = {"q6_k"}, .n = {20}, .k = 512, .m = 5}, rng};
            const Outputs clean = problem.run(backend, two.get());
            problem.x().row(2)[300] = poison;
            const Outputs y = problem.run(backend, two.get());
            for (std::int64_t c = 0; c < 20; ++c) EXPECT_FALSE(std::isfinite(y[0].row(2)[c])) << c;
            for (const std::int64_t r : {0, 1, 3, 4}) expect_same_bits(clean[0], r, y[0], r, 20);
        }
    }
}

TEST(QuantInvariance, TinyAndHugeActivationsStayFinite) {
    std::mt19937 rng{std::random_device{}()};
    const support::TestLanes one{1};
    for (const std::string& tier : quant_test::tiers()) {
        SCOPED_TRACE(tier);
        const Backend backend{tier};
        Problem problem{{.formats = {"q8_0"}, .n = {8}, .k = 64, .m = 4}, rng};
        for (int i = 0; i < 64; ++i) {
            problem.x().row(0)[i] = 0.0f;
            problem.x().row(1)[i] = 1e-42f;
            problem.x().row(2)[i] *= 1e-34f;
            problem.x().row(3)[i] *= 1e34f;
        }
        const Outputs y = problem.run(backend, one.get());
        for (std::int64_t c = 0; c < 8; ++c) {
            EXPECT_EQ(y[0].row(0)[c], 0.0f);
            EXPECT_LT(std::fabs(y[0].row(1)[c]), 1e-36f);
            const auto want =
                quant_test::define(problem.weights(0).row(0, c), problem.x().row(2), 64);
            EXPECT_NEAR(double{y[0].row(2)[c]}, want.value, want.rounding_of_x * 1.001 + 1e-38);
            EXPECT_TRUE(std::isfinite(y[0].row(3)[c]));
        }
    }
}

}  // namespace
