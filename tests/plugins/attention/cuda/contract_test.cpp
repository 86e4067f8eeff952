// What the CUDA images say of themselves, and what holds beside the definition: bits that do not
// depend on neighbours or pages, captured graphs that follow the plan, words where there is no GPU.

#include "../backends.hpp"
#include "../cases.hpp"
#include "../world.hpp"
#include "plugins/attention/common/convert.hpp"

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
    EXPECT_EQ(refusal_of({"cuda-gqa", "wgmma", ASSAY_F16}, gqa_layer(8, 2, 256, 256, 1)),
              cuda_device().arch == 90 ? "tier wgmma: head sizes 256 and 256; 64 or 128 are served"
                                       : refusal_of({"cuda-gqa", "wgmma", ASSAY_F16}, gqa_layer(8, 2, 64, 64, 1)));
}

// A decode step that was captured follows the lengths that the arrays and prepare() have at replay.
class CudaGraph : public testing::TestWithParam<Backend> {};

TEST_P(CudaGraph, ReplayFollowsThePlan) {
    const bool is_mla = std::string_view{GetParam().image} == "cuda-mla";
    const assay_attn_layer layer = is_mla ? mla_layer(20, 512, 64, 0.06F) : gqa_layer(8, 2, 128, 128, 0.09F);
    SKIP_UNLESS_SERVED(GetParam(), layer);
    constexpr std::int32_t kSeqs = 3, kMost = 700, kPage = 32, kBlocks = 22;
    const std::int64_t key_dim = is_mla ? 576 : 128, value_dim = is_mla ? 512 : 128, heads = layer.num_q_heads;
    Instance instance{GetParam(), layer, kPage};
    const assay_attention& api = instance.table();
    assay_error err = sdk::make_error();
    std::uint64_t plan_bytes = 0, workspace_bytes = 0;
    ASSERT_EQ(api.sizes(instance.self(), kSeqs, kSeqs, kMost, &plan_bytes, &workspace_bytes, &err), ASSAY_OK);

    std::mt19937 rng{std::random_device{}()};
    std::normal_distribution<float> normal;
    std::vector<std::uint16_t> pages(static_cast<std::size_t>(kSeqs * kBlocks * kPage * key_dim * layer.num_kv_heads));
    for (auto& h : pages) h = attention::f32_to_f16(normal(rng));
    std::vector<float> q(static_cast<std::size_t>(kSeqs * heads * key_dim));
    for (float& f : q) f = normal(rng);
    std::vector<std::int32_t> cu_q{0, 1, 2, 3}, table(kSeqs * kBlocks);
    for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<std::int32_t>(table.size() - 1 - i);

    // Runs with `captured` lengths recorded and `lengths` at replay; equal: an ordinary call.
    const auto run = [&](std::vector<std::int32_t> captured, std::vector<std::int32_t> lengths, bool is_graph) {
        Space space;
        std::vector<float> out(static_cast<std::size_t>(kSeqs * heads * value_dim), -7.0F);
        std::vector<unsigned char> plan(plan_bytes, 0xcd), workspace(workspace_bytes, 0xff);
        const auto there = [&](auto& v) { return space.enter(v.data(), v.size() * sizeof v[0]); };
        assay_attn_batch batch{};
        batch.size = sizeof batch;
        batch.num_seqs = batch.num_decode_seqs = batch.num_tokens = kSeqs;
        batch.max_q_len = 1;
        batch.max_kv_len = kMost;
        batch.max_blocks = kBlocks;
        batch.cu_q = static_cast<std::int32_t*>(there(cu_q));
        batch.kv_len = static_cast<std::int32_t*>(there(captured));
        batch.block_table = static_cast<std::int32_t*>(there(table));
        batch.host_cu_q = cu_q.data();
        batch.host_kv_len = captured.data();
        assay_attn_args a{};
        a.size = sizeof a;
        a.batch = &batch;
        a.phase = ASSAY_DECODE;
        a.planes[0] = a.planes[1] = there(pages);
        a.q = sdk::make_tensor(there(q), ASSAY_F32, kSeqs, heads, key_dim);
        a.out = sdk::make_tensor(there(out), ASSAY_F32, kSeqs, heads, value_dim);
        a.plan = there(plan);
        a.workspace = there(workspace);
        a.workspace_bytes = workspace_bytes;
        const auto prepare = [&] {
            EXPECT_EQ(api.prepare(instance.self(), &batch, ASSAY_DECODE, a.plan, &space.stream(), &err), ASSAY_OK)
                << err.text;
        };
        const auto attend = [&] {
            EXPECT_EQ(api.run(instance.self(), 0, &a, &space.stream(), &err), ASSAY_OK) << err.text;
        };
        prepare();
        if (!is_graph) {
            attend();
        } else {
            space.capture(attend);
            space.update(captured.data(), lengths.data(), lengths.size() * sizeof lengths[0]);
            batch.host_kv_len = lengths.data();
            prepare();
            space.replay(2);
        }
        space.leave();
        return out;
    };
    const std::vector<std::int32_t> small{1, 40, 130}, large{700, 64, 333};
    EXPECT_EQ(run(small, large, true), run(large, large, false));
    EXPECT_EQ(run(large, small, true), run(small, small, false));
    EXPECT_NE(run(small, small, false), run(large, large, false));
}

