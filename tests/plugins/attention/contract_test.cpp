// What the tables say, what is refused and in which words, and the reading of pages.

#include "backends.hpp"
#include "cases.hpp"
#include "plugins/attention/common/convert.hpp"
#include "world.hpp"

#include <cmath>
#include <cstring>
#include <random>

namespace attention_test {
namespace {

constexpr Backend kReference{"reference", nullptr, ASSAY_F32};
constexpr Backend kFlash{"cpu-flash", nullptr, ASSAY_F32};

/// The words of a refusal; empty when accepted.
std::string refusal(const Backend& backend, const assay_attn_layer& layer,
                    std::uint32_t page_tokens = 32) {
    const Config config{backend, page_tokens};
    assay_error err = sdk::make_error();
    const assay_status status =
        open_image(backend.image).check(&config.config, &layer, ASSAY_PREFILL, &err);
    return status == ASSAY_OK ? "" : err.text;
}

TEST(AttentionContract, PhasesCoverEverythingAndShareNothing) {
    for (const char* image : {"reference", "cpu-flash", "cpu-paged16"}) {
        const assay_module& module = open_module(image);
        EXPECT_STREQ(module.id, image);
        EXPECT_STREQ(module.kinds, ASSAY_KIND_ATTENTION);
        EXPECT_EQ(module.query("quant/1"), nullptr);
        const assay_attention& table = open_image(image);
        ASSERT_EQ(table.num_caps, 3U);
        for (std::uint32_t i = 0; i < table.num_caps; ++i) {
            const assay_attn_cap& cap = *table.caps[i];
            EXPECT_EQ(cap.phases | cap.phases_absent, 7U);
            EXPECT_EQ(cap.phases & cap.phases_absent, 0U);
            EXPECT_EQ(cap.absent_reason != nullptr, cap.phases_absent != 0);
            EXPECT_TRUE(cap.flags & ASSAY_ATTN_ORDERED);
        }
    }
}

TEST(AttentionContract, LayoutIdsNameWhatThePagesHold) {
    const assay_attn_layer mla = mla_layer(4, 512, 64, 0.1F);
    assay_attn_layer shared = dsa_layer(mla, 32, 128, 2048);
    shared.index_role = ASSAY_INDEX_SHARED;
    const struct {
        assay_attn_layer layer;
        const char* id;
        std::vector<std::pair<const char*, std::uint64_t>> planes;  // name, bytes per token
    } rows[] = {
        {gqa_layer(8, 2, 64, 64, 1), "gqa.h2.d64.f32.p32/1", {{"k", 512}, {"v", 512}}},
        {gqa_layer(8, 2, 64, 32, 1), "gqa.h2.d64v32.f32.p32/1", {{"k", 512}, {"v", 256}}},
        {mla, "mla.576.f32.p32/1", {{"latent", 2304}}},
        {shared, "mla.576.f32.p32/1", {{"latent", 2304}}},
        {dsa_layer(mla, 32, 128, 2048),
         "mla-dsa.576.f32.i128.f32.p32/1",
         {{"latent", 2304}, {"index_k", 512}}},
    };
    for (const auto& row : rows)
        for (const Backend& backend : {kReference, kFlash}) {
            const Instance instance{backend, row.layer,
                                    0};  // the images' own page size is the same
            const assay_kv_layout& layout = instance.layout();
            EXPECT_STREQ(layout.id, row.id);
            EXPECT_EQ(layout.page_tokens, 32U);
            ASSERT_EQ(layout.num_planes, row.planes.size());
            for (std::size_t i = 0; i < row.planes.size(); ++i) {
                EXPECT_STREQ(layout.planes[i].name, row.planes[i].first);
                EXPECT_EQ(layout.planes[i].bytes_per_token, row.planes[i].second);
                EXPECT_EQ(layout.planes[i].width * 4, row.planes[i].second);
            }
        }
    const Instance half{{"cpu-flash", nullptr, ASSAY_F16}, dsa_layer(mla, 32, 128, 2048), 16};
    EXPECT_STREQ(half.layout().id, "mla-dsa.576.f16.i128.f32.p16/1");
    EXPECT_EQ(half.layout().planes[0].bytes_per_token, 1152U);
    EXPECT_EQ(half.layout().planes[1].bytes_per_token, 512U) << "index keys stay f32";
    const Instance paged{
        {"cpu-paged16", nullptr, ASSAY_DTYPE_NONE}, dsa_layer(mla, 32, 128, 2048), 0};
    EXPECT_STREQ(paged.layout().id, half.layout().id) << "its own choice: f16 in pages of 16";
}

TEST(AttentionContract, RefusalsSayWhatWasFoundAndWhatIsServed) {
    const assay_attn_layer gqa = gqa_layer(8, 2, 64, 64, 0.125F);
    const assay_attn_layer dsa = dsa_layer(mla_layer(4, 64, 16, 0.1F), 4, 32, 8);
    EXPECT_EQ(refusal(kFlash, gqa), "");
    EXPECT_EQ(refusal(kReference, gqa), "");
    EXPECT_EQ(refusal(kFlash, gqa_layer(8, 2, 320, 320, 1)),
              "head_dim is 320; cpu-flash serves 16 to 256");
    EXPECT_EQ(refusal(kReference, gqa_layer(8, 2, 320, 320, 1)), "");
    EXPECT_EQ(refusal(kFlash, gqa_layer(8, 3, 64, 64, 1)),
              "num_q_heads is 8, must be a positive multiple of num_kv_heads, 3");
    EXPECT_EQ(refusal(kFlash, gqa, 40),
              "page of 40 tokens; cpu-flash takes multiples of 16 up to 256");
    EXPECT_EQ(refusal(kReference, gqa, 40), "");
    EXPECT_EQ(refusal({"cpu-paged16", nullptr, ASSAY_F16}, gqa, 32),
              "page of 32 tokens; cpu-paged16 takes 16");
    EXPECT_EQ(refusal({"cpu-paged16", nullptr, ASSAY_F32}, gqa, 16),
              "KV cache dtype is f32; cpu-paged16 keeps f16");
    EXPECT_EQ(refusal({"reference", nullptr, ASSAY_F16}, gqa),
              "KV cache dtype is f16; reference keeps f32");
    EXPECT_EQ(refusal({"cpu-flash", nullptr, ASSAY_F8_E4M3}, gqa),
              "KV cache dtype is f8_e4m3; cpu-flash keeps f32, f16, bf16");
    EXPECT_EQ(refusal({"cpu-flash", "neon", ASSAY_F32}, gqa),
              "option tier is \"neon\"; known: auto, scalar, avx2, avx512");
    EXPECT_EQ(refusal({"reference", "auto", ASSAY_F32}, gqa),
              "unknown option \"tier\"; known: none");
    EXPECT_EQ(refusal(kFlash, with_window(dsa, 64)),
              "a sliding window over a sparse selection (MLA_DSA) is not served");
    EXPECT_EQ(refusal(kFlash, gqa_layer(8, 2, 64, 64, 0)),
              "softmax_scale is 0.000000, must be positive and finite");
    EXPECT_NE(refusal(kFlash, dsa_layer(mla_layer(4, 64, 16, 0.1F), 4, 32, 0)), "");
    EXPECT_NE(refusal(kFlash, mla_layer(4, 0, 16, 0.1F)), "");

    Config config{kFlash, 32};
    config.config.io_dtype = ASSAY_BF16;
    assay_error err = sdk::make_error();
    EXPECT_EQ(open_image("cpu-flash").check(&config.config, &gqa, ASSAY_DECODE, &err),
              ASSAY_UNSUPPORTED);
    EXPECT_STREQ(err.text, "io dtype is bf16; cpu-flash takes f32");
}

// Images with one layout id read each other's pages, bit for bit.
TEST(AttentionPages, EqualLayoutsGiveEqualBits) {
    std::mt19937 rng{std::random_device{}()};
    const Backend flash{"cpu-flash", nullptr, ASSAY_F16}, paged{"cpu-paged16", nullptr, ASSAY_F16};
    for (const assay_attn_layer& layer :
         {gqa_layer(4, 2, 40, 24, 0.158F), dsa_layer(mla_layer(4, 64, 16, 0.14F), 4, 32, 24)}) {
        const Problem p = random_problem(layer, {100}, ASSAY_F16, rng);
        World a{flash, p, 16, 2}, b{paged, p, 16, 1};
        EXPECT_STREQ(a.instance().layout().id, b.instance().layout().id);
        EXPECT_TRUE(a.run({{0, 100}}) == b.run({{0, 100}}));
    }
}

/// One decode step of one sequence of 20 tokens in pages of 16, ready to be broken in one place.
struct Call {
    Instance instance;
    std::vector<float> q, out, pages;
    std::vector<std::int32_t> cu_q{0, 1}, kv_len{20}, table{1, 0}, slots{4}, topk;
    std::vector<unsigned char> workspace;
    assay_attn_batch batch{};
    assay_attn_args args{};
    assay_stream stream{};
    support::TestLanes lanes;

