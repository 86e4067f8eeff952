// Hyperparameters from metadata: what they become, and that a stranger's file is refused with key,
// expected and found.

#include "daemon/model/hparams.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "daemon/base/error.hpp"
#include "daemon/model/audit.hpp"
#include "tests/daemon/model/model_spec.hpp"

namespace model {
namespace {

using model_test::deepseek2;
using model_test::deepseek32;
using model_test::glm_dsa;
using model_test::llama;
using model_test::make_legacy;
using model_test::ModelSpec;

Hparams read(const ModelSpec& spec) {
    const auto metadata = spec.metadata();
    const auto shapes = spec.shapes();
    const HparamReader reader{metadata, [&](std::string_view name) {
        const auto found = shapes.find(name);
        return found == shapes.end() ? nullptr : &found->second;
    }};
    return find_architecture(metadata.get_string("general.architecture"))->read(reader);
}

TEST(Hparams, OfADenseModel) {
    const Hparams h = read(llama());
    EXPECT_EQ(h.num_layers, 2);
    EXPECT_EQ(h.head_dim, 4);
    EXPECT_EQ(h.num_kv_heads, 2);
    EXPECT_EQ(h.attn_class, ASSAY_ATTN_GQA);
    EXPECT_DOUBLE_EQ(h.softmax_scale, 0.5);
    ASSERT_EQ(h.ropes.size(), 1U);
    EXPECT_EQ(h.ropes[0].n_rot, 4);
    EXPECT_TRUE(h.ropes[0].use_factors);
    EXPECT_EQ(h.num_experts, 0);
}

TEST(Hparams, OfASparseModel) {
    const Hparams h = read(glm_dsa());
    EXPECT_EQ(h.num_layers, 3);
    EXPECT_EQ(h.num_nextn_layers, 1);
    EXPECT_EQ(h.attn_class, ASSAY_ATTN_MLA_DSA);
    EXPECT_EQ(h.qk_nope_head_dim, 4);
    EXPECT_DOUBLE_EQ(h.softmax_scale, 1 / std::sqrt(6.0));
    EXPECT_EQ(h.gating, 2);
    EXPECT_FALSE(h.layers[0].is_moe);
    EXPECT_TRUE(h.layers[1].is_moe);
    EXPECT_EQ(h.layers[1].index_role, ASSAY_INDEX_FULL);
    EXPECT_EQ(h.layers[2].index_role, ASSAY_INDEX_SHARED);
}

TEST(Hparams, KeyHeadsDefaultToQueryHeads) {
    auto m = llama();
    m.erase("attention.head_count_kv");
    EXPECT_EQ(read(m).num_kv_heads, 4);
}

TEST(Hparams, AnArrayOfEqualItemsIsOneValue) {
    auto m = llama();
    m.set_array<std::uint32_t>("attention.head_count_kv", {2, 2});
    EXPECT_EQ(read(m).num_kv_heads, 2);
    auto nextn = glm_dsa();
    nextn.set_array<std::uint32_t>("feed_forward_length", {24, 24, 24});
    EXPECT_EQ(read(nextn).intermediate_size, 24) << "without the NextN block";
    nextn.set_array<std::uint32_t>("feed_forward_length", {24, 24, 24, 99});
    EXPECT_EQ(read(nextn).intermediate_size, 24) << "with it";
}

TEST(Hparams, IndexTypesMayCountTheNextnBlock) {
    auto m = glm_dsa();
    m.set_array<std::int32_t>("attention.indexer.types", {1, 0, 1, 1});
    const Hparams h = read(m);
    EXPECT_EQ(h.layers[1].index_role, ASSAY_INDEX_SHARED);
    EXPECT_EQ(h.layers[2].index_role, ASSAY_INDEX_FULL);
}

std::vector<std::int64_t> index_layers(const Hparams& h) {
    std::vector<std::int64_t> full;
    for (std::size_t l = 0; l < h.layers.size(); ++l)
        if (h.layers[l].index_role == ASSAY_INDEX_FULL) full.push_back(static_cast<std::int64_t>(l));
    return full;
}

/// Files without the key: layers without an indexer share.
TEST(Hparams, IndexRolesFollowTheTensors) {
    auto m = glm_dsa();
    m.erase("attention.indexer.types");
    EXPECT_EQ(index_layers(read(m)), (std::vector<std::int64_t>{0, 1}));
    ASSERT_EQ(read(m).notes.size(), 1U);
    EXPECT_NE(read(m).notes[0].find("the 2 layers with an indexer"), std::string::npos) << read(m).notes[0];
    m.tensors["blk.2.indexer.proj.weight"] = {16, 3};  // one of five: the audit misses the others
    EXPECT_EQ(index_layers(read(m)), (std::vector<std::int64_t>{0, 1, 2}));
    EXPECT_TRUE(read(m).notes.empty()) << "all layers have one: GLM-5";
    EXPECT_EQ(audit(*m.write()->file).defects.size(), 4U);

    auto key = glm_dsa();
    key.set_array<bool>("attention.indexer.types", {true, false, true});
    EXPECT_EQ(index_layers(read(key)), (std::vector<std::int64_t>{0, 2})) << "the key is the better source";
    EXPECT_EQ(index_layers(read(deepseek32())), (std::vector<std::int64_t>{0, 1, 2}));
}

/// Full layers of GLM-5.2 (section 17), whose older files have no key for them, and some of which hold
/// copies of the indexer on the others.
TEST(Hparams, IndexPatternOfGlm52) {
    const std::vector<std::int64_t> pattern{0,  1,  2,  6,  10, 14, 18, 22, 26, 30, 34,
                                            38, 42, 46, 50, 54, 58, 62, 66, 70, 74};
    std::vector<int> all(79);
    std::iota(all.begin(), all.end(), 0);
    auto m = model_test::with_indexer(model_test::mla("glm-dsa"), all);
    m.set("block_count", 79);
    EXPECT_EQ(index_layers(read(m)).size(), 78U) << "GLM-5";
    m.set("context_length", 1048576);
    EXPECT_EQ(index_layers(read(m)), pattern);
    m.set("context_length", 202752);
    m.set_float("rope.freq_base", 8e6F);
    EXPECT_EQ(index_layers(read(m)), pattern);
    m.tensors.clear();
    EXPECT_EQ(index_layers(read(m)), pattern);
}

// ---- deepseek2 ----------------------------------------------------------------------------------

TEST(Hparams, TheQueryIsLowRankWhereTheFileHasItsTensor) {
    auto m = deepseek2();
    m.erase("attention.q_lora_rank");
    EXPECT_EQ(read(m).q_lora_rank, 12);
    std::erase_if(m.tensors, [](const auto& t) { return t.first.find("attn_q_") != std::string::npos; });
    for (int l = 0; l < 4; ++l) m.tensors["blk." + std::to_string(l) + ".attn_q.weight"] = {16, 12};
    EXPECT_EQ(read(m).q_lora_rank, 0);
    EXPECT_EQ(audit(*m.write()->file).to_text(), "");
}

TEST(Hparams, GatingFollowsTheSelectionBias) {
    auto m = deepseek2();
    m.erase("expert_gating_func");
    EXPECT_EQ(read(m).gating, 2) << "as in GLM-4.7-Flash";
    EXPECT_EQ(read(m).notes.size(), 1U);
    for (int l = 0; l < 4; ++l) m.tensors.erase("blk." + std::to_string(l) + ".exp_probs_b.bias");
    EXPECT_EQ(read(m).gating, 1) << "as in V2";
    EXPECT_EQ(audit(*m.write()->file).to_text(), "");
    m.set("expert_gating_func", 2);
    EXPECT_TRUE(read(m).has_router_bias);
    EXPECT_EQ(audit(*m.write()->file).defects.size(), 2U) << "a sigmoid router without its bias is broken";
}

TEST(Hparams, OfEachGenerationOfMlaAreTheSame) {
    const Hparams current = read(deepseek2());
    auto m = deepseek2();
    make_legacy(m);
    const Hparams legacy = read(m);
    EXPECT_TRUE(current.has_split_kv_b);
    EXPECT_FALSE(legacy.has_split_kv_b);
    for (const Hparams* h : {&current, &legacy}) {
        EXPECT_EQ(h->head_dim, 6);
        EXPECT_EQ(h->v_head_dim, 5);
        EXPECT_EQ(h->qk_nope_head_dim, 4);
        EXPECT_EQ(h->num_kv_heads, 1);
        EXPECT_DOUBLE_EQ(h->softmax_scale, 1 / std::sqrt(6.0));
    }
}

TEST(Hparams, OneGroupNeedsNoCount) {
    auto m = deepseek2();
    for (const char* key : {"expert_group_count", "expert_group_used_count"}) m.set(key, 0);
    EXPECT_EQ(read(m).num_expert_groups, 1);
    EXPECT_EQ(read(m).num_expert_groups_used, 1);
}

void set_yarn(ModelSpec& m, float factor) {
    m.set_string("rope.scaling.type", "yarn");
    m.set_float("rope.scaling.factor", factor);
    m.set("rope.scaling.original_context_length", 4096);
}

/// Softmax scales of section 17, for heads of 128 + 64.
TEST(Hparams, YarnOfMlaScalesTheSoftmax) {
    auto m = glm_dsa();
    m.set("attention.key_length_mla", 192);
    m.set("rope.dimension_count", 64);
    m.set("attention.indexer.key_length", 128);
    m.set("attention.key_length", 72);
    m.tensors.clear();
    set_yarn(m, 40);
    const auto scale = [&](float multiplier) {
        m.set_float("rope.scaling.yarn_log_multiplier", multiplier);
        return read(m).softmax_scale;
    };
    EXPECT_NEAR(scale(0.1F), 0.1352337789, 1e-8);     // V3
    EXPECT_NEAR(scale(0.0707F), 0.1147213868, 1e-8);  // V2-Lite
    set_yarn(m, 32);
    EXPECT_NEAR(scale(0.1F), 0.1308607999, 1e-8);     // K2
    EXPECT_EQ(read(m).ropes[0].magnitude, 1.0);
}

TEST(Hparams, YarnElsewhereScalesTheAngles) {
    auto m = llama();
    set_yarn(m, 40);
    EXPECT_NEAR(read(m).ropes[0].magnitude, 1.3688879, 1e-6);
    EXPECT_DOUBLE_EQ(read(m).softmax_scale, 0.5);
    m.set_float("rope.scaling.yarn_attn_factor", 1.25F);
    EXPECT_DOUBLE_EQ(read(m).ropes[0].magnitude, 1.25);
    m.set_float("rope.scaling.attn_factor", 2.0F);
    EXPECT_DOUBLE_EQ(read(m).ropes[0].magnitude, 2.5);
    m.set_float("rope.scaling.yarn_ext_factor", 0.0F);
    EXPECT_EQ(read(m).ropes[0].extrapolation, 0.0);
}

TEST(Hparams, AFactorOfZeroIsNone) {
    auto m = llama();
    m.set_float("rope.scaling.factor", 0.0F);
    EXPECT_EQ(read(m).ropes[0].scaling, RopeScaling::none);
    m.set_float("rope.scaling.factor", 4.0F);
    EXPECT_EQ(read(m).ropes[0].scaling, RopeScaling::linear) << "without a type";
}

// ---- refusals -----------------------------------------------------------------------------------

struct Hostile {
    const char* name;
    ModelSpec (*base)();
    std::function<void(ModelSpec&)> change;
    const char* key;       ///< named in the message
    const char* expected;  ///< words of it
    const char* found;
};

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLow = std::numeric_limits<std::int64_t>::min();

const std::vector<Hostile>& hostile() {
    using M = ModelSpec;
    static const std::vector<Hostile> cases = {
        {"no_blocks", llama, [](M& m) { m.set("block_count", 0); }, "llama.block_count", "1 to 4096", "0"},
        {"missing_blocks", llama, [](M& m) { m.erase("block_count"); }, "llama.block_count", "missing", ""},
        {"huge_blocks", llama, [](M& m) { m.set_i64("block_count", kHuge); }, "llama.block_count", "1 to 4096", "9223372036854775807"},
        {"negative_blocks", llama, [](M& m) { m.set_i64("block_count", -1); }, "llama.block_count", "1 to 4096", "-1"},
        {"text_for_blocks", llama, [](M& m) { m.set_string("block_count", "2"); }, "llama.block_count", "integer", "string"},
        {"only_nextn", llama, [](M& m) { m.set("nextn_predict_layers", 2); }, "llama.nextn_predict_layers", "0 to 1", "2"},
        {"negative_nextn", llama, [](M& m) { m.set_i64("nextn_predict_layers", kLow); }, "llama.nextn_predict_layers", "0 to 1", "-9223372036854775808"},
        {"zero_hidden", llama, [](M& m) { m.set("embedding_length", 0); }, "llama.embedding_length", "1 to", "0"},
        {"huge_hidden", llama, [](M& m) { m.set_i64("embedding_length", kHuge); }, "llama.embedding_length", "16777216", "9223372036854775807"},
        {"zero_context", llama, [](M& m) { m.set("context_length", 0); }, "llama.context_length", "1 to", "0"},
        {"context_of_2_31", llama, [](M& m) { m.set_i64("context_length", std::int64_t{1} << 31); }, "llama.context_length", "1073741824", "2147483648"},
        {"zero_heads", llama, [](M& m) { m.set("attention.head_count", 0); }, "llama.attention.head_count", "1 to", "0"},
        {"missing_heads", llama, [](M& m) { m.erase("attention.head_count"); }, "llama.attention.head_count", "1 to", "0"},
        {"negative_heads", llama, [](M& m) { m.set_i64("attention.head_count", -4); }, "llama.attention.head_count", "1 to", "-4"},
        {"zero_kv_heads", llama, [](M& m) { m.set("attention.head_count_kv", 0); }, "llama.attention.head_count_kv", "1 to", "0"},
        {"indivisible_kv_heads", llama, [](M& m) { m.set("attention.head_count_kv", 3); }, "llama.attention.head_count_kv", "a divisor of attention.head_count 4", "3"},
        {"more_kv_heads", llama, [](M& m) { m.set("attention.head_count_kv", 8); }, "llama.attention.head_count_kv", "a divisor", "8"},
        {"unequal_heads", llama, [](M& m) { m.set_array<std::uint32_t>("attention.head_count", {4, 2}); }, "llama.attention.head_count", "one value for all layers", "4 and 2"},
        {"short_heads", llama, [](M& m) { m.set_array<std::uint32_t>("attention.head_count", {4}); }, "llama.attention.head_count", "2 items", "1 items"},
        {"empty_heads", llama, [](M& m) { m.set_array<std::uint32_t>("attention.head_count", {}); }, "llama.attention.head_count", "2 items", "0 items"},
        {"float_heads", llama, [](M& m) { m.set_float("attention.head_count", 4); }, "llama.attention.head_count", "integer", "float"},
        {"more_heads_than_width", llama, [](M& m) { m.set("attention.head_count", 32); }, "llama.attention.key_length", "1 to", "0"},
        {"huge_head", llama, [](M& m) { m.set("attention.key_length", 1 << 20); }, "llama.attention.key_length", "65536", "1048576"},
        {"no_eps", llama, [](M& m) { m.erase("attention.layer_norm_rms_epsilon"); }, "llama.attention.layer_norm_rms_epsilon", "missing", ""},
        {"zero_eps", llama, [](M& m) { m.set_float("attention.layer_norm_rms_epsilon", 0); }, "llama.attention.layer_norm_rms_epsilon", "between 0 and 1", "0.0"},
        {"nan_eps", llama, [](M& m) { m.set_float("attention.layer_norm_rms_epsilon", kNan); }, "llama.attention.layer_norm_rms_epsilon", "between 0 and 1", "nan"},
        {"no_vocabulary", llama, [](M& m) { m.erase("vocab_size"); }, "llama.vocab_size", "1 to", "0"},
        {"huge_vocabulary", llama, [](M& m) { m.set_i64("vocab_size", std::int64_t{1} << 40); }, "llama.vocab_size", "1 to", "1099511627776"},
        {"odd_rope", llama, [](M& m) { m.set("attention.key_length", 5); }, "llama.rope.dimension_count", "even", "5"},
        {"rope_beyond_the_head", llama, [](M& m) { m.set("rope.dimension_count", 6); }, "llama.rope.dimension_count", "at most the head size 4", "6"},
        {"negative_rope", llama, [](M& m) { m.set_i64("rope.dimension_count", -4); }, "llama.rope.dimension_count", "4", "-4"},
        {"negative_theta", llama, [](M& m) { m.set_float("rope.freq_base", -1); }, "llama.rope.freq_base", "positive", "-1"},
        {"nan_theta", llama, [](M& m) { m.set_float("rope.freq_base", kNan); }, "llama.rope.freq_base", "positive", "nan"},
        {"infinite_theta", llama, [](M& m) { m.set_float("rope.freq_base", kInf); }, "llama.rope.freq_base", "positive", "inf"},
        {"negative_factor", llama, [](M& m) { m.set_float("rope.scaling.factor", -8); }, "llama.rope.scaling.factor", "positive", "-8"},
        {"nan_factor", llama, [](M& m) { m.set_float("rope.scale_linear", kNan); }, "llama.rope.scale_linear", "positive", "nan"},
        {"unknown_scaling", llama, [](M& m) { m.set_string("rope.scaling.type", "dynamic"); }, "llama.rope.scaling.type", "none, linear, yarn or longrope", "dynamic"},
        {"yarn_of_theta_1", llama, [](M& m) { set_yarn(m, 4); m.set_float("rope.freq_base", 1); }, "llama.rope.freq_base", "more than 1", "1.0"},
        {"yarn_beta", llama, [](M& m) { set_yarn(m, 4); m.set_float("rope.scaling.yarn_beta_fast", 0); }, "llama.rope.scaling.yarn_beta_fast", "positive", "0"},
        {"yarn_ext", llama, [](M& m) { set_yarn(m, 4); m.set_float("rope.scaling.yarn_ext_factor", 2); }, "llama.rope.scaling.yarn_ext_factor", "0 to 1", "2"},
        {"attn_factor", llama, [](M& m) { m.set_float("rope.scaling.attn_factor", 0); }, "llama.rope.scaling.attn_factor", "positive", "0"},
        {"too_many_used", glm_dsa, [](M& m) { m.set("expert_used_count", 5); }, "glm-dsa.expert_used_count", "1 to 4", "5"},
        {"none_used", glm_dsa, [](M& m) { m.set("expert_used_count", 0); }, "glm-dsa.expert_used_count", "1 to 4", "0"},
        {"negative_experts", glm_dsa, [](M& m) { m.set_i64("expert_count", -4); }, "glm-dsa.expert_count", "0 to", "-4"},
        {"huge_experts", glm_dsa, [](M& m) { m.set_i64("expert_count", kHuge); }, "glm-dsa.expert_count", "0 to", "9223372036854775807"},
        {"huge_shared", glm_dsa, [](M& m) { m.set_i64("expert_shared_count", kHuge); }, "glm-dsa.expert_shared_count", "0 to 1024", "9223372036854775807"},
        {"late_dense", glm_dsa, [](M& m) { m.set("leading_dense_block_count", 4); }, "glm-dsa.leading_dense_block_count", "0 to 3", "4"},
        {"unknown_gating", glm_dsa, [](M& m) { m.set("expert_gating_func", 5); }, "glm-dsa.expert_gating_func", "0 to 4", "5"},
        {"gating_of_33_bits", glm_dsa, [](M& m) { m.set_i64("expert_gating_func", (std::int64_t{1} << 32) + 2); }, "glm-dsa.expert_gating_func", "0 to 4", "4294967298"},
        {"negative_groups", glm_dsa, [](M& m) { m.set_i64("expert_group_count", -2); }, "glm-dsa.expert_group_count", "0 to 4", "-2"},
        {"indivisible_groups", glm_dsa, [](M& m) { m.set("expert_group_count", 3); }, "glm-dsa.expert_group_count", "a divisor of expert_count 4", "3"},
        {"more_groups_used", glm_dsa, [](M& m) { m.set("expert_group_used_count", 2); }, "glm-dsa.expert_group_used_count", "0 to 1", "2"},
        {"groups_too_small", glm_dsa, [](M& m) { m.set("expert_group_count", 4); m.set("expert_group_used_count", 1); }, "glm-dsa.expert_used_count", "at most the 1", "2"},
        {"nan_scale", glm_dsa, [](M& m) { m.set_float("expert_weights_scale", kNan); }, "glm-dsa.expert_weights_scale", "positive", "nan"},
        {"huge_lora", glm_dsa, [](M& m) { m.set_i64("attention.kv_lora_rank", kHuge); }, "glm-dsa.attention.kv_lora_rank", "1 to 65536", "9223372036854775807"},
        {"negative_q_lora", glm_dsa, [](M& m) { m.set_i64("attention.q_lora_rank", -12); }, "glm-dsa.attention.q_lora_rank", "1 to 65536", "-12"},
        {"indexer_without_q_lora", glm_dsa, [](M& m) { m.erase("attention.q_lora_rank"); std::erase_if(m.tensors, [](const auto& t) { return t.first.find("attn_q_a") != std::string::npos; }); }, "glm-dsa.attention.q_lora_rank", "1 to 65536", "0"},
        {"no_nope", glm_dsa, [](M& m) { m.tensors.clear(); m.set("attention.key_length_mla", 2); }, "glm-dsa.attention.key_length_mla", "more than rope.dimension_count 2", "2"},
        {"other_key_length", glm_dsa, [](M& m) { m.set("attention.key_length", 11); }, "glm-dsa.attention.key_length", "10", "11"},
        {"other_value_length", glm_dsa, [](M& m) { m.set("attention.value_length", 9); }, "glm-dsa.attention.value_length", "8", "9"},
        {"half_of_mla_keys", glm_dsa, [](M& m) { m.erase("attention.key_length_mla"); }, "glm-dsa.attention.key_length_mla", "missing", ""},
        {"other_half_of_mla_keys", deepseek2, [](M& m) { m.set("attention.value_length_mla", 0); }, "deepseek2.attention.value_length_mla", "missing", ""},
        {"other_query_rows", deepseek2, [](M& m) { m.set("attention.key_length_mla", 7); }, "deepseek2.attention.key_length_mla", "12 rows of the query over 2 heads", "7"},
        {"latent_for_head", deepseek2, [](M& m) { make_legacy(m); m.set("attention.key_length", 10); }, "deepseek2.attention.key_length", "12 rows", "10"},
        {"legacy_without_value", deepseek2, [](M& m) { make_legacy(m); m.set("attention.value_length", 0); }, "deepseek2.attention.value_length", "1 to", "0"},
        {"legacy_huge_head", deepseek2, [](M& m) { make_legacy(m); m.set_i64("attention.key_length", kHuge); }, "deepseek2.attention.key_length", "1 to 65536", "9223372036854775807"},
        {"no_latent", deepseek2, [](M& m) { m.set("attention.kv_lora_rank", 0); }, "deepseek2.attention.kv_lora_rank", "1 to 65536", "0"},
        {"no_rope_in_mla", deepseek2, [](M& m) { m.erase("rope.dimension_count"); }, "deepseek2.rope.dimension_count", "missing", ""},
        {"odd_rope_in_mla", deepseek2, [](M& m) { m.set("rope.dimension_count", 3); m.set("attention.key_length", 11); }, "deepseek2.attention.key_length_mla", "rope.dimension_count 3 (even)", "6"},
        {"groups_without_used", deepseek2, [](M& m) { m.set("expert_group_count", 2); m.erase("expert_group_used_count"); }, "deepseek2.expert_group_used_count", "1 to 2", "0"},
        {"groups_not_dividing", deepseek2, [](M& m) { m.set("expert_group_count", 3); }, "deepseek2.expert_group_count", "a divisor of expert_count 4", "3"},
        {"dense_beyond_layers", deepseek2, [](M& m) { m.set("leading_dense_block_count", 4); }, "deepseek2.leading_dense_block_count", "0 to 3", "4"},
        {"negative_dense", deepseek2, [](M& m) { m.set_i64("leading_dense_block_count", kLow); }, "deepseek2.leading_dense_block_count", "0 to 3", "-9223372036854775808"},
        {"growing_temperature", deepseek2, [](M& m) { m.set_float("attention.temperature_scale", 0.1F); }, "deepseek2.attention.temperature_scale", "expected 0", "0.1"},
        {"nan_temperature", deepseek2, [](M& m) { m.set_float("attention.temperature_scale", kNan); }, "deepseek2.attention.temperature_scale", "expected 0", "nan"},
        {"yarn_in_deepseek2", deepseek2, [](M& m) { set_yarn(m, 40); }, "deepseek2.rope.scaling.yarn_log_multiplier", "missing", ""},
        {"nan_multiplier", deepseek2, [](M& m) { set_yarn(m, 40); m.set_float("rope.scaling.yarn_log_multiplier", kNan); }, "deepseek2.rope.scaling.yarn_log_multiplier", "positive", "nan"},
        {"no_gating_in_v32", deepseek32, [](M& m) { m.erase("expert_gating_func"); }, "deepseek32.expert_gating_func", "missing", ""},
        {"no_topk_in_v32", deepseek32, [](M& m) { m.set("attention.indexer.top_k", 0); }, "deepseek32.attention.indexer.top_k", "1 to", "0"},
        {"huge_topk", deepseek32, [](M& m) { m.set_i64("attention.indexer.top_k", std::int64_t{1} << 31); }, "deepseek32.attention.indexer.top_k", "1 to 16777216", "2147483648"},
        {"no_index_heads", deepseek32, [](M& m) { m.set("attention.indexer.head_count", 0); }, "deepseek32.attention.indexer.head_count", "1 to", "0"},
        {"shared_first_in_v32", deepseek32, [](M& m) { m.set_array<bool>("attention.indexer.types", {false, true, true}); }, "deepseek32.attention.indexer.types", "layer 0", "false"},
        {"tiny_factor", llama, [](M& m) { m.set_float("rope.scaling.factor", 1e-40F); }, "llama.rope.scaling.factor", "positive", "0.0"},
        {"shared_by_tensors", glm_dsa, [](M& m) { m.erase("attention.indexer.types"); std::erase_if(m.tensors, [](const auto& t) { return t.first.starts_with("blk.0.indexer"); }); }, "glm-dsa.attention.indexer.types", "layer 0", "false"},
        {"yarn_without_multiplier", glm_dsa, [](M& m) { set_yarn(m, 40); }, "glm-dsa.rope.scaling.yarn_log_multiplier", "missing", ""},
        {"yarn_negative_multiplier", glm_dsa, [](M& m) { set_yarn(m, 40); m.set_float("rope.scaling.yarn_log_multiplier", -1); }, "glm-dsa.rope.scaling.yarn_log_multiplier", "positive", "-1"},
        {"zero_topk", glm_dsa, [](M& m) { m.set("attention.indexer.top_k", 0); }, "glm-dsa.attention.indexer.top_k", "1 to", "0"},
        {"array_topk", glm_dsa, [](M& m) { m.set_array<std::uint32_t>("attention.indexer.top_k", {16, 16, 16}); }, "glm-dsa.attention.indexer.top_k", "integer", "array"},
        {"short_types", glm_dsa, [](M& m) { m.set_array<bool>("attention.indexer.types", {true, true}); }, "glm-dsa.attention.indexer.types", "3 items", "2"},
        {"long_types", glm_dsa, [](M& m) { m.set_array<bool>("attention.indexer.types", {true, true, true, true, true}); }, "glm-dsa.attention.indexer.types", "3 items", "5"},
        {"shared_first", glm_dsa, [](M& m) { m.set_array<bool>("attention.indexer.types", {false, true, true}); }, "glm-dsa.attention.indexer.types", "layer 0", "false"},
        {"narrow_index", glm_dsa, [](M& m) { m.set("attention.indexer.key_length", 1); }, "glm-dsa.attention.indexer.key_length", "at least rope.dimension_count 2", "1"},
    };
    return cases;
}

TEST(HostileHparams, AreRefusedWithKeyExpectedAndFound) {
    for (const Hostile& c : hostile()) {
        SCOPED_TRACE(c.name);
        ModelSpec m = c.base();
        c.change(m);
        try {
            read(m);
            ADD_FAILURE() << "accepted";
        } catch (const base::ModelError& e) {
            const std::string text = e.what();
            EXPECT_NE(text.find(c.key), std::string::npos) << text;
            EXPECT_NE(text.find(c.expected), std::string::npos) << text;
            EXPECT_NE(text.find(c.found), std::string::npos) << text;
        }
    }
}

/// The same through a file, where the loader may be the one that refuses.
TEST(HostileHparams, AreRefusedInAFile) {
    for (const Hostile& c : hostile()) {
        SCOPED_TRACE(c.name);
        ModelSpec m = c.base();
        c.change(m);
        EXPECT_THROW(audit(*m.write()->file), base::ModelError);
    }
}

}  // namespace
}  // namespace model
