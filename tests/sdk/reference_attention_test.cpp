// The definitions of attention against values worked out by hand and against identities of the
// papers that they come from.

#include "reference/attention.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace {

using namespace sdk::reference;

std::vector<float> random_floats(std::size_t n, std::mt19937& rng) {
    std::normal_distribution<float> normal;
    std::vector<float> x(n);
    for (float& f : x) f = normal(rng);
    return x;
}

// Two keys with scores ln 1 and ln 3: weights 1/4 and 3/4.
TEST(ReferenceGqa, WeightsAreTheSoftmaxOfTheScores) {
    const float q[] = {2, 2};  // two queries, at positions 0 and 1; one head of one entry
    const float k[] = {0, 0.5493061443F};  // ln 3 / 2
    const float v[] = {8, 4};
    float out[2], lse[2];
    gqa_attention(q, k, v, 2, 2, 1, 1, 1, 1, {}, out, lse);
    EXPECT_FLOAT_EQ(out[0], 8) << "the first query sees the first key alone";
    EXPECT_FLOAT_EQ(out[1], 0.25F * 8 + 0.75F * 4);
    EXPECT_FLOAT_EQ(lse[1], 1.3862944F) << "ln 4";
}

TEST(ReferenceGqa, ScaleAndSoftcapComeBeforeTheSoftmax) {
    const float q[] = {3}, k[] = {0, 1}, v[] = {0, 1};
    float out = 0;
    gqa_attention(q, k, v, 1, 2, 1, 1, 1, 1, {.scale = 0.5F, .softcap = 2}, &out, nullptr);
    const double score = 2 * std::tanh(1.5 / 2);
    EXPECT_FLOAT_EQ(out, static_cast<float>(std::exp(score) / (1 + std::exp(score))));
}

TEST(ReferenceGqa, WindowCountsTheQuerysOwnToken) {
    const float q[] = {0, 0, 0, 0}, k[] = {0, 0, 0, 0}, v[] = {1, 10, 100, 1000};
    float out[4];
    gqa_attention(q, k, v, 4, 4, 1, 1, 1, 1, {.window = 2}, out, nullptr);
    EXPECT_FLOAT_EQ(out[0], 1);
    EXPECT_FLOAT_EQ(out[1], 5.5F);
    EXPECT_FLOAT_EQ(out[3], 550);
    gqa_attention(q, k, v, 4, 4, 1, 1, 1, 1, {.window = 1}, out, nullptr);
    EXPECT_FLOAT_EQ(out[2], 100);
}

TEST(ReferenceGqa, SinkTakesWeightAndGivesNothing) {
    const float q[] = {5}, k[] = {0}, v[] = {6}, sink[] = {0.6931471806F};  // ln 2: twice the key
    float out = 0, lse = 0;
    gqa_attention(q, k, v, 1, 1, 1, 1, 1, 1, {.scale = 7, .sinks = sink}, &out, &lse);
    EXPECT_FLOAT_EQ(out, 2);
    EXPECT_FLOAT_EQ(lse, 1.0986123F) << "ln 3: the sink is in the denominator, and is not scaled";
}

TEST(ReferenceGqa, HeadsShareKeysInGroupsOfNeighbours) {
    const float q[] = {1, 1, 1, 1}, k[] = {0, 0}, v[] = {5, 7};  // one token, Hq 4, Hkv 2
    float out[4];
    gqa_attention(q, k, v, 1, 1, 4, 2, 1, 1, {}, out, nullptr);
    EXPECT_EQ(std::vector<float>(out, out + 4), (std::vector<float>{5, 5, 7, 7}));
}