    Call(const Backend& backend, const assay_attn_layer& layer) : instance{backend, layer, 16} {
        const bool is_mla = layer.attn_class != ASSAY_ATTN_GQA;
        const std::int64_t key_dim =
            is_mla ? layer.kv_lora_rank + layer.qk_rope_head_dim : layer.head_dim;
        const std::int64_t value_dim = is_mla ? layer.kv_lora_rank : layer.v_head_dim;
        q.assign(static_cast<std::size_t>(layer.num_q_heads * key_dim), 1.0F);
        out.assign(static_cast<std::size_t>(layer.num_q_heads * value_dim), 0.0F);
        pages.assign(static_cast<std::size_t>(32 * key_dim * 8), 1.0F);
        topk.assign(static_cast<std::size_t>(layer.index_topk), -1);
        if (!topk.empty()) topk[0] = 17;  // position 1
        std::uint64_t plan = 0, bytes = 0;
        assay_error err = sdk::make_error();
        EXPECT_EQ(instance.table().sizes(instance.self(), 1, 1, 20, &plan, &bytes, &err), ASSAY_OK);
        workspace.resize(bytes);
        batch = {.size = sizeof batch,
                 .num_seqs = 1,
                 .num_decode_seqs = 1,
                 .num_tokens = 1,
                 .max_q_len = 1,
                 .max_kv_len = 20,
                 .max_blocks = 2,
                 .cu_q = cu_q.data(),
                 .kv_len = kv_len.data(),
                 .block_table = table.data(),
                 .slot_map = slots.data(),
                 .host_cu_q = cu_q.data(),
                 .host_kv_len = kv_len.data()};
        args.size = sizeof args;
        args.batch = &batch;
        args.phase = ASSAY_DECODE;
        args.planes[0] = args.planes[1] = pages.data();
        args.q = sdk::make_tensor(q.data(), ASSAY_F32, 1, layer.num_q_heads, key_dim);
        args.out = sdk::make_tensor(out.data(), ASSAY_F32, 1, layer.num_q_heads, value_dim);
        if (!topk.empty())
            args.topk_slots = sdk::make_tensor(topk.data(), ASSAY_I32, 1, layer.index_topk);
        args.workspace = workspace.data();
        args.workspace_bytes = bytes;
        stream.lanes = lanes.get();
    }
    std::string run() {
        assay_error err = sdk::make_error();
        const assay_status status = instance.table().run(instance.self(), 0, &args, &stream, &err);
        EXPECT_TRUE(status == ASSAY_OK || status == ASSAY_INVALID || status == ASSAY_UNSUPPORTED);
        return status == ASSAY_OK ? "" : err.text;
    }
};

class AttentionCalls : public testing::TestWithParam<const char*> {
protected:
    Backend backend() const { return {GetParam(), nullptr, ASSAY_F32}; }
};

INSTANTIATE_TEST_SUITE_P(Images, AttentionCalls, testing::Values("reference", "cpu-flash"),
                         [](const auto& param) {
                             return param.param[0] == 'r' ? "reference" : "cpu_flash";
                         });

TEST_P(AttentionCalls, BrokenPreconditionsAreNamed) {
    const assay_attn_layer gqa = gqa_layer(4, 2, 64, 64, 0.125F);
    EXPECT_EQ(Call(backend(), gqa).run(), "");
    {
        Call c{backend(), gqa};
        c.table[1] = -1;
        EXPECT_EQ(c.run(), "sequence 0: block 1 of 2 is -1");
    }
    {
        Call c{backend(), gqa};
        c.kv_len[0] = 0;
        EXPECT_EQ(c.run(), "sequence 0: 1 queries but kv_len 0");
    }
    {
        Call c{backend(), gqa};
        c.kv_len[0] = 33;
        EXPECT_EQ(c.run(), "sequence 0: kv_len 33 needs 3 blocks of 16, the table has 2");
    }
    {
        Call c{backend(), gqa};
        c.args.q.shape[2] = 32;
        EXPECT_EQ(c.run(), "q: shape[2] is 32, expected 64");
    }
    {
        Call c{backend(), gqa};
        c.args.out.dtype = ASSAY_F16;
        EXPECT_EQ(c.run(), "out: dtype is f16, expected f32");
    }
    {
        Call c{backend(), gqa};
        c.args.workspace_bytes = 100;
        EXPECT_NE(c.run().find("workspace of 100 bytes"), std::string::npos);
    }
    {
        Call c{backend(), with_sinks(gqa)};
        EXPECT_EQ(c.run(), "sinks: absent");
    }
    {
        Call c{backend(), mla_layer(4, 64, 16, 0.1F)};
        c.args.k_expanded = c.args.q;
        EXPECT_NE(c.run(), "");
    }
}

TEST_P(AttentionCalls, SlotsThatAreNotTheSequencesAreRefused) {
    const assay_attn_layer dsa = dsa_layer(mla_layer(4, 64, 16, 0.1F), 4, 32, 6);
    EXPECT_EQ(Call(backend(), dsa).run(), "");
    for (const std::vector<std::int32_t>& bad :
         {std::vector<std::int32_t>{40, 17},  // no page of it
          {17, 4},                            // after the query
          {17, 18, 17},                       // twice
          {-2, 17}}) {
        Call c{backend(), dsa};
        std::copy(bad.begin(), bad.end(), c.topk.begin());
        EXPECT_NE(c.run().find("topk_slots: row 0"), std::string::npos) << bad[0];
    }
}

TEST_P(AttentionCalls, IndexOnALayerWithoutAnIndexerIsRefused) {
    Call c{backend(), gqa_layer(4, 2, 64, 64, 0.125F)};
    assay_attn_index_args a{};
    a.size = sizeof a;
    a.batch = &c.batch;
    assay_error err = sdk::make_error();
    EXPECT_EQ(c.instance.table().index(c.instance.self(), 0, &a, &c.stream, &err), ASSAY_INVALID);
    EXPECT_EQ(c.instance.table().index(c.instance.self(), 9, &a, &c.stream, &err), ASSAY_INVALID);
    EXPECT_STREQ(err.text, "layer 9 of 1");
}

TEST(AttentionPages, ReadBackWhatWasStored) {
    std::mt19937 rng{std::random_device{}()};
    std::vector<Backend> list = backends();
    list.push_back({"cpu-flash", "scalar", ASSAY_F16});
    list.push_back({"cpu-flash", "scalar", ASSAY_BF16});
    for (const Backend& backend : list)
        for (const char* name : {"gqa_d40v24", "mla3_72", "dsa_k24"}) {
            SCOPED_TRACE(backend.name() + " " + name);
            const auto* layer =
                std::find_if(std::begin(kLayers), std::end(kLayers),
                             [&](const LayerCase& l) { return std::string_view{l.name} == name; });
            const Problem p = random_problem(layer->layer, {150}, backend.kv_dtype, rng);
            World world{backend, p, 16, 3};
            world.fill({{0, 70}});
            world.fill({{0, 80}});
            const assay_kv_layout& layout = world.instance().layout();
            for (std::uint32_t plane = 0; plane < layout.num_planes; ++plane) {
                const std::string_view what = layout.planes[plane].name;
                const auto& want = what == "v"         ? p.sequences[0].v
                                   : what == "index_k" ? p.sequences[0].index_k
                                                       : p.sequences[0].k;
                const std::int64_t width = layout.planes[plane].width;
                std::vector<std::int32_t> slots;
                for (std::int32_t s = 149; s >= 0; --s) slots.push_back(world.slot(0, s));
                slots.push_back(-1);
                std::vector<float> out(slots.size() * static_cast<std::size_t>(width + 3), -7.0F);
                assay_tensor t = sdk::make_tensor(out.data(), ASSAY_F32, slots.size(), width);
                t.stride[0] = width + 3;
                assay_error err = sdk::make_error();
                ASSERT_EQ(world.instance().table().kv_read(world.instance().self(), 0, plane,
                                                           world.planes().data(), slots.data(),
                                                           static_cast<std::int64_t>(slots.size()),
                                                           &t, &world.stream(), &err),
                          ASSAY_OK)
                    << err.text;
                for (std::size_t i = 0; i < slots.size(); ++i)
                    for (std::int64_t d = 0; d < width + 3; ++d) {
                        const float got = out[i * static_cast<std::size_t>(width + 3) +
                                              static_cast<std::size_t>(d)];
                        const float expected =
                            d >= width ? -7.0F
                            : i == 150 ? 0.0F
                                       : want[(149 - i) * static_cast<std::size_t>(width) +
                                              static_cast<std::size_t>(d)];
                        ASSERT_EQ(got, expected) << what << " slot " << i << " entry " << d;
                    }
            }
        }
}

TEST(AttentionConvert, HalfPrecisionRoundsToNearestEven) {
    for (std::uint32_t h = 0; h < 0x10000; ++h) {
        const auto half = static_cast<std::uint16_t>(h);
        const float f = attention::f16_to_f32(half), b = attention::bf16_to_f32(half);
        if (!std::isnan(f)) {
            ASSERT_EQ(attention::f32_to_f16(f), half);
        }
        if (!std::isnan(b)) {
            ASSERT_EQ(attention::f32_to_bf16(b), half);
        }
    }
    // Between neighbours, at the middle and on both sides of it, for every finite number.
    for (std::uint32_t h = 0; h < 0x7bff; ++h) {
        const double low = attention::f16_to_f32(static_cast<std::uint16_t>(h));
        const double high = attention::f16_to_f32(static_cast<std::uint16_t>(h + 1));
        const auto middle = static_cast<float>((low + high) / 2);
        ASSERT_EQ(attention::f32_to_f16(middle), h % 2 == 0 ? h : h + 1);
        ASSERT_EQ(attention::f32_to_f16(std::nextafter(middle, 0.0F)), h);
        ASSERT_EQ(attention::f32_to_f16(std::nextafter(middle, 1e9F)), h + 1);
    }
    EXPECT_EQ(attention::f32_to_f16(65519.0F), 0x7bff);
    EXPECT_EQ(attention::f32_to_f16(65520.0F), 0x7c00);
    EXPECT_EQ(attention::f32_to_bf16(1.00390625F), 0x3f80) << "halfway, to even";
    EXPECT_EQ(attention::f32_to_bf16(1.01171875F), 0x3f82) << "halfway, to even";
    EXPECT_TRUE(std::isnan(attention::f16_to_f32(attention::f32_to_f16(NAN))));
    EXPECT_TRUE(std::isnan(attention::bf16_to_f32(attention::f32_to_bf16(NAN))));
}

}  // namespace
}  // namespace attention_test
