#include "daemon/plugin/resolve.hpp"

#include "tests/daemon/plugin/support.hpp"

#include <optional>

namespace {

using plugin::Plan;
using plugin::Registry;
using plugin::Requirements;
using plugin::Resolution;
using support::TempFolder;

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

assay_attn_layer gqa() {
    assay_attn_layer layer{};
    layer.size = sizeof layer;
    layer.attn_class = ASSAY_ATTN_GQA;
    layer.num_q_heads = 4;
    layer.num_kv_heads = 2;
    layer.head_dim = layer.v_head_dim = 16;
    return layer;
}

plugin::QuantNeed matmul(const std::string& format, std::int64_t k) {
    plugin::QuantNeed need;
    need.label = "blk.0.ffn_down.weight";
    need.format = format;
    need.query.op = ASSAY_Q_MATMUL;
    need.query.m = 512;
    need.query.n = 64;
    need.query.k = k;
    return need;
}

Requirements requirements() {
    Requirements r;
    r.device = {"device-one"};
    r.quant = {"quant-a", "quant-b"};
    r.attention_prefill = r.attention_decode = {"attn-full"};
    r.quant_needs = {matmul("q8_0", 256), matmul("q6_k", 256)};
    r.attention_needs = {{"layers 0-5", gqa()}};
    return r;
}

class Resolve : public testing::Test {
protected:
    void SetUp() override {
        folder_.with({"device-one", "device-none", "quant-a", "quant-b", "attn-full",
                      "attn-decode-only", "attn-other-pages", "attn-check-lies", "attn-no-bytes", "attn-many-bytes",
                      "attn-wordy", "crash-in-open"});
        registry_.emplace(support::settings(folder_.path()));
    }
    Resolution resolve(const Requirements& r) { return plugin::resolve(*registry_, r); }
    std::string error(const Requirements& r) {
        return support::config_error([&] { (void)resolve(r); });
    }