INSTANTIATE_TEST_SUITE_P(Images, CudaGraph,
                         testing::Values(Backend{"cuda-gqa", "mma", ASSAY_F16}, Backend{"cuda-gqa", "plain", ASSAY_F16},
                                         Backend{"cuda-mla", "mma", ASSAY_F16}, Backend{"cuda-mla", "wgmma", ASSAY_F16}),
                         [](const auto& param) { return param.param.name(); });

// Inputs and outputs of 16 bits: the same numbers as through f32, rounded once at the end.
class CudaIo : public testing::TestWithParam<std::tuple<Backend, assay_dtype>> {};

TEST_P(CudaIo, SixteenBitsRoundOnlyAtTheEnds) {
    const auto& [backend, io] = GetParam();
    const bool is_mla = std::string_view{backend.image} == "cuda-mla";
    const assay_attn_layer layer = is_mla ? mla_layer(20, 512, 64, 0.06F) : gqa_layer(8, 2, 128, 128, 0.09F);
    SKIP_UNLESS_SERVED(backend, layer);
    constexpr std::int32_t kTokens = 45, kPage = 32;
    const std::int64_t key_dim = is_mla ? 576 : 128, value_dim = is_mla ? 512 : 128, heads = layer.num_q_heads;
    const std::int64_t kv_heads = is_mla ? 1 : layer.num_kv_heads;
    const auto narrow = [io = io](float x) {
        return io == ASSAY_F16 ? attention::f32_to_f16(x) : attention::f32_to_bf16(x);
    };
    const auto widen = [io = io](std::uint16_t h) {
        return io == ASSAY_F16 ? attention::f16_to_f32(h) : attention::bf16_to_f32(h);
    };
    std::mt19937 rng{std::random_device{}()};
    std::normal_distribution<float> normal;
    std::vector<std::uint16_t> half[3];  // q, k, v
    std::vector<float> full[3];
    for (const auto& [i, n] : {std::pair{0, heads * key_dim}, {1, kv_heads * key_dim}, {2, kv_heads * value_dim}})
        for (std::int64_t j = 0; j < kTokens * n; ++j) {
            half[i].push_back(narrow(normal(rng)));
            full[i].push_back(widen(half[i].back()));
        }

    // A prefill, one query, and a few queries.
    const auto run = [&](auto& in, auto zero, assay_dtype dtype) {
        using Element = decltype(zero);
        Config config{backend, kPage};
        config.config.io_dtype = dtype;
        const assay_attention& api = open_image(backend.image);
        const assay_attn_layer* layers[] = {&layer};
        assay_error err = sdk::make_error();
        void* self = nullptr;
        char tier[32];
        std::uint64_t plan_bytes = 0, workspace_bytes = 0;
        EXPECT_EQ(api.create(nullptr, &config.config, layers, 1, &self, tier, &err), ASSAY_OK) << err.text;
        EXPECT_EQ(api.sizes(self, 1, kTokens, kTokens, &plan_bytes, &workspace_bytes, &err), ASSAY_OK);
        Space space;
        std::vector<Element> out(static_cast<std::size_t>(kTokens * heads * value_dim), zero);
        std::vector<unsigned char> plan(plan_bytes, 0xcd), workspace(workspace_bytes, 0xff),
            pages(static_cast<std::size_t>(2 * kPage * kv_heads * key_dim) * 4, 0xff), values(pages);
        std::vector<std::int32_t> table{1, 0}, slots;
        for (std::int32_t t = 0; t < kTokens; ++t) slots.push_back(table[static_cast<std::size_t>(t / kPage)] * kPage + t % kPage);
        const auto there = [&](auto& v) { return space.enter(v.data(), v.size() * sizeof v[0]); };
        for (const auto& [first, last] : {std::pair{0, 40}, {40, 41}, {41, kTokens}}) {
            std::vector<std::int32_t> cu_q{first, last}, kv_len{last};
            Space lengths;
            assay_attn_batch batch{};
            batch.size = sizeof batch;
            batch.num_seqs = 1;
            batch.num_tokens = batch.max_q_len = last - first;
            batch.max_kv_len = last;
            batch.max_blocks = 2;
            batch.cu_q = static_cast<std::int32_t*>(lengths.enter(cu_q.data(), 8));
            batch.kv_len = static_cast<std::int32_t*>(lengths.enter(kv_len.data(), 4));
            lengths.wait();
            batch.block_table = static_cast<std::int32_t*>(there(table));
            batch.slot_map = static_cast<std::int32_t*>(there(slots));
            batch.host_cu_q = cu_q.data();
            batch.host_kv_len = kv_len.data();
            assay_attn_args a{};
            a.size = sizeof a;
            a.batch = &batch;
            a.planes[0] = there(pages);
            a.planes[1] = there(values);
            a.q = sdk::make_tensor(there(in[0]), dtype, kTokens, heads, key_dim);
            a.k = is_mla ? sdk::make_tensor(there(in[1]), dtype, kTokens, key_dim)
                         : sdk::make_tensor(there(in[1]), dtype, kTokens, kv_heads, key_dim);
            a.v = sdk::make_tensor(there(in[2]), dtype, kTokens, kv_heads, value_dim);
            a.out = sdk::make_tensor(there(out), dtype, kTokens, heads, value_dim);
            a.plan = there(plan);
            a.workspace = there(workspace);
            a.workspace_bytes = workspace_bytes;
            EXPECT_EQ(api.prepare(self, &batch, ASSAY_MIXED, a.plan, &space.stream(), &err), ASSAY_OK) << err.text;
            EXPECT_EQ(api.append(self, 0, &a, &space.stream(), &err), ASSAY_OK) << err.text;
            EXPECT_EQ(api.run(self, 0, &a, &space.stream(), &err), ASSAY_OK) << err.text;
            space.wait();
        }
        space.leave();
        api.destroy(self);
        return out;
    };
    const auto got = run(half, std::uint16_t{0x7e01}, io);
    const auto want = run(full, -7.0F, ASSAY_F32);
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], narrow(want[i])) << "element " << i;
}

INSTANTIATE_TEST_SUITE_P(Images, CudaIo,
                         testing::Combine(testing::Values(Backend{"cuda-gqa", "plain", ASSAY_F32},
                                                          Backend{"cuda-gqa", "mma", ASSAY_F16},
                                                          Backend{"cuda-gqa", "wgmma", ASSAY_BF16},
                                                          Backend{"cuda-mla", "plain", ASSAY_BF16},
                                                          Backend{"cuda-mla", "mma", ASSAY_BF16},
                                                          Backend{"cuda-mla", "wgmma", ASSAY_F16}),
                                          testing::Values(ASSAY_F16, ASSAY_BF16)),
                         [](const auto& param) {
                             return std::get<0>(param.param).name() + "_io_" +
                                    sdk::dtype_name(std::get<1>(param.param));
                         });

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
