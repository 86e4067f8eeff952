// The definitions against figures worked out by hand and published ones, and against identities.
// They are what everything else is held to, so nothing of ours may be their judge.

#include "reference/pointwise.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace {

namespace ref = sdk::reference;

TEST(Definition, RmsnormByHand) {
    const float x[] = {3, -4}, weight[] = {2, 0.5f};  // mean square 12.5
    float out[2];
    ref::rmsnorm(x, weight, out, 1, 2, 0.0f);
    EXPECT_FLOAT_EQ(out[0], 1.6970563f);
    EXPECT_FLOAT_EQ(out[1], -0.56568542f);
    ref::rmsnorm(x, nullptr, out, 1, 2, 12.5f);  // sqrt(25)
    EXPECT_FLOAT_EQ(out[0], 0.6f);
    float residual[] = {1, 1};
    ref::add_rmsnorm(x, residual, nullptr, out, 1, 2, 0.0f);
    EXPECT_EQ(residual[0], 4);
    EXPECT_EQ(residual[1], -3);
    EXPECT_FLOAT_EQ(out[0], 1.1313709f);
}

TEST(Definition, LayernormByHand) {
    const float x[] = {1, 3}, weight[] = {2, 3}, bias[] = {0.5f, -0.5f};  // mean 2, variance 1
    float out[2];
    ref::layernorm(x, weight, bias, out, 1, 2, 0.0f);
    EXPECT_EQ(out[0], -1.5f);
    EXPECT_EQ(out[1], 2.5f);
    ref::layernorm(x, nullptr, nullptr, out, 1, 2, 3.0f);
    EXPECT_EQ(out[1], 0.5f);
}

TEST(Definition, RopeTurnsAQuarter) {
    const std::int32_t pos[] = {1};
    const double inv_freq[] = {1.5707963267948966, 0.0};
    float table[4];
    ref::rope_table(pos, 1, inv_freq, 2, 2.0f, table);
    EXPECT_NEAR(table[0], 0, 1e-7);
    EXPECT_EQ(table[1], 2);
    EXPECT_EQ(table[2], 2);
    EXPECT_EQ(table[3], 0);
    const float x[] = {1, 10, 100, 1000, 7};
    float norm[5], neox[5];
    ref::rope(x, table, ASSAY_ROPE_NORM, norm, 1, 1, 5, 2);
    ref::rope(x, table, ASSAY_ROPE_NEOX, neox, 1, 1, 5, 2);
    const float want_norm[] = {-20, 2, 200, 2000, 7}, want_neox[] = {-200, 20, 2, 2000, 7};
    for (int i = 0; i < 5; ++i) {
        EXPECT_NEAR(norm[i], want_norm[i], 1e-4f) << i;
        EXPECT_NEAR(neox[i], want_neox[i], 1e-4f) << i;
    }
}

TEST(Definition, RopeKeepsLengthsAndDependsOnDistanceOnly) {
    std::mt19937_64 rng{3};
    std::normal_distribution<float> normal;
    float q[8], k[8];
    for (int i = 0; i < 8; ++i) q[i] = normal(rng), k[i] = normal(rng);
    const double inv_freq[] = {1, 0.1, 0.01, 0.001};
    const auto dot_at = [&](std::int32_t q_pos, std::int32_t k_pos) {
        float table[8], a[8], b[8];
        ref::rope_table(&q_pos, 1, inv_freq, 4, 1.0f, table);
        ref::rope(q, table, ASSAY_ROPE_NORM, a, 1, 1, 8, 4);
        ref::rope_table(&k_pos, 1, inv_freq, 4, 1.0f, table);
        ref::rope(k, table, ASSAY_ROPE_NORM, b, 1, 1, 8, 4);
        double dot = 0;
        for (int i = 0; i < 8; ++i) dot += double{a[i]} * double{b[i]};
        return dot;
    };
    EXPECT_NEAR(dot_at(5, 2), dot_at(1005, 1002), 1e-5);
    EXPECT_GT(std::abs(dot_at(5, 2) - dot_at(5, 4)), 1e-3);
}

TEST(Definition, GluByHand) {
    const double kSigmoid1 = 0.7310585786300049;
    EXPECT_NEAR(ref::glu(ASSAY_GLU_SILU, 0, 0, 1, 3), 3 * kSigmoid1, 1e-15);
    EXPECT_NEAR(ref::glu(ASSAY_GLU_GELU_TANH, 0, 0, 1, 2), 2 * 0.8411919906082768, 1e-12);
    EXPECT_EQ(ref::glu(ASSAY_GLU_NONE, 0, 0, 2, 3), 6);
    // gate above the limit, up below minus the limit: 7 sigmoid(1.702 * 7) (-7 + 1)
    EXPECT_NEAR(ref::glu(ASSAY_GLU_SILU_CLAMP, 1.702, 7, 9, -8), -42 / (1 + std::exp(-11.914)),
                1e-12);
    // a gate far below minus the limit is not clamped
    EXPECT_NEAR(ref::glu(ASSAY_GLU_SILU_CLAMP, 1, 7, -9, 9), -9 / (1 + std::exp(9.0)) * 8, 1e-15);
}

