// MLA with a selection (DSA): the rule of ties, equality with dense attention, and selections that
// come from elsewhere.

#include "backends.hpp"
#include "cases.hpp"
#include "world.hpp"

#include <algorithm>
#include <numeric>
#include <random>

namespace attention_test {
namespace {

class SparseAttention : public testing::TestWithParam<Backend> {
protected:
    void SetUp() override { SKIP_UNLESS_SERVED(GetParam(), dsa_layer(mla_layer(4, 64, 16, 0.14F), 4, 32, 8)); }
    /// The same bits where the image promises them; else within the rounding of two results.
    void expect_equal(const Row& a, const Row& b, const Problem& p, std::size_t token) {
        if (!GetParam().is_cuda()) {
            EXPECT_EQ(a.out, b.out) << "token " << token;
            return;
        }
        Bound bound = error_bound(p, 0, GetParam());
        expect_close({a}, {b}, {2 * bound.out, 2 * bound.lse}, "token " + std::to_string(token));
    }
    std::mt19937 rng_{std::random_device{}()};
};

INSTANTIATE_TEST_SUITE_P(Images, SparseAttention, testing::ValuesIn(default_backends()),
                         [](const auto& param) { return param.param.name(); });

assay_attn_layer small_dsa(std::int32_t topk) {
    return dsa_layer(mla_layer(4, 64, 16, 0.14F), 4, 32, topk);
}

// Small integers make every score exact, so that equal means equal. Query heads point along one
// axis each; keys repeat after five positions, and many match no head at all: a score of exactly 0.
TEST_P(SparseAttention, OfEqualScoresTheLowerPositionWins) {
    constexpr std::int64_t kTokens = 200;
    for (const std::int32_t topk : {1, 7, 16, 64, 150}) {
        Problem p = random_problem(small_dsa(topk), {kTokens}, GetParam().kv_dtype, rng_);
        Tokens& t = p.sequences[0];
        for (std::size_t i = 0; i < t.index_q.size(); ++i)
            t.index_q[i] = i % 32 == i / 32 % 4 ? 1.0F : 0.0F;
        for (std::int64_t s = 0; s < kTokens; ++s)
            for (std::int64_t d = 0; d < 32; ++d)
                t.index_k[static_cast<std::size_t>(s * 32 + d)] =
                    d < 4 ? static_cast<float>((s + d) % 5 - 3) : 1.0F;
        for (std::size_t i = 0; i < t.index_weight.size(); ++i)
            t.index_weight[i] = i % 4 == 3 ? -1.0F : 1.0F;
        World world{GetParam(), p, 16, 3};
        const auto rows = world.run({{0, kTokens}});
        for (std::int64_t s = 0; s < kTokens; ++s) {
            SCOPED_TRACE(testing::Message() << "topk " << topk);
            expect_selection(p, 0, s, rows[static_cast<std::size_t>(s)].positions, true);
        }
    }
}

// Scores may be negative: a key that is masked or not there must not win with a score of 0.
TEST_P(SparseAttention, NegativeScoresStillCompete) {
    Problem p = random_problem(small_dsa(8), {100, 30}, GetParam().kv_dtype, rng_);
    for (Tokens& t : p.sequences)
        for (float& w : t.index_weight) w = -std::abs(w) - 1.0F;
    World world{GetParam(), p, 32, 2};
    const auto rows = world.run({{1, 30}, {0, 100}});
    for (std::int64_t s = 0; s < 130; ++s)
        expect_selection(p, s < 30 ? 1 : 0, s < 30 ? s : s - 30,
                         rows[static_cast<std::size_t>(s)].positions, false);
}

TEST_P(SparseAttention, SelectionsAreAscendingAndPaddedAtTheEnd) {
    const Problem p = random_problem(small_dsa(20), {60}, GetParam().kv_dtype, rng_);
    World world{GetParam(), p, 16};
    const auto rows = world.run({{0, 60}});
    for (std::size_t t = 0; t < rows.size(); ++t) {
        const auto& positions = rows[t].positions;
        const auto n = static_cast<std::ptrdiff_t>(std::min<std::size_t>(t + 1, 20));
        EXPECT_TRUE(std::is_sorted(positions.begin(), positions.begin() + n));
        EXPECT_EQ(std::count(positions.begin(), positions.end(), -1), 20 - n) << "token " << t;
        EXPECT_TRUE(
            std::all_of(positions.begin() + n, positions.end(), [](int x) { return x == -1; }));
    }
}

TEST_P(SparseAttention, EqualsDenseWhileEverythingIsSelected) {
    constexpr std::int32_t kTopk = 530;
    Problem sparse = random_problem(small_dsa(kTopk), {540}, GetParam().kv_dtype, rng_);
    Problem dense = sparse;
    dense.layer = mla_layer(4, 64, 16, 0.14F);
    World a{GetParam(), sparse, 32, 2}, b{GetParam(), dense, 32, 2};
    const auto x = a.run({{0, 540}}), y = b.run({{0, 540}});
    for (std::size_t t = 0; t < kTopk; ++t) expect_equal(x[t], y[t], dense, t);
    EXPECT_NE(x[539].out, y[539].out) << "beyond index_topk the selection must matter";
}

TEST_P(SparseAttention, OrderAndPaddingOfASelectionDoNotMatter) {
    constexpr std::int32_t kTopk = 40;
    const Problem p = random_problem(small_dsa(kTopk), {300}, GetParam().kv_dtype, rng_);
    std::vector<std::vector<std::int32_t>> sorted, shuffled;
    for (std::int64_t t = 250; t < 300; ++t) {
        std::vector<std::int32_t> all(static_cast<std::size_t>(t + 1));
        std::iota(all.begin(), all.end(), 0);
        std::shuffle(all.begin(), all.end(), rng_);
        all.resize(33);
        std::sort(all.begin(), all.end());
        sorted.push_back(all);
        all.resize(kTopk, -1);
        std::shuffle(all.begin(), all.end(), rng_);
        shuffled.push_back(all);
    }
    const auto run = [&](const std::vector<std::vector<std::int32_t>>& selections) {
        World world{GetParam(), p, 16, 2};
        world.fill({{0, 250}});
        world.set_selection(selections);
        return world.run({{0, 50}});
    };
    const auto a = run(sorted), b = run(shuffled);
    for (std::size_t t = 0; t < a.size(); ++t) expect_equal(a[t], b[t], p, t);
    expect_close(b, defined(p, 0, 50, 300, shuffled), error_bound(p, 0, GetParam()), "shuffled");
}

TEST_P(SparseAttention, ARowWithoutAnyKeyGivesZeros) {
    assay_attn_layer layer = with_sinks(small_dsa(8));
    layer.index_role = ASSAY_INDEX_SHARED;
    const Problem p = random_problem(layer, {40}, GetParam().kv_dtype, rng_);
    World world{GetParam(), p, 16, 2};
    EXPECT_EQ(world.instance().layout().num_planes, 1U) << "a shared layer has no index keys";
    world.fill({{0, 38}});
    world.set_selection({std::vector<std::int32_t>(8, -1), {5, 39}});
    const auto rows = world.run({{0, 2}});
    EXPECT_TRUE(
        std::all_of(rows[0].out.begin(), rows[0].out.end(), [](float f) { return f == 0; }));
    EXPECT_TRUE(std::all_of(rows[0].lse.begin(), rows[0].lse.end(),
                            [](float f) { return f == -std::numeric_limits<float>::infinity(); }));
    EXPECT_NE(rows[1].out[0], 0);
}

}  // namespace
}  // namespace attention_test
