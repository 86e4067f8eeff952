// Tensors of a file against the parameters of its architecture.

#include "daemon/model/audit.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "daemon/base/error.hpp"
#include "tests/daemon/model/model_spec.hpp"

namespace model {
namespace {

using model_test::deepseek2;
using model_test::glm_dsa;
using model_test::llama;
using model_test::make_legacy;
using model_test::ModelSpec;

AuditReport audit_of(const ModelSpec& spec, const std::vector<std::string>& allow = {}) {
    return audit(*spec.write()->file, allow);
}

const AuditFinding* defect_of(const AuditReport& report, const std::string& subject) {
    for (const auto& d : report.defects)
        if (d.subject == subject) return &d;
    return nullptr;
}

TEST(Audit, AcceptsWhatIsWhole) {
    const auto dense = audit_of(llama());
    EXPECT_TRUE(dense.passed()) << dense.to_text();
    EXPECT_EQ(dense.num_used, 3U + 2 * 9);
    EXPECT_EQ(dense.num_skipped, 0U);
    EXPECT_EQ(dense.to_text(), "");
    const auto sparse = audit_of(glm_dsa());
    EXPECT_TRUE(sparse.passed()) << sparse.to_text();
    EXPECT_EQ(sparse.hparams.num_layers, 3);
}

TEST(Audit, NamesAMissingTensorWithItsShape) {
    auto m = llama();
    m.tensors.erase("blk.1.ffn_up.weight");
    const auto report = audit_of(m);
    ASSERT_EQ(report.defects.size(), 1U);
    EXPECT_EQ(report.to_text(),
              "blk.1.ffn_up.weight: missing; expected [24, 16] (model.layers.{}.mlp.up_proj.weight)");
}

TEST(Audit, RefusesATensorThatNothingReads) {
    auto m = llama();
    m.tensors["blk.0.attn_sinks.weight"] = {4};
    const auto report = audit_of(m);
    ASSERT_EQ(report.defects.size(), 1U);
    EXPECT_EQ(report.defects[0].subject, "blk.0.attn_sinks.weight");
    EXPECT_NE(report.to_text().find("model.allow_unused_tensors"), std::string::npos) << report.to_text();

    const auto allowed = audit_of(m, {"blk.*.attn_sinks.weight"});
    EXPECT_TRUE(allowed.passed()) << allowed.to_text();
    EXPECT_TRUE(std::any_of(allowed.notes.begin(), allowed.notes.end(), [](const std::string& note) {
        return note.find("unused and allowed: 1") != std::string::npos;
    }));
    EXPECT_FALSE(audit_of(m, {"blk.*.attn_sink"}).passed()) << "a pattern covers the whole name";
}

TEST(Audit, APatternDoesNotExcuseWhatIsMissingOrWrong) {
    auto m = llama();
    m.tensors["blk.0.ffn_up.weight"] = {16, 25};
    m.tensors.erase("blk.1.ffn_up.weight");
    EXPECT_EQ(audit_of(m, {"*"}).defects.size(), 2U);
}

TEST(Audit, NamesAWrongShape) {
    auto m = llama();
    m.tensors["blk.0.attn_k.weight"] = {16, 16};
    const auto report = audit_of(m);
    ASSERT_EQ(report.defects.size(), 1U);
    EXPECT_EQ(report.to_text(), "blk.0.attn_k.weight: expected shape [8, 16], found [16, 16]");
    auto transposed = llama();
    transposed.tensors["blk.0.ffn_gate.weight"] = {24, 16};
    EXPECT_FALSE(audit_of(transposed).passed());
}

TEST(Audit, ARenamedTensorIsMissingAndUnread) {
    auto m = llama();
    m.rename("blk.0.attn_q.weight", "blk.0.attn_query.weight");
    const auto report = audit_of(m);
    EXPECT_EQ(report.defects.size(), 2U);
    EXPECT_NE(defect_of(report, "blk.0.attn_q.weight"), nullptr);
    EXPECT_NE(defect_of(report, "blk.0.attn_query.weight"), nullptr);
}

TEST(Audit, ListsEveryDefectAtOnce) {
    auto m = llama();
    m.tensors.erase("output_norm.weight");
    m.tensors["blk.1.attn_v.weight"] = {16, 4};
    m.tensors["extra.weight"] = {4};
    m.tensors["blk.2.attn_norm.weight"] = {16};  // beyond the last layer
    const auto report = audit_of(m);
    EXPECT_EQ(report.defects.size(), 4U);
    const std::string text = report.to_text();
    EXPECT_EQ(text.find("4 defects; first: "), 0U) << text;
    for (const char* name : {"output_norm.weight", "blk.1.attn_v.weight", "extra.weight", "blk.2.attn_norm.weight"})
        EXPECT_NE(text.find(std::string{"\n  "} + name), std::string::npos) << text;
}

TEST(Audit, AcceptsTiedEmbeddings) {
    auto m = llama();
    m.tensors.erase("output.weight");
    const auto report = audit_of(m);
    EXPECT_TRUE(report.passed()) << report.to_text();
    m.tensors.erase("token_embd.weight");
    EXPECT_NE(defect_of(audit_of(m), "token_embd.weight"), nullptr);
}

TEST(Audit, AcceptsHeadsFoldedIntoRows) {
    auto m = glm_dsa();
    m.tensors["blk.0.attn_k_b.weight"] = {4, 16};  // 2 heads of 8 rows
    m.tensors["blk.0.attn_v_b.weight"] = {8, 10};
    const auto report = audit_of(m);
    EXPECT_TRUE(report.passed()) << report.to_text();
    m.tensors["blk.0.attn_k_b.weight"] = {8, 8};  // as many bytes, other rows
    EXPECT_FALSE(audit_of(m).passed());
}

TEST(Audit, AcceptsMlaOfEachGeneration) {
    auto legacy = deepseek2();
    make_legacy(legacy);
    const auto report = audit_of(legacy);
    EXPECT_TRUE(report.passed()) << report.to_text();
    EXPECT_GE(report.map.layers[0][static_cast<std::size_t>(Role::attn_kv_b)], 0);
    EXPECT_EQ(report.map.layers[0][static_cast<std::size_t>(Role::attn_k_b)], -1);
    ASSERT_EQ(report.notes.size(), 2U) << "the form, and the NextN block";
    EXPECT_NE(report.notes[0].find("attn_kv_b"), std::string::npos) << report.notes[0];

    auto both = legacy;
    for (int l = 0; l < 4; ++l) {
        both.tensors["blk." + std::to_string(l) + ".attn_k_b.weight"] = {4, 16};
        both.tensors["blk." + std::to_string(l) + ".attn_v_b.weight"] = {8, 5, 2};
    }
    EXPECT_TRUE(audit_of(both).passed()) << audit_of(both).to_text();
    both.tensors["blk.1.attn_kv_b.weight"] = {8, 20};
    EXPECT_NE(defect_of(audit_of(both), "blk.1.attn_kv_b.weight"), nullptr) << "compared, so its shape counts";
}

TEST(Audit, RefusesHalfAnUpProjection) {
    auto none = deepseek2();
    none.tensors.erase("blk.1.attn_v_b.weight");
    EXPECT_NE(defect_of(audit_of(none), "blk.1.attn_v_b.weight"), nullptr);
    // attn_kv_b does not stand in for half of what other layers have in two.
    none.tensors["blk.1.attn_kv_b.weight"] = {8, 18};
    EXPECT_NE(defect_of(audit_of(none), "blk.1.attn_v_b.weight"), nullptr);
    auto legacy = deepseek2();
    make_legacy(legacy);
    legacy.tensors.erase("blk.2.attn_kv_b.weight");
    EXPECT_NE(defect_of(audit_of(legacy), "blk.2.attn_kv_b.weight"), nullptr);
}

TEST(Audit, RecognisesNextnAndSkipsIt) {
    const auto report = audit_of(glm_dsa());
    ASSERT_TRUE(report.passed()) << report.to_text();
    std::size_t of_block = 0;
    for (const auto& [name, ne] : glm_dsa().tensors) of_block += name.starts_with("blk.3.") ? 1 : 0;
    EXPECT_EQ(report.num_skipped, of_block);
    ASSERT_EQ(report.map.layers.size(), 4U);
    for (const auto index : report.map.layers[3]) EXPECT_EQ(index, -1);

    auto trunk_only = glm_dsa();
    std::erase_if(trunk_only.tensors, [](const auto& t) { return t.first.starts_with("blk.3."); });
    EXPECT_TRUE(audit_of(trunk_only).passed()) << "metadata may announce a block that is not there";

    auto wrong = glm_dsa();
    wrong.tensors["blk.3.nextn.eh_proj.weight"] = {16, 16};
    EXPECT_FALSE(audit_of(wrong).passed());
    auto misplaced = glm_dsa();
    misplaced.tensors["blk.1.nextn.enorm.weight"] = {16};
    EXPECT_NE(defect_of(audit_of(misplaced), "blk.1.nextn.enorm.weight"), nullptr);
}

TEST(Audit, SkipsIndexCopiesOnSharedLayers) {
    auto m = glm_dsa();
    const auto before = audit_of(m).num_skipped;
    m.tensors["blk.2.indexer.attn_k.weight"] = {16, 6};
    m.tensors["blk.2.indexer.proj.weight"] = {16, 3};
    const auto report = audit_of(m);
    EXPECT_TRUE(report.passed()) << report.to_text();
    EXPECT_EQ(report.num_skipped, before + 2);
    EXPECT_EQ(report.map.layers[2][static_cast<std::size_t>(Role::index_k)], -1);
    EXPECT_GE(report.map.layers[1][static_cast<std::size_t>(Role::index_k)], 0);

    auto missing = glm_dsa();
    missing.tensors.erase("blk.1.indexer.k_norm.bias");
    EXPECT_NE(defect_of(audit_of(missing), "blk.1.indexer.k_norm.bias"), nullptr);
}

TEST(Audit, RefusesAFeedForwardOfTheOtherKind) {
    auto m = glm_dsa();
    m.tensors["blk.1.ffn_gate.weight"] = {16, 24};  // layer 1 is MoE
    EXPECT_NE(defect_of(audit_of(m), "blk.1.ffn_gate.weight"), nullptr);
}

/// Nothing would be run in its place.
TEST(Audit, RefusesALayerOfAKindThatTheArchitectureLacks) {
    const auto refused = [](const ModelSpec& m, const char* kind) {
        try {
            audit_of(m);
            ADD_FAILURE() << "accepted";
        } catch (const base::ModelError& e) {
            EXPECT_NE(std::string{e.what()}.find(kind), std::string::npos) << e.what();
        }
    };
    auto m = model_test::mla("qwen3moe");  // its keys are those of any mixture of experts
    m.set("leading_dense_block_count", 1);
    refused(m, "qwen3moe.leading_dense_block_count\": layer 0 is dense");
    m.set("leading_dense_block_count", 0);
    m.set("expert_count", 0);
    m.set("expert_used_count", 0);
    refused(m, "qwen3moe.expert_count");
    m.erase("expert_feed_forward_length");
    refused(m, "layer 0 is dense");
}

TEST(Audit, ListsWhatIsSupported) {
    auto m = llama();
    m.declared_arch = "mamba";
    try {
        audit_of(m);
        FAIL() << "accepted";
    } catch (const base::ModelError& e) {
        const std::string text = e.what();
        EXPECT_NE(text.find("\"mamba\" is not supported"), std::string::npos) << text;
        for (const std::string_view name : architecture_names())
            EXPECT_NE(text.find(name), std::string::npos) << text;
        EXPECT_EQ(e.code(), base::ExitCode::bad_model);
    }
}

TEST(GlobMatch, KnowsStarsAndQuestionMarks) {
    EXPECT_TRUE(glob_match("", ""));
    EXPECT_FALSE(glob_match("", "a"));
    EXPECT_TRUE(glob_match("*", ""));
    EXPECT_TRUE(glob_match("*", "anything"));
    EXPECT_TRUE(glob_match("a*c", "ac"));
    EXPECT_TRUE(glob_match("a*c", "abcbc"));
    EXPECT_FALSE(glob_match("a*c", "abcb"));
    EXPECT_TRUE(glob_match("blk.?.attn_*.weight", "blk.3.attn_q_a.weight"));
    EXPECT_FALSE(glob_match("blk.?.attn_*.weight", "blk.13.attn_q_a.weight"));
    EXPECT_FALSE(glob_match("?", ""));
    EXPECT_TRUE(glob_match("**a**", "bab"));
    EXPECT_FALSE(glob_match("a.c", "abc")) << "a dot is a dot";
    // Linear, not exponential, in the stars.
    std::string pattern, text(2000, 'a');
    for (int i = 0; i < 200; ++i) pattern += "*a";
    EXPECT_FALSE(glob_match(pattern + "b", text));
}

}  // namespace
}  // namespace model
