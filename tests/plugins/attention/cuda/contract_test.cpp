// What the CUDA images say of themselves, and what holds beside the definition: bits that do not
// depend on neighbours or pages, captured graphs that follow the plan, words where there is no GPU.

#include "../backends.hpp"
#include "../cases.hpp"
#include "../world.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

namespace attention_test {
namespace {

const assay_attn_layer& layer_named(std::string_view name) {
    return std::find_if(std::begin(kLayers), std::end(kLayers),
                        [&](const LayerCase& l) { return l.name == name; })
        ->layer;
}

std::vector<Row> tail(const std::vector<Row>& rows, std::int64_t n) {
    return {rows.end() - static_cast<std::ptrdiff_t>(n), rows.end()};
}

void expect_same_bits(const std::vector<Row>& a, const std::vector<Row>& b, const char* what) {
    ASSERT_EQ(a.size(), b.size()) << what;
    for (std::size_t r = 0; r < a.size(); ++r)
        ASSERT_TRUE(a[r] == b[r]) << what << ": row " << r << " of " << a.size();
}

TEST(CudaAttentionContract, PhasesCoverEverythingAndShareNothing) {
    for (const char* image : {"cuda-gqa", "cuda-mla"}) {
        const assay_module& module = open_module(image);
        EXPECT_STREQ(module.id, image);
        EXPECT_STREQ(module.kinds, ASSAY_KIND_ATTENTION);
        EXPECT_EQ(module.query("quant/1"), nullptr);
        const assay_attention& table = open_image(image);
        for (std::uint32_t i = 0; i < table.num_caps; ++i) {
            const assay_attn_cap& cap = *table.caps[i];
            EXPECT_EQ(cap.phases | cap.phases_absent, 7U);
            EXPECT_EQ(cap.phases & cap.phases_absent, 0U);
            EXPECT_EQ(cap.absent_reason != nullptr, cap.phases_absent != 0);
            EXPECT_EQ((cap.flags & ASSAY_ATTN_ORDERED) != 0, cap.attn_class == ASSAY_ATTN_GQA);
        }
    }
}

TEST(CudaAttentionContract, RefusalsSayWhatWasFoundAndWhatIsServed) {
    const Backend gqa{"cuda-gqa", nullptr, ASSAY_F16}, mla{"cuda-mla", nullptr, ASSAY_F16};
    EXPECT_EQ(refusal_of(gqa, mla_layer(4, 64, 16, 0.1F)),
              "attention class is MLA; cuda-gqa serves GQA");
    EXPECT_EQ(refusal_of(mla, gqa_layer(8, 2, 64, 64, 1)),
              "attention class is GQA; cuda-mla serves MLA, MLA_DSA");
    EXPECT_EQ(refusal_of({"cuda-gqa", nullptr, ASSAY_I8}, gqa_layer(8, 2, 64, 64, 1)),
              "KV cache dtype is i8; cuda-gqa keeps f32, f16, bf16");
    EXPECT_EQ(refusal_of(gqa, gqa_layer(8, 2, 320, 320, 1)),
              "head_dim is 320; cuda-gqa serves 16 to 256");
    Config config{gqa, 32};
    config.device.kind = "cpu";
    const assay_attn_layer layer = gqa_layer(8, 2, 64, 64, 1);
    assay_error err = sdk::make_error();
    EXPECT_EQ(open_image("cuda-gqa").check(&config.config, &layer, ASSAY_DECODE, &err), ASSAY_UNSUPPORTED);
    EXPECT_STREQ(err.text, "device kind is cpu; cuda-gqa runs on cuda");
}

TEST(CudaAttentionContract, WithoutAGpuTheImageLoadsAndSaysSo) {
    if (cuda_device().arch != 0) GTEST_SKIP() << "this machine has " << cuda_device().name;
    const std::string words = refusal_of({"cuda-gqa", nullptr, ASSAY_F16}, gqa_layer(8, 2, 64, 64, 1));
    EXPECT_TRUE(words.starts_with("no CUDA device: ")) << words;
    EXPECT_EQ(refusal_of({"cuda-mla", nullptr, ASSAY_F16}, mla_layer(4, 64, 16, 1)), words);
}

TEST(CudaAttentionContract, AGpuWithoutCodeIsRefusedWithBothLists) {
    if (cuda_device().arch == 0) GTEST_SKIP() << "no GPU";
    const Backend backend{"cuda-gqa", nullptr, ASSAY_F16};
    Config config{backend, 32};
    config.device.arch = 75;
    const assay_attn_layer layer = gqa_layer(8, 2, 64, 64, 1);
    assay_error err = sdk::make_error();
    EXPECT_EQ(open_image("cuda-gqa").check(&config.config, &layer, ASSAY_DECODE, &err), ASSAY_UNSUPPORTED);
    EXPECT_NE(std::string_view{err.text}.find("has compute capability 7.5; this plugin was built for"),
              std::string_view::npos)
        << err.text;
}

TEST(CudaAttentionContract, TiersSayWhyTheyDoNotTakeALayer) {
    if (cuda_device().arch == 0) GTEST_SKIP() << "no GPU";
    EXPECT_EQ(refusal_of({"cuda-gqa", "mma", ASSAY_F32}, gqa_layer(8, 2, 64, 64, 1)),
              "tier mma: an f32 cache has no tensor-core kernel");
    EXPECT_EQ(refusal_of({"cuda-gqa", "mma", ASSAY_F16}, gqa_layer(8, 2, 60, 60, 1)),
              "tier mma: head sizes 60 and 60 are not multiples of 8");
    EXPECT_EQ(refusal_of({"cuda-gqa", "avx2", ASSAY_F16}, gqa_layer(8, 2, 64, 64, 1)),
              "option tier is \"avx2\"; known: auto, plain, mma, wgmma");
    EXPECT_EQ(refusal_of({"cuda-mla", "mma", ASSAY_F16}, mla_layer(4, 600, 64, 1)),
              "tier mma: kv_lora_rank 600 and qk_rope_head_dim 64; at most 512 and 576 together");
    EXPECT_EQ(refusal_of({"cuda-mla", nullptr, ASSAY_F16}, mla_layer(4, 600, 64, 1)), "");
}

class CudaInvariance : public testing::TestWithParam<std::tuple<Backend, const char*>> {
protected:
    void SetUp() override { SKIP_UNLESS_SERVED(backend(), layer()); }
    const Backend& backend() const { return std::get<0>(GetParam()); }
    const assay_attn_layer& layer() const { return layer_named(std::get<1>(GetParam())); }
    Problem problem(const std::vector<std::int64_t>& lengths) {
        const unsigned seed = std::random_device{}();
        RecordProperty("seed", static_cast<int>(seed));
        std::mt19937 rng{seed};
        return random_problem(layer(), lengths, backend().kv_dtype, rng);
    }
};

TEST_P(CudaInvariance, SameBitsAloneAndInABatch) {
    if (layer().attn_class != ASSAY_ATTN_GQA) GTEST_SKIP() << "promised of GQA only (ASSAY_ATTN_ORDERED)";
    const Problem p = problem({530, 40, 300});
    for (const std::int64_t queries : {1L, 5L, 30L}) {
        World alone{backend(), p, 32};
        alone.fill({{0, 530 - queries}});
        const auto want = alone.run({{0, queries}});
        World crowd{backend(), p, 32};
        crowd.fill({{1, 39}, {0, 530 - queries}, {2, 200}});
        const auto rows = crowd.run({{1, 1}, {2, 100}, {0, queries}});
        expect_same_bits(tail(rows, queries), want, "with neighbours");
    }
}

TEST_P(CudaInvariance, SameBitsForEveryPageSizeAndPlaceAndTwice) {
    const Problem p = problem({530});
    for (const std::int64_t queries : {1L, 30L}) {
        const auto run = [&](std::int64_t page_tokens, unsigned seed) {
            World world{backend(), p, page_tokens, 1, 0, seed};
            world.fill({{0, 530 - queries}});
            return world.run({{0, queries}});
        };
        const auto want = run(32, 1);
        expect_same_bits(run(32, 1), want, "run twice");
        expect_same_bits(run(32, 2), want, "pages elsewhere");
        expect_same_bits(run(16, 3), want, "pages of 16");
        expect_same_bits(run(240, 4), want, "pages of 240");
    }
}

// The tensor-core tiers multiply what a row does not see with a weight of zero; there a broken later
// token of the same tile shows in earlier rows of its own sequence.
TEST_P(CudaInvariance, LaterTokensDoNotReachEarlierOnes) {
    if (backend().is_tensor_core()) GTEST_SKIP() << "promised of the plain tier";
    Problem p = problem({90});
    World clean{backend(), p, 32};
    auto want = clean.run({{0, 90}});
    want.resize(60);
    const auto spoil = [](std::vector<float>& x) {
        const auto width = static_cast<std::ptrdiff_t>(x.size()) / 90;
        std::fill_n(x.begin() + 60 * width, width, std::numeric_limits<float>::quiet_NaN());
    };
    spoil(p.sequences[0].k);
    if (!p.is_mla()) spoil(p.sequences[0].v);
    if (p.has_index()) spoil(p.sequences[0].index_k);
    World broken{backend(), p, 32};
    auto rows = broken.run({{0, 90}});
    EXPECT_TRUE(std::isnan(rows[60].out[0])) << "the token itself must show it";
    rows.resize(60);
    expect_same_bits(rows, want, "rows before the broken token");
}

INSTANTIATE_TEST_SUITE_P(Images, CudaInvariance,
                         testing::Combine(testing::ValuesIn(backends()),
                                          testing::Values("gqa4_d64", "gqa_d40v24", "mqa_d128",
                                                          "gqa_window70_sink", "mla4_80",
                                                          "mla5_576", "dsa_k24")),
                         [](const auto& param) {
                             return std::get<0>(param.param).name() + "_" +
                                    std::get<1>(param.param);
                         });

}  // namespace
}  // namespace attention_test