TEST(Definition, SoftcapBendsTowardsTheCap) {
    EXPECT_NEAR(ref::softcap(1e-6, 30), 1e-6, 1e-18);
    EXPECT_NEAR(ref::softcap(30, 30), 30 * 0.7615941559557649, 1e-12);
    EXPECT_NEAR(ref::softcap(-1e9, 30), -30, 1e-12);
}

TEST(Definition, HadamardIsSylvesters) {
    const float x[] = {1, 2, 3, 4};
    float out[4];
    ref::hadamard(x, out, 1, 4);
    const float want[] = {5, -1, -2, 0};
    for (int i = 0; i < 4; ++i) EXPECT_EQ(out[i], want[i]) << i;
    ref::hadamard(out, out, 1, 4);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(out[i], x[i]) << i;
}

TEST(Definition, SoftmaxAndItsLogarithm) {
    const float x[] = {1000, 1001};  // overflows without the shift
    double p[2], log_p[2];
    ref::softmax(x, p, 2);
    EXPECT_NEAR(p[0], 0.2689414213699951, 1e-15);
    EXPECT_NEAR(p[0] + p[1], 1, 1e-15);
    ref::log_softmax(x, log_p, 2);
    EXPECT_NEAR(log_p[0], std::log(p[0]), 1e-14);
    const float broken[] = {std::numeric_limits<float>::quiet_NaN(), 2};
    ref::log_softmax(broken, log_p, 2);
    EXPECT_EQ(log_p[0], -std::numeric_limits<double>::infinity());
    EXPECT_EQ(log_p[1], 0);
}

assay_router rule(std::int32_t gating, std::int32_t top_k, bool normalize, float scale) {
    return {sizeof(assay_router), gating, top_k, 0, 0, normalize, scale};
}

TEST(Definition, RouterGivesTheWorkedExample) {
    const float logits[] = {0, 1, -1, 2}, bias[] = {0.5f, 0, 0, -0.5f};
    std::int32_t ids[2];
    float weights[2];
    ref::router(rule(2, 2, true, 2.5f), logits, bias, 1, 4, ids, weights);
    EXPECT_EQ(ids[0], 0);
    EXPECT_EQ(ids[1], 1);
    EXPECT_NEAR(weights[0], 1.015386, 1e-6);
    EXPECT_NEAR(weights[1], 1.484614, 1e-6);
}

TEST(Definition, RouterGatingsByHand) {
    const float logits[] = {std::log(1.0f), std::log(2.0f), std::log(5.0f)};
    std::int32_t ids[2];
    float weights[2];
    ref::router(rule(1, 2, false, 1), logits, nullptr, 1, 3, ids, weights);
    EXPECT_EQ(ids[0], 2);
    EXPECT_NEAR(weights[0], 5.0 / 8, 1e-6);
    EXPECT_NEAR(weights[1], 2.0 / 8, 1e-6);
    ref::router(rule(3, 2, false, 1), logits, nullptr, 1, 3, ids, weights);
    EXPECT_NEAR(weights[0], 5.0 / 7, 1e-6) << "softmax over the chosen";
    const float zero[] = {0, -100, 100};
    ref::router(rule(4, 2, false, 1), zero, nullptr, 1, 3, ids, weights);
    EXPECT_NEAR(weights[0], 10, 1e-6) << "softplus of a large x is x";
    EXPECT_NEAR(weights[1], std::sqrt(std::log(2.0)), 1e-6);
}

TEST(Definition, ExpertsSortedAndCombinedByHand) {
    const std::int32_t ids[] = {1, 0, 1, 2};  // two tokens, two experts each
    std::int32_t slot_of[4], row_ids[4], offset[4];
    ref::expert_sort(ids, 2, 2, 3, slot_of, row_ids, offset);
    const std::int32_t want_slots[] = {1, 0, 2, 3}, want_rows[] = {0, 0, 1, 1};
    const std::int32_t want_offset[] = {0, 1, 3, 4};
    for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(slot_of[i], want_slots[i]) << i;
        EXPECT_EQ(row_ids[i], want_rows[i]) << i;
        EXPECT_EQ(offset[i], want_offset[i]) << i;
    }
    const float y[] = {1, 10, 100, 1000}, weights[] = {2, 3, 4, 5};
    float out[] = {7, 7};
    ref::expert_combine(y, slot_of, weights, true, out, 2, 2, 1);
    EXPECT_EQ(out[0], 7 + 2 * 10 + 3 * 1);
    EXPECT_EQ(out[1], 7 + 4 * 100 + 5 * 1000);
}

}  // namespace