// Absorbed equals expanded: q~ = K_h^T q_nope and out_h = V_h z, with random K_h and V_h.
TEST(ReferenceMla, AbsorbedEqualsKeysAndValuesExpandedPerHead) {
    constexpr int kHeads = 3, kNope = 5, kRope = 2, kRank = 4, kV = 6, kTokens = 7;
    std::mt19937 rng{std::random_device{}()};
    const auto k_b = random_floats(kHeads * kNope * kRank, rng);  // [H, N, L]
    const auto v_b = random_floats(kHeads * kV * kRank, rng);     // [H, V, L]
    const auto latent = random_floats(kTokens * (kRank + kRope), rng);
    const auto q = random_floats(kTokens * kHeads * (kNope + kRope), rng);
    const Softmax softmax{.scale = 0.4F};

    std::vector<float> absorbed(kTokens * kHeads * (kRank + kRope)),
        keys(kTokens * kHeads * (kNope + kRope)), values(kTokens * kHeads * kV);
    for (int t = 0; t < kTokens; ++t)
        for (int h = 0; h < kHeads; ++h) {
            const float* qh = q.data() + (t * kHeads + h) * (kNope + kRope);
            float* ah = absorbed.data() + (t * kHeads + h) * (kRank + kRope);
            const float* c = latent.data() + t * (kRank + kRope);
            for (int l = 0; l < kRank; ++l) {
                double sum = 0;
                for (int n = 0; n < kNope; ++n)
                    sum +=
                        double{k_b[static_cast<std::size_t>((h * kNope + n) * kRank + l)]} * qh[n];
                ah[l] = static_cast<float>(sum);
            }
            float* key = keys.data() + (t * kHeads + h) * (kNope + kRope);
            for (int n = 0; n < kNope; ++n) {
                double sum = 0;
                for (int l = 0; l < kRank; ++l)
                    sum +=
                        double{k_b[static_cast<std::size_t>((h * kNope + n) * kRank + l)]} * c[l];
                key[n] = static_cast<float>(sum);
            }
            for (int r = 0; r < kRope; ++r) {
                ah[kRank + r] = qh[kNope + r];
                key[kNope + r] = c[kRank + r];
            }
            for (int v = 0; v < kV; ++v) {
                double sum = 0;
                for (int l = 0; l < kRank; ++l)
                    sum += double{v_b[static_cast<std::size_t>((h * kV + v) * kRank + l)]} * c[l];
                values[static_cast<std::size_t>((t * kHeads + h) * kV + v)] =
                    static_cast<float>(sum);
            }
        }
    std::vector<float> z(kTokens * kHeads * kRank), expanded(kTokens * kHeads * kV);
    std::vector<float> lse(kTokens * kHeads), expanded_lse(kTokens * kHeads);
    mla_attention(absorbed.data(), latent.data(), kTokens, kTokens, kHeads, kRank, kRope, nullptr,
                  0, softmax, z.data(), lse.data());
    gqa_attention(q.data(), keys.data(), values.data(), kTokens, kTokens, kHeads, kHeads,
                  kNope + kRope, kV, softmax, expanded.data(), expanded_lse.data());
    for (int t = 0; t < kTokens; ++t)
        for (int h = 0; h < kHeads; ++h) {
            const auto row = static_cast<std::size_t>(t * kHeads + h);
            EXPECT_NEAR(lse[row], expanded_lse[row], 1e-5);
            for (int v = 0; v < kV; ++v) {
                double sum = 0;
                for (int l = 0; l < kRank; ++l)
                    sum += double{v_b[static_cast<std::size_t>((h * kV + v) * kRank + l)]} *
                           z[row * kRank + static_cast<std::size_t>(l)];
                EXPECT_NEAR(sum, expanded[row * kV + static_cast<std::size_t>(v)], 1e-5)
                    << "token " << t << " head " << h;
            }
        }
}

TEST(ReferenceMla, SelectionIsASetAndNeverReachesForward) {
    const float q[] = {0, 0, 0}, latent[] = {1, 10, 100};  // one head, L 1, R 0
    const std::int32_t topk[] = {-1, 0, 2, 1, -1, 0, 2, 0, -1};
    float out[3], lse[3];
    mla_attention(q, latent, 3, 3, 1, 1, 0, topk, 3, {}, out, lse);
    EXPECT_FLOAT_EQ(out[0], 1) << "position 2 is after the query";
    EXPECT_FLOAT_EQ(out[1], 5.5F);
    EXPECT_FLOAT_EQ(out[2], 50.5F) << "padding may stand anywhere";
}

TEST(ReferenceMla, ARowWithoutKeysGivesZeros) {
    const float q[] = {1}, latent[] = {3}, sink[] = {0};
    const std::int32_t topk[] = {-1, -1};
    float out = 9, lse = 9;
    mla_attention(q, latent, 1, 1, 1, 1, 0, topk, 2, {.sinks = sink}, &out, &lse);
    EXPECT_EQ(out, 0);
    EXPECT_EQ(lse, -std::numeric_limits<float>::infinity());
}

TEST(ReferenceIndex, ReluComesBeforeTheWeights) {
    const float q[] = {1, -1};  // one query at position 1, two heads of one entry
    const float k[] = {3, -4, 9}, w[] = {2, -1};
    double score[4];
    index_scores(q, k, w, 1, 2, 2, 1, score);
    EXPECT_EQ(score[0], 6) << "2 max(0, 3) - max(0, -3)";
    EXPECT_EQ(score[1], -4) << "2 max(0, -4) - max(0, 4)";
    const float two[] = {1, -1, 1, -1}, weights[] = {2, -1, 2, -1};
    index_scores(two, k, weights, 2, 2, 2, 1, score);
    EXPECT_EQ(score[1], -std::numeric_limits<double>::infinity()) << "the first query is before it";
}

TEST(ReferenceIndex, OfEqualScoresTheLowerPositionWins) {
    const double score[] = {0, 5, -0.0, 5, 0, 7, -1};
    std::int32_t got[4];
    index_topk(score, 7, 4, got);
    EXPECT_EQ(std::vector<std::int32_t>(got, got + 4), (std::vector<std::int32_t>{0, 1, 3, 5}));
    index_topk(score, 3, 4, got);
    EXPECT_EQ(std::vector<std::int32_t>(got, got + 4), (std::vector<std::int32_t>{0, 1, 2, -1}));
    const double broken[] = {1, 2, std::nan(""), 3};
    index_topk(broken, 4, 2, got);
    EXPECT_EQ(std::vector<std::int32_t>(got, got + 2), (std::vector<std::int32_t>{2, 3}));
}

}  // namespace
