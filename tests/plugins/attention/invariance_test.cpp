// The same bits for a sequence's token whatever surrounds it: neighbours, chunking, phase, lanes,
// pages, instruction set. CPU images promise this (ASSAY_ATTN_ORDERED), and hot swaps, preemption
// and prefix reuse rest on it.

#include "backends.hpp"
#include "cases.hpp"
#include "world.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace attention_test {
namespace {

// Beyond a split of 512 keys, and not a multiple of any tile.
constexpr std::int64_t kLength = 530;
constexpr std::int64_t kFirst = 500;  // rows are compared from here on, and at the start

const LayerCase& layer_named(std::string_view name) {
    return *std::find_if(std::begin(kLayers), std::end(kLayers),
                         [&](const LayerCase& l) { return l.name == name; });
}

std::vector<Row> tail(const std::vector<Row>& rows, std::int64_t n) {
    return {rows.end() - static_cast<std::ptrdiff_t>(n), rows.end()};
}

void expect_same_bits(const std::vector<Row>& a, const std::vector<Row>& b, const char* what) {
    ASSERT_EQ(a.size(), b.size()) << what;
    for (std::size_t r = 0; r < a.size(); ++r)
        ASSERT_TRUE(a[r] == b[r]) << what << ": row " << r << " of " << a.size();
}

class AttentionInvariance : public testing::TestWithParam<std::tuple<Backend, const char*>> {
protected:
    const Backend& backend() const { return std::get<0>(GetParam()); }
    const assay_attn_layer& layer() const { return layer_named(std::get<1>(GetParam())).layer; }
    Problem problem(const std::vector<std::int64_t>& lengths) {
        const unsigned seed = std::random_device{}();
        RecordProperty("seed", static_cast<int>(seed));
        std::mt19937 rng{seed};
        return random_problem(layer(), lengths, backend().kv_dtype, rng);
    }
};

TEST_P(AttentionInvariance, SameBitsAloneAndInABatch) {
    const Problem p = problem({kLength, 40, 300});
    World alone{backend(), p, 32};
    alone.fill({{0, kFirst}});
    const auto want = alone.run({{0, kLength - kFirst}});

    World crowd{backend(), p, 32, 3};
    crowd.fill({{1, 39}, {0, kFirst}, {2, 200}});
    const auto rows = crowd.run({{1, 1}, {2, 100}, {0, kLength - kFirst}});
    expect_same_bits(tail(rows, kLength - kFirst), want, "with neighbours and three lanes");
}

TEST_P(AttentionInvariance, SameBitsInOneShotInChunksAndTokenByToken) {
    const Problem p = problem({kLength});
    World one{backend(), p, 32, 2};
    const auto all = one.run({{0, kLength}});
    const auto want = tail(all, kLength - kFirst);

    World chunks{backend(), p, 32, 3};
    std::vector<Row> rows;
    for (const std::int64_t n : {1L, 63L, 65L, 300L, 100L, kLength - 529L}) {
        const auto part = chunks.run({{0, n}});
        rows.insert(rows.end(), part.begin(), part.end());
    }
    expect_same_bits(rows, all, "in chunks");

    for (const std::uint32_t lanes : {1U, 3U}) {
        World decode{backend(), p, 32, lanes};
        decode.fill({{0, kFirst}});
        std::vector<Row> tokens;
        for (std::int64_t t = kFirst; t < kLength; ++t) tokens.push_back(decode.run({{0, 1}})[0]);
        expect_same_bits(tokens, want, lanes == 1 ? "decode, one lane" : "decode, three lanes");
    }
}

TEST_P(AttentionInvariance, SameBitsForEveryPageSizeAndPlaceAndTwice) {
    const Problem p = problem({kLength});
    const auto run = [&](std::int64_t page_tokens, unsigned seed) {
        World world{backend(), p, page_tokens, 2, 0, seed};
        world.fill({{0, kFirst}});
        return world.run({{0, kLength - kFirst}});
    };
    const auto want = run(32, 1);
    expect_same_bits(run(32, 1), want, "run twice");
    expect_same_bits(run(32, 2), want, "pages elsewhere");
    expect_same_bits(run(16, 3), want, "pages of 16");
    expect_same_bits(run(240, 4), want, "pages of 240");
}

TEST_P(AttentionInvariance, LaterTokensDoNotReachEarlierOnes) {
    Problem p = problem({90});
    World clean{backend(), p, 32};
    auto want = clean.run({{0, 90}});
    want.resize(60);
    // A broken token: not a number in everything it stores.
    const auto spoil = [](std::vector<float>& x, std::int64_t token, std::int64_t length) {
        const auto width = static_cast<std::ptrdiff_t>(x.size()) / length;
        std::fill_n(x.begin() + token * width, width, std::numeric_limits<float>::quiet_NaN());
    };
    spoil(p.sequences[0].k, 60, 90);
    if (!p.is_mla()) spoil(p.sequences[0].v, 60, 90);
    if (p.has_index()) spoil(p.sequences[0].index_k, 60, 90);
    World broken{backend(), p, 32};
    auto rows = broken.run({{0, 90}});
    EXPECT_TRUE(std::isnan(rows[60].out[0])) << "the token itself must show it";
    rows.resize(60);
    expect_same_bits(rows, want, "rows before the broken token");
}

INSTANTIATE_TEST_SUITE_P(Images, AttentionInvariance,
                         testing::Combine(testing::ValuesIn(default_backends()),
                                          testing::Values("gqa4_d64", "gqa_d40v24",
                                                          "gqa_window70_sink", "mla4_80",
                                                          "dsa_k24")),
                         [](const auto& param) {
                             return std::get<0>(param.param).name() + "_" +
                                    std::get<1>(param.param);
                         });

/// The tiers of one image compute the same thing in the same order.
class TierInvariance : public testing::TestWithParam<LayerCase> {};

TEST_P(TierInvariance, EveryTierGivesTheSameBits) {
    std::mt19937 rng{std::random_device{}()};
    const Problem p = random_problem(GetParam().layer, {kLength, 30}, ASSAY_F32, rng);
    std::vector<Row> want;
    std::size_t num_tiers = 0;
    for (const Backend& b : backends()) {
        if (b.tier == nullptr || b.kv_dtype != ASSAY_F32) continue;
        World world{b, p, 32, 2};
        world.fill({{0, kLength - 8}});
        const auto rows = world.run({{0, 8}, {1, 30}});
        if (num_tiers++ == 0) want = rows;
        expect_same_bits(rows, want, b.tier);
    }
    EXPECT_GE(num_tiers, 1U);
}

INSTANTIATE_TEST_SUITE_P(Layers, TierInvariance, testing::ValuesIn(kLayers),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace attention_test
