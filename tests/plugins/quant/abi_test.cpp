// The tables of the image: what it says of itself, and each refusal with its words.

#include "plugins/quant/ggml/cpu.hpp"
#include "tests/plugins/quant/support.hpp"

#include <gtest/gtest.h>

#include <cstring>

namespace {

using quant_test::Backend;
using quant_test::image;

assay_status create(const char* kind, std::vector<assay_option> options, char tier[32],
                    assay_error& err) {
    assay_device_ref device{};
    device.size = sizeof device;
    device.kind = kind;
    device.num_units = 1;
    assay_quant_config config{};
    config.size = sizeof config;
    config.device = &device;
    config.options = options.data();
    config.num_options = static_cast<std::uint32_t>(options.size());
    void* self = nullptr;
    err = sdk::make_error();
    const assay_status status = image().create(nullptr, &config, &self, tier, &err);
    if (status == ASSAY_OK) image().destroy(self);
    return status;
}

TEST(QuantAbi, AutoTakesTheBestTierAndSaysSo) {
    char tier[32] = "";
    assay_error err;
    ASSERT_EQ(create("cpu", {}, tier, err), ASSAY_OK) << err.text;
    EXPECT_EQ(quant_test::tiers().front(), tier);
    ASSERT_EQ(create("cpu", {{"tier", "auto"}}, tier, err), ASSAY_OK) << err.text;
    EXPECT_EQ(quant_test::tiers().front(), tier);
    for (const std::string& name : quant_test::tiers()) {
        ASSERT_EQ(create("cpu", {{"tier", name.c_str()}}, tier, err), ASSAY_OK) << err.text;
        EXPECT_EQ(name, tier);
    }
}

TEST(QuantAbi, RefusesWhatItDoesNotKnowWithWords) {
    char tier[32];
    assay_error err;
    EXPECT_EQ(create("cuda", {}, tier, err), ASSAY_UNSUPPORTED);
    EXPECT_NE(std::strstr(err.text, "cuda"), nullptr) << err.text;
    EXPECT_EQ(create("cpu", {{"teir", "avx2"}}, tier, err), ASSAY_UNSUPPORTED);
    EXPECT_NE(std::strstr(err.text, "teir"), nullptr) << err.text;
    EXPECT_EQ(create("cpu", {{"tier", "sse9"}}, tier, err), ASSAY_UNSUPPORTED);
    EXPECT_NE(std::strstr(err.text, "sse9"), nullptr) << err.text;
    EXPECT_NE(std::strstr(err.text, "avx512-vnni"), nullptr) << err.text;
    EXPECT_EQ(ggml::missing_features("reference"), "");
    EXPECT_NE(ggml::missing_features("sse9"), "");
}

TEST(QuantAbi, TheFormatTableIsWhole) {
    const assay_quant& quant = image();
    ASSERT_EQ(quant.num_formats, ggml::formats().size());
    EXPECT_NE(quant.flags & ASSAY_QUANT_ROW_INVARIANT, 0u);
    for (std::uint32_t i = 0; i < quant.num_formats; ++i) {
        const assay_quant_format& f = *quant.formats[i];
        EXPECT_EQ(f.size, sizeof f);
        EXPECT_EQ(ggml::find_format(f.id), &ggml::formats()[i]) << f.id;
        EXPECT_EQ(f.block_rows, 1u);
        EXPECT_EQ(256 % f.block_cols, 0u) << f.id;
        EXPECT_NE(f.source, nullptr);
    }
}

struct Refusal {
    const char* name;
    assay_quant_query query;
    const char* word;  // must stand in the reason
};

TEST(QuantAbi, SupportsNamesTheFirstConditionThatFails) {
    const assay_quant_query good{.size = sizeof(assay_quant_query),
                                 .op = ASSAY_Q_MATMUL,
                                 .format = "q4_k",
                                 .x_dtype = ASSAY_F32,
                                 .y_dtype = ASSAY_F32,
                                 .num_weights = 1,
                                 .m = 1,
                                 .n = 8,
                                 .k = 512,
                                 .experts = 1};
    const auto with = [&](auto change) {
        assay_quant_query q = good;
        change(q);
        return q;
    };
    const Refusal refusals[] = {
        {"format", with([](auto& q) { q.format = "q9_z"; }), "q9_z"},
        {"k", with([](auto& q) { q.k = 320; }), "256"},
        {"x", with([](auto& q) { q.x_dtype = ASSAY_BF16; }), "x must be f32"},
        {"y", with([](auto& q) { q.y_dtype = ASSAY_F16; }), "y must be f32"},
        {"op", with([](auto& q) { q.op = 77; }), "operation"},
        {"repack", with([](auto& q) { q.op = ASSAY_Q_REPACK; }), "packed"},
        {"glu", with([](auto& q) { q.glu = ASSAY_GLU_SILU; }), "two weights"},
        {"flags", with([](auto& q) { q.flags = 8; }), "flags"},
        {"fused", with([](auto& q) { q.num_weights = 5; }), "num_weights"},
        {"batched bias", with([](auto& q) {
             q.op = ASSAY_Q_BATCHED;
             q.bias = true;
         }),
         "bias"},
        {"rows", with([](auto& q) {
             q.op = ASSAY_Q_ROWS;
             q.y_dtype = ASSAY_I8;
         }),
         "rows"},
    };
    for (const std::string& tier : quant_test::tiers()) {
        const Backend backend{tier};
        assay_error why = sdk::make_error();
        EXPECT_EQ(image().supports(backend.self(), &good, &why),
                  tier == "reference" ? ASSAY_CORRECT : ASSAY_TUNED);
        for (const Refusal& r : refusals) {
            SCOPED_TRACE(r.name);
            why = sdk::make_error();
            EXPECT_EQ(image().supports(backend.self(), &r.query, &why), ASSAY_NONE);
            EXPECT_NE(std::strstr(why.text, r.word), nullptr) << why.text;
        }
    }
}

TEST(QuantAbi, ARowThatCutsABlockIsRefusedByFormatAndBlock) {
    const Backend backend{quant_test::tiers().front()};
    for (const ggml::Format& format : ggml::formats()) {
        const auto cols = static_cast<std::int64_t>(format.abi.block_cols);
        if (cols == 1) continue;
        SCOPED_TRACE(format.abi.id);
        const std::string want = std::string{format.abi.id} + ": K is " +
                                 std::to_string(cols * 5 / 2) + ", want a multiple of " +
                                 std::to_string(cols);
        assay_quant_query query{.size = sizeof(assay_quant_query),
                                .op = ASSAY_Q_MATMUL,
                                .format = format.abi.id,
                                .x_dtype = ASSAY_F32,
                                .y_dtype = ASSAY_F32,
                                .num_weights = 1,
                                .m = 1,
                                .n = 8,
                                .k = cols * 5 / 2,
                                .experts = 1};
        assay_error why = sdk::make_error();
        EXPECT_EQ(image().supports(backend.self(), &query, &why), ASSAY_NONE);
        EXPECT_EQ(why.text, want);
        query.k = cols * 3;
        EXPECT_EQ(image().supports(backend.self(), &query, &why),
                  backend.is_reference() ? ASSAY_CORRECT : ASSAY_TUNED);

        // The call itself checks too: a slice of a weight comes with columns of its own.
        std::mt19937 rng{1};
        quant_test::Weights w{format.abi.id, 1, 2, cols * 3, rng};
        w.abi.cols = cols * 5 / 2;
        const std::int32_t id = 0;
        std::vector<float> out(static_cast<std::size_t>(w.abi.cols));
        const assay_tensor t = sdk::make_tensor(out.data(), ASSAY_F32, 1, w.abi.cols);
        const support::TestLanes lanes{1};
        const assay_stream s = quant_test::stream(lanes.get());
        assay_error err = sdk::make_error();
        EXPECT_EQ(image().rows(backend.self(), &w.abi, &id, 1, &t, &s, &err), ASSAY_INVALID);
        EXPECT_EQ(err.text, want);
    }
}

/// A small good call, to be broken in one place.
struct SmallCall {
    SmallCall() : w{"q8_0", 1, 4, 32, rng} {
        a.size = sizeof a;
        a.num_weights = 1;
        a.w[0] = &w.abi;
        a.x = sdk::make_tensor(x, ASSAY_F32, 2, 32);
        a.y[0] = sdk::make_tensor(y, ASSAY_F32, 2, 4);
        a.workspace = workspace;
        a.workspace_bytes = sizeof workspace;
    }
    std::mt19937 rng{1};
    quant_test::Weights w;
    float x[64] = {}, y[8] = {};
    alignas(256) unsigned char workspace[1 << 16];
    assay_matmul a{};
    std::int32_t offset[2] = {0, 2}, ids[2] = {0, 1};
};

struct BrokenCall {
    const char* word;
    void (*breaking)(SmallCall& c);
};

TEST(QuantAbi, ABrokenCallIsRefusedAndWritesNothing) {
    const BrokenCall broken[] = {
        {"num_weights", [](SmallCall& c) { c.a.num_weights = 0; }},
        {"without format", [](SmallCall& c) { c.a.w[0] = nullptr; }},
        {"q9_z", [](SmallCall& c) { c.w.abi.format = "q9_z"; }},
        {"layout", [](SmallCall& c) { c.w.abi.layout = "tiles"; }},
        {"multiple", [](SmallCall& c) { c.w.abi.cols = 33; }},
        {"shape", [](SmallCall& c) { c.w.abi.rows = -1; }},
        {"data_bytes", [](SmallCall& c) { c.w.abi.rows = 5; }},
        {"data_bytes", [](SmallCall& c) { c.w.abi.rows = std::int64_t{1} << 39; }},
        {"experts",
         [](SmallCall& c) {
             c.w.abi.rows = 2;
             c.w.abi.experts = 2;
         }},
        {"x[0]", [](SmallCall& c) { c.a.x.dtype = ASSAY_F16; }},
        {"stride", [](SmallCall& c) { c.a.x.stride[1] = 2; }},
        {"y[0]", [](SmallCall& c) { c.a.y[0].shape[1] = 5; }},
        {"rank", [](SmallCall& c) { c.a.y[0].rank = 1; }},
        {"bias", [](SmallCall& c) { c.a.bias[0] = sdk::make_tensor(c.x, ASSAY_F32, 3); }},
        {"glu", [](SmallCall& c) { c.a.glu = ASSAY_GLU_SILU; }},
        {"flags", [](SmallCall& c) { c.a.flags = 0x80; }},
        {"workspace", [](SmallCall& c) { c.a.workspace_bytes = 100; }},
        {"workspace", [](SmallCall& c) { c.a.workspace = nullptr; }},
    };
    const support::TestLanes lanes{2};
    const assay_stream s = quant_test::stream(lanes.get());
    for (const std::string& tier : quant_test::tiers()) {
        const Backend backend{tier};
        for (const BrokenCall& b : broken) {
            SCOPED_TRACE(tier + " " + b.word);
            SmallCall call;
            std::fill(std::begin(call.y), std::end(call.y), -7.0f);
            b.breaking(call);
            assay_error err = sdk::make_error();
            EXPECT_NE(image().matmul(backend.self(), &call.a, &s, &err), ASSAY_OK);
            EXPECT_NE(std::strstr(err.text, b.word), nullptr) << err.text;
            for (const float value : call.y) EXPECT_EQ(value, -7.0f);
        }
    }
}

TEST(QuantAbi, ABrokenGroupingIsRefused) {
    const BrokenCall broken[] = {
        {"expert_offset", [](SmallCall& c) { c.a.expert_offset = nullptr; }},
        {"expert_offset", [](SmallCall& c) { c.offset[1] = 3; }},
        {"expert_offset", [](SmallCall& c) { c.offset[0] = -1; }},
        {"after",
         [](SmallCall& c) {
             c.offset[0] = 2;
             c.offset[1] = 1;
         }},
        {"row_ids", [](SmallCall& c) { c.ids[1] = 2; }},
        {"row_ids", [](SmallCall& c) { c.ids[0] = -1; }},
    };
    const support::TestLanes lanes{1};
    const assay_stream s = quant_test::stream(lanes.get());
    const Backend backend{quant_test::tiers().front()};
    for (const BrokenCall& b : broken) {
        SCOPED_TRACE(b.word);
        SmallCall call;
        call.a.expert_offset = call.offset;
        call.a.row_ids = call.ids;
        call.a.num_slots = 2;
        b.breaking(call);
        assay_error err = sdk::make_error();
        EXPECT_NE(image().grouped_matmul(backend.self(), &call.a, &s, &err), ASSAY_OK);
        EXPECT_NE(std::strstr(err.text, b.word), nullptr) << err.text;
    }
}

TEST(QuantAbi, NoRowsIsNoWork) {
    SmallCall call;
    call.a.x.shape[0] = 0;
    call.a.y[0].shape[0] = 0;
    const support::TestLanes lanes{1};
    const assay_stream s = quant_test::stream(lanes.get());
    const Backend backend{quant_test::tiers().front()};
    assay_error err = sdk::make_error();
    EXPECT_EQ(image().matmul(backend.self(), &call.a, &s, &err), ASSAY_OK) << err.text;
}

TEST(QuantAbi, MoreLanesThanTheWorkspaceIsForDoNoHarm) {
    std::mt19937 rng{std::random_device{}()};
    const Backend backend{quant_test::tiers().front(), 1};
    SmallCall call;
    const quant_test::Weights w{"q4_k", 1, 600, 1024, rng};
    quant_test::Rows x{8, 1024, 0.0f};
    x.fill_normal(rng, 1);
    call.a.w[0] = &w.abi;
    call.a.x = x.tensor();
    call.a.workspace_bytes =
        image().workspace_bytes(backend.self(), ASSAY_Q_MATMUL, call.a.w, 1, 8);
    quant_test::Workspace workspace{call.a.workspace_bytes};
    call.a.workspace = workspace.data();
    std::vector<std::vector<float>> results;
    for (const std::uint32_t width : {1u, 5u}) {
        const support::TestLanes lanes{width};
        const assay_stream s = quant_test::stream(lanes.get());
        results.emplace_back(8 * 600, -1.0f);
        call.a.y[0] = sdk::make_tensor(results.back().data(), ASSAY_F32, 8, 600);
        assay_error err = sdk::make_error();
        ASSERT_EQ(image().matmul(backend.self(), &call.a, &s, &err), ASSAY_OK) << err.text;
        EXPECT_TRUE(workspace.is_guard_untouched());
    }
    EXPECT_EQ(results[0], results[1]);
}

}  // namespace