    TempFolder folder_;
    std::optional<Registry> registry_;
};

std::string first_line(const std::string& text) {
    return text.substr(0, text.find('\n'));
}

TEST_F(Resolve, EachRoleAndFormatGetsItsFirstFit) {
    const Resolution r = resolve(requirements());
    EXPECT_EQ(r.plan.device.id, "device-one");
    EXPECT_EQ(r.plan.device_name, "cpu 0, fixture device");
    EXPECT_EQ(r.plan.prefill.id, "attn-full");
    EXPECT_EQ(r.plan.prefill.tier, "plain");
    EXPECT_EQ(r.plan.decode.id, "attn-full");
    EXPECT_EQ(r.prefill, r.decode);
    EXPECT_TRUE(r.plan.mixed);
    EXPECT_EQ(r.plan.kv_layouts, std::vector<std::string>{"gqa.fixture/1"});
    EXPECT_EQ(r.plan.page_tokens, 32u);
    EXPECT_EQ(r.plan.format.at("q8_0"), "quant-a");
    EXPECT_EQ(r.plan.format.at("q6_k"), "quant-b");
    EXPECT_EQ(r.quant_for("q6_k")->id(), "quant-b");
    ASSERT_EQ(r.plan.quant.size(), 2u);
    EXPECT_EQ(r.plan.quant[0].tier, "scalar");
    ASSERT_EQ(r.plan.passed_over.size(), 1u);
    EXPECT_EQ(r.plan.passed_over[0].role, "quant q6_k");
    EXPECT_EQ(r.plan.passed_over[0].id, "quant-a");
    EXPECT_EQ(r.plan.passed_over[0].reason, "has no format q6_k");
    EXPECT_EQ(r.device->ref().num_units, 1);
}

TEST_F(Resolve, AbsentBackendIsNamedWithWhatToDo) {
    Requirements r = requirements();
    r.attention_prefill = {"flash-of-tomorrow"};
    const std::string text = error(r);
    EXPECT_EQ(first_line(text),
              "backends.attention.prefill: nothing configured serves prefill of layers 0-5 GQA (4 "
              "query and 2 key heads, head_dim 16) on cpu with f32 in and out: flash-of-tomorrow: "
              "not found in " +
                  folder_.path().string());
    EXPECT_TRUE(contains(text,
                         "what to do: set backends.attention.prefill = [\"attn-full\", "
                         "\"attn-other-pages\"]"))
        << text;
    EXPECT_TRUE(contains(text, "crashed in open()")) << text;  // everything found is listed
}

TEST_F(Resolve, AbsentPhaseIsNamedWithThePluginsOwnReason) {
    Requirements r = requirements();
    r.attention_prefill = {"attn-decode-only", "crash-in-open"};
    const std::string text = error(r);
    EXPECT_TRUE(contains(first_line(text),
                         "attn-decode-only: no prefill kernel in this build; crash-in-open: is no "
                         "attention/1 plugin; it offers quant/1"))
        << text;
    EXPECT_TRUE(contains(text, "attn-decode-only: layers 0-5: no prefill kernel in this build"))
        << text;
}

TEST_F(Resolve, ADecodeOnlyPluginMayDecode) {
    Requirements r = requirements();
    r.attention_decode = {"attn-decode-only"};
    const Resolution out = resolve(r);
    EXPECT_EQ(out.plan.prefill.id, "attn-full");
    EXPECT_EQ(out.plan.decode.id, "attn-decode-only");
    EXPECT_FALSE(out.plan.mixed);
    EXPECT_NE(out.prefill, out.decode);
}

TEST_F(Resolve, ACheckThatContradictsTheTableIsNotBelieved) {
    Requirements r = requirements();
    r.attention_prefill = {"attn-check-lies"};
    EXPECT_TRUE(contains(error(r), "check() accepts a phase that its capability table does not"));
}

TEST_F(Resolve, PagesThatNoCacheCanBeMadeOfAreRefused) {
    Requirements r = requirements();
    r.attention_prefill = {"attn-no-bytes", "attn-many-bytes"};
    const std::string text = error(r);
    EXPECT_TRUE(contains(text, "attn-no-bytes: layers 0-5: page layout \"gqa.fixture/1\": plane 0 has 0 bytes a token"))
        << text;
    EXPECT_TRUE(contains(text, "attn-many-bytes: layers 0-5: page layout \"gqa.fixture/1\": plane 0 has 4294967295 bytes"))
        << text;
}

TEST_F(Resolve, WordsThatFillTheirBufferEndThere) {
    Requirements r = requirements();
    r.attention_prefill = {"attn-wordy"};
    const std::string text = first_line(error(r));
    const auto begin = text.find("www");
    ASSERT_NE(begin, std::string::npos) << text;
    EXPECT_EQ(text.find_first_not_of('w', begin), std::string::npos) << text;
    EXPECT_EQ(text.size() - begin, sizeof(assay_error::text) - 1);
}

TEST_F(Resolve, PrefillAndDecodeMustSharePages) {
    Requirements r = requirements();
    r.attention_decode = {"attn-other-pages"};
    const std::string text = error(r);
    EXPECT_TRUE(
        contains(first_line(text),
                 "attn-other-pages: its pages (gqa.other/1, 16 tokens) differ from those of "
                 "prefill plugin attn-full (gqa.fixture/1, 32 tokens) in layers 0-5"))
        << text;

    r.attention_decode = {"attn-other-pages", "attn-decode-only"};
    Resolution out = resolve(r);
    EXPECT_EQ(out.plan.decode.id, "attn-decode-only");
    ASSERT_FALSE(out.plan.passed_over.empty());
    EXPECT_TRUE(contains(out.plan.to_text(), "attention.decode attn-other-pages: its pages"));

    // The order of the prefill list counts before that of the decode list.
    r.attention_prefill = {"attn-other-pages", "attn-full"};
    r.attention_decode = {"attn-full", "attn-other-pages"};
    out = resolve(r);
    EXPECT_EQ(out.plan.prefill.id, "attn-other-pages");
    EXPECT_EQ(out.plan.decode.id, "attn-other-pages");
}

TEST_F(Resolve, AlternativesAreTakenInOrderAndThePassedOverNamed) {
    Requirements r = requirements();
    r.attention_prefill = {"missing", "attn-decode-only", "attn-full"};
    const Resolution out = resolve(r);
    EXPECT_EQ(out.plan.prefill.id, "attn-full");
    const std::string text = out.plan.to_text();
    EXPECT_TRUE(contains(text, "passed over        attention.prefill missing: not found")) << text;
    EXPECT_TRUE(contains(text, "attention.prefill attn-decode-only: no prefill kernel")) << text;
}

TEST_F(Resolve, AFormatThatNobodyServesIsNamedWithItsTensor) {
    Requirements r = requirements();
    r.quant_needs.push_back(matmul("iq2_xxs", 256));
    std::string text = error(r);
    EXPECT_EQ(first_line(text),
              "backends.quant: nothing configured serves weight format iq2_xxs "
              "(blk.0.ffn_down.weight): quant-a: has no format iq2_xxs; quant-b: has no format "
              "iq2_xxs");

    r = requirements();
    r.quant = {"quant-a"};
    text = error(r);
    EXPECT_TRUE(contains(text, "what to do: set backends.quant = [\"quant-a\", \"quant-b\"]"))
        << text;

    r = requirements();
    r.quant_needs.push_back(matmul("q8_0", 33));
    text = error(r);
    EXPECT_TRUE(contains(first_line(text),
                         "quant-a: blk.0.ffn_down.weight: K is 33, want a multiple of 32"))
        << text;
}

TEST_F(Resolve, OptionsReachThePluginAndThePlan) {
    Requirements r = requirements();
    r.options["quant-a"] = {{"mode", "slow"}};
    const Plan plan = resolve(r).plan;
    EXPECT_TRUE(contains(plan.to_text(), "quant-a.mode = slow"));
    r.options["quant-a"] = {{"speed", "fast"}};
    r.quant = {"quant-a"};
    EXPECT_TRUE(contains(error(r), "unknown option \"speed\"; known: mode"));
}

TEST_F(Resolve, DevicesThatAreNotThereAreNotTaken) {
    Requirements r = requirements();
    r.device = {"device-none"};
    std::string text = error(r);
    EXPECT_TRUE(contains(first_line(text),
                         "backends.device: nothing configured serves device 0: "
                         "device-none: device 0 wanted, 0 present (no driver on "
                         "this machine)"))
        << text;
    EXPECT_TRUE(contains(text, "set backends.device = [\"device-one\"]")) << text;
    r.device = {"device-none", "device-one"};
    EXPECT_EQ(resolve(r).plan.device.id, "device-one");
    r.device_ordinal = 1;
    EXPECT_TRUE(contains(error(r), "device-one: device 1 wanted, 1 present"));
}

TEST_F(Resolve, AnEmptyListIsAMistakeToo) {
    Requirements r = requirements();
    r.attention_decode.clear();
    EXPECT_TRUE(contains(error(r), "the list is empty"));
}

TEST_F(Resolve, TheHashIsOfWhatComputes) {
    const Plan plan = resolve(requirements()).plan;
    EXPECT_EQ(plan.hash().size(), 16u);
    EXPECT_EQ(plan.hash(), resolve(requirements()).plan.hash());
    const auto changed = [&](auto&& change) {
        Plan other = plan;
        change(other);
        return other.hash() != plan.hash();
    };
    EXPECT_TRUE(changed([](Plan& p) { p.prefill.version = "9"; }));
    EXPECT_TRUE(changed([](Plan& p) { p.decode.build_id = "9"; }));
    EXPECT_TRUE(changed([](Plan& p) { p.quant[0].tier = "9"; }));
    EXPECT_TRUE(changed([](Plan& p) { p.format["q8_0"] = "quant-b"; }));
    EXPECT_TRUE(changed([](Plan& p) { p.kv_layouts[0] = "9"; }));
    EXPECT_TRUE(changed([](Plan& p) { p.options["quant-a"] = {{"mode", "x"}}; }));
    EXPECT_TRUE(changed([](Plan& p) { p.device.id = "9"; }));
    EXPECT_TRUE(changed([](Plan& p) { p.loader.build_id = "9"; }));
    EXPECT_TRUE(changed([](Plan& p) { p.chat_template = "9"; }));
    EXPECT_FALSE(changed([](Plan& p) { p.prefill.path = "/elsewhere"; }));
    EXPECT_FALSE(changed([](Plan& p) { p.passed_over.clear(); }));
}

}  // namespace
