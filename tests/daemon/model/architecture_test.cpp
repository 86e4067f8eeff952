// The tables of all architectures, and what they ask of plugins.

#include "daemon/model/architecture.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "daemon/model/fused_tensors.hpp"
#include "daemon/model/needs.hpp"
#include "tests/daemon/model/model_spec.hpp"

namespace model {
namespace {

using model_test::deepseek2;
using model_test::glm_dsa;
using model_test::llama;
using model_test::make_legacy;

Hparams plausible() {
    Hparams h;
    h.num_layers = 3;
    h.num_nextn_layers = 1;
    h.hidden_size = 16;
    h.vocab_size = 11;
    h.num_q_heads = 4;
    h.num_kv_heads = 2;
    h.head_dim = 6;
    h.v_head_dim = 5;
    h.q_lora_rank = 12;
    h.kv_lora_rank = 8;
    h.qk_nope_head_dim = 4;
    h.qk_rope_head_dim = 2;
    h.index_n_heads = 3;
    h.index_head_dim = 4;
    h.index_topk = 16;
    h.intermediate_size = 24;
    h.num_experts = 4;
    h.num_experts_per_tok = 2;
    h.moe_intermediate_size = 7;
    h.num_shared_experts = 1;
    h.ropes.push_back({.n_rot = 2});
    h.layers.resize(3);
    return h;
}

TEST(Architectures, AreFoundByTheirNames) {
    const auto names = architecture_names();
    for (const char* name : {"llama", "qwen2", "qwen3", "qwen3moe", "glm4", "glm4moe", "gpt-oss", "gemma3", "deepseek2",
                             "deepseek32", "glm-dsa"}) {
        ASSERT_NE(find_architecture(name), nullptr) << name;
        EXPECT_STREQ(find_architecture(name)->name, name);
        EXPECT_NE(std::find(names.begin(), names.end(), name), names.end());
    }
    EXPECT_EQ(find_architecture("Llama"), nullptr);
    EXPECT_EQ((std::set<std::string_view>{names.begin(), names.end()}).size(), names.size());
}

TEST(Architectures, EachTableIsWellFormed) {
    const Hparams h = plausible();
    for (const std::string_view name : architecture_names()) {
        SCOPED_TRACE(name);
        std::set<std::string> tensors;
        std::set<Role> roles;
        for (const auto fragment : find_architecture(name)->fragments)
            for (const TensorSpec& spec : fragment) {
                SCOPED_TRACE(spec.gguf);
                EXPECT_TRUE(roles.insert(spec.role).second) << "two rows of one role";
                std::size_t rank = 0;
                bool ended = false;
                for (const Dim dim : spec.shape) {
                    ended = ended || dim == Dim::none;
                    if (ended) {
                        EXPECT_EQ(dim, Dim::none) << "a gap in the shape";
                        continue;
                    }
                    ++rank;
                    EXPECT_GT(size_of(dim, h), 0);
                }
                const bool is_3d = spec.use == Use::batched || spec.use == Use::grouped;
                const bool is_free = spec.use == Use::skipped || spec.use == Use::fused;
                const std::size_t of_vector = spec.shape[0] == Dim::experts && rank == 2 ? 2 : 1;
                EXPECT_EQ(rank, spec.use == Use::vector ? of_vector : is_3d ? 3U : is_free ? rank : 2U);
                // A name says its layer where there is one, and no two names are alike.
                const std::int64_t layers = spec.is_layer() ? 3 : 1;
                for (std::int64_t l = 0; l < layers; ++l) {
                    const std::string text = tensor_name(spec, l);
                    // ... but that of a fused tensor in some files is that of a part in others.
                    if (spec.use != Use::fused) {
                        EXPECT_TRUE(tensors.insert(text).second) << text;
                    }
                    EXPECT_EQ(text.find("{}"), std::string::npos);
                    if (spec.is_layer()) {
                        EXPECT_EQ(text.find("blk." + std::to_string(l) + "."), 0U) << text;
                    }
                }
            }
    }
}

/// The audit takes a part from the fused tensor that it has matched, so this must come first.
TEST(Architectures, AFusedTensorStandsAheadOfItsPartsAndHoldsThemAll) {
    const Hparams h = plausible();
    std::set<Role> seen;
    for (const std::string_view name : architecture_names()) {
        std::map<Role, std::int64_t> rows_left;  // of the fused tensors seen so far
        for (const auto fragment : find_architecture(name)->fragments)
            for (const TensorSpec& spec : fragment) {
                SCOPED_TRACE(testing::Message() << name << " " << spec.gguf);
                const auto axis = [&](bool is_vector) {  // the one that is cut
                    std::size_t rank = 0;
                    while (rank < 3 && spec.shape[rank] != Dim::none) ++rank;
                    return size_of(spec.shape[is_vector ? rank - 1 : rank - 2], h);
                };
                const bool is_vector = std::string_view{spec.gguf}.ends_with(".bias");
                if (spec.use == Use::fused) {
                    rows_left[spec.role] = axis(is_vector);
                    seen.insert(spec.role);
                }
                const auto rows = fused_rows(spec.role, h);
                if (!rows || !rows_left.contains(rows->fused)) continue;
                std::int64_t& left = rows_left.at(rows->fused);
                EXPECT_EQ(rows->first, rows->total - left) << "in the order of the table";
                left -= axis(is_vector);
            }
        for (const auto& [role, left] : rows_left) EXPECT_EQ(left, 0) << name << " role " << static_cast<int>(role);
    }
    EXPECT_EQ(seen.size(), 5U) << "fused tensors of some architecture";
    EXPECT_FALSE(fused_rows(Role::attn_output, h));
}

TEST(Architectures, TensorNamesCarryTheWholeLayerNumber) {
    const TensorSpec spec{Role::attn_q, "blk.{}.attn_q.weight", "", {}, Use::matmul, Shard::col, When::always};
    EXPECT_EQ(tensor_name(spec, 0), "blk.0.attn_q.weight");
    EXPECT_EQ(tensor_name(spec, 77), "blk.77.attn_q.weight");
    EXPECT_EQ(shape_text(std::vector<std::int64_t>{4096, 1024}), "[4096, 1024]");
}

TEST(Architectures, NeedsFollowTheLayer) {
    Hparams h = plausible();
    h.layers[1].is_moe = true;
    h.layers[1].index_role = ASSAY_INDEX_FULL;
    h.layers[2].index_role = ASSAY_INDEX_SHARED;
    EXPECT_EQ(need_of(When::always, h, 0), Need::required);
    EXPECT_EQ(need_of(When::dense_layer, h, 0), Need::required);
    EXPECT_EQ(need_of(When::dense_layer, h, 1), Need::unexpected);
    EXPECT_EQ(need_of(When::moe_layer, h, 0), Need::unexpected);
    EXPECT_EQ(need_of(When::moe_layer, h, 1), Need::required);
    EXPECT_EQ(need_of(When::shared_expert_layer, h, 1), Need::required);
    EXPECT_EQ(need_of(When::index_full_layer, h, 1), Need::required);
    EXPECT_EQ(need_of(When::index_full_layer, h, 2), Need::optional);
    EXPECT_EQ(need_of(When::always, h, 3), Need::optional) << "the NextN block";
    EXPECT_EQ(need_of(When::nextn_optional, h, 3), Need::optional);
    EXPECT_EQ(need_of(When::nextn_optional, h, 2), Need::unexpected);
    h.num_shared_experts = 0;
    EXPECT_EQ(need_of(When::shared_expert_layer, h, 1), Need::unexpected);
    EXPECT_EQ(need_of(When::split_kv_b, h, 0), Need::required);
    EXPECT_EQ(need_of(When::merged_kv_b, h, 0), Need::optional) << "some files have both";
    h.has_split_kv_b = false;
    EXPECT_EQ(need_of(When::split_kv_b, h, 0), Need::unexpected);
    EXPECT_EQ(need_of(When::merged_kv_b, h, 0), Need::required);
    EXPECT_EQ(need_of(When::biased_router_layer, h, 0), Need::unexpected) << "a dense layer";
    EXPECT_EQ(need_of(When::biased_router_layer, h, 1), Need::required);
    h.has_router_bias = false;
    EXPECT_EQ(need_of(When::biased_router_layer, h, 1), Need::unexpected);
    h.q_lora_rank = 0;
    EXPECT_EQ(need_of(When::with_q_lora, h, 0), Need::unexpected);
    EXPECT_EQ(need_of(When::without_q_lora, h, 0), Need::required);
}

/// Tensors of files that people have, without NextN blocks (architectures.md, appendix D).
TEST(Architectures, CountTheTensorsOfPublishedModels) {
    struct Model {
        const char* name;
        const char* arch;
        std::int64_t layers, dense, q_lora, shared_experts;
        bool is_split, has_bias;
        std::int64_t index_layers, tensors;
    };
    const Model models[] = {
        {"DeepSeek-V3", "deepseek2", 61, 3, 1536, 1, true, true, 0, 1086},
        {"DeepSeek-V3, attn_kv_b", "deepseek2", 61, 3, 1536, 1, false, true, 0, 1025},
        {"Kimi-K2", "deepseek2", 61, 1, 1536, 1, true, true, 0, 1096},
        {"DeepSeek-V2-Lite", "deepseek2", 27, 1, 0, 2, true, false, 0, 404},
        {"DeepSeek-V2-Lite, attn_kv_b", "deepseek2", 27, 1, 0, 2, false, false, 0, 377},
        {"GLM-4.7-Flash", "deepseek2", 47, 1, 768, 1, true, true, 0, 844},
        {"GLM-5", "glm-dsa", 78, 3, 2048, 1, true, true, 78, 1782},
        {"GLM-5.2", "glm-dsa", 78, 3, 2048, 1, true, true, 21, 1497},
    };
    for (const Model& m : models) {
        SCOPED_TRACE(m.name);
        Hparams h = plausible();
        h.num_layers = m.layers;
        h.num_nextn_layers = 0;
        h.q_lora_rank = m.q_lora;
        h.num_shared_experts = m.shared_experts;
        h.has_split_kv_b = m.is_split;
        h.has_router_bias = m.has_bias;
        h.layers.assign(static_cast<std::size_t>(m.layers), {});
        for (std::size_t l = 0; l < h.layers.size(); ++l) {
            h.layers[l].is_moe = l >= static_cast<std::size_t>(m.dense);
            h.layers[l].index_role = l < static_cast<std::size_t>(m.index_layers) ? ASSAY_INDEX_FULL : ASSAY_INDEX_SHARED;
        }
        std::int64_t count = 0;
        for (const auto fragment : find_architecture(m.arch)->fragments)
            for (const TensorSpec& spec : fragment) {
                if (spec.use == Use::fused) continue;
                if (!spec.is_layer()) ++count;  // these models are not tied
                for (std::int64_t l = 0; spec.is_layer() && l < m.layers; ++l)
                    count += need_of(spec.when, h, l) == Need::required ? 1 : 0;
            }
        EXPECT_EQ(count, m.tensors);
    }
}

// ---- needs --------------------------------------------------------------------------------------

const plugin::QuantNeed* find_need(const std::vector<plugin::QuantNeed>& needs, const std::string& label) {
    for (const auto& need : needs)
        if (need.label.find(label) != std::string::npos) return &need;
    return nullptr;
}

TEST(QuantNeeds, EachFormOfProductIsAskedForOnce) {
    const auto opened = llama().write();
    const AuditReport report = audit(*opened->file);
    ASSERT_TRUE(report.passed()) << report.to_text();
    const auto needs = quant_needs(*opened->file, report, 32);
    // Two layers that are alike: rows; head; q; k and v; attn_output; gate and up; ffn_down.
    ASSERT_EQ(needs.size(), 7U);
    const auto* q = find_need(needs, "blk.0.attn_q.weight f32, matmul");
    ASSERT_NE(q, nullptr);
    EXPECT_EQ(q->query.m, 32);
    EXPECT_EQ(q->query.n, 16);
    EXPECT_EQ(q->query.k, 16);
    EXPECT_EQ(q->query.experts, 1);
    EXPECT_EQ(q->format, "f32");
    EXPECT_NE(find_need(needs, "token_embd.weight f32, row gather"), nullptr);
    EXPECT_EQ(find_need(needs, "blk.1."), nullptr);
    EXPECT_EQ(find_need(needs, "norm"), nullptr) << "f32 vectors are copied";
    const auto* down = find_need(needs, "blk.0.ffn_down.weight");
    ASSERT_NE(down, nullptr);
    EXPECT_NE(down->query.flags & ASSAY_MM_ACCUMULATE, 0U) << "added to the residual stream";
    EXPECT_EQ(q->query.flags & ASSAY_MM_ACCUMULATE, 0U);
}

TEST(QuantNeeds, SayWhereThereIsABias) {
    auto m = llama();
    m.tensors["blk.1.attn_q.bias"] = {16};
    const auto opened = m.write();
    const auto needs = quant_needs(*opened->file, audit(*opened->file), 32);
    EXPECT_EQ(needs.size(), 8U);
    const auto* biased = find_need(needs, "blk.1.attn_q.weight");
    ASSERT_NE(biased, nullptr);
    EXPECT_TRUE(biased->query.bias);
    EXPECT_FALSE(find_need(needs, "blk.0.attn_q.weight")->query.bias);
}

TEST(QuantNeeds, ATiedEmbeddingIsGatheredAndMultiplied) {
    auto m = llama();
    m.tensors.erase("output.weight");
    const auto opened = m.write();
    const AuditReport report = audit(*opened->file);
    ASSERT_TRUE(report.passed()) << report.to_text();
    EXPECT_EQ(report.map.whole[static_cast<std::size_t>(Role::output)], -1);
    const auto needs = quant_needs(*opened->file, report, 32);
    EXPECT_NE(find_need(needs, "token_embd.weight f32, row gather"), nullptr);
    EXPECT_NE(find_need(needs, "token_embd.weight f32, matmul"), nullptr);
}

TEST(QuantNeeds, RoutersAndIndexersAreMultipliedPrecisely) {
    const auto opened = glm_dsa().write();
    const AuditReport report = audit(*opened->file);
    ASSERT_TRUE(report.passed()) << report.to_text();
    const auto needs = quant_needs(*opened->file, report, 32);
    for (const char* tensor : {"ffn_gate_inp", "indexer.attn_q_b", "indexer.attn_k.", "indexer.proj"}) {
        const auto* need = find_need(needs, tensor);
        ASSERT_NE(need, nullptr) << tensor;
        EXPECT_NE(need->query.flags & ASSAY_MM_PRECISE, 0U) << tensor;
        EXPECT_NE(need->label.find(", precise"), std::string::npos) << need->label;
    }
    EXPECT_EQ(find_need(needs, "attn_q_a.weight")->query.flags & ASSAY_MM_PRECISE, 0U);
    const auto* experts = find_need(needs, "blk.1.ffn_gate_exps.weight f32, grouped matmul");
    ASSERT_NE(experts, nullptr);
    EXPECT_EQ(experts->query.m, 64) << "each token goes to two experts";
    EXPECT_EQ(experts->query.experts, 4);
    const auto* heads = find_need(needs, "attn_k_b.weight f32, per-head matmul");
    ASSERT_NE(heads, nullptr);
    EXPECT_EQ(heads->query.experts, 2);
    EXPECT_EQ(heads->query.n, 8);
    EXPECT_EQ(heads->query.k, 4);
    EXPECT_EQ(find_need(needs, "blk.3."), nullptr) << "the NextN block is not run";
}

TEST(QuantNeeds, AMergedUpProjectionIsReadAndMultipliedInHalves) {
    auto m = deepseek2();
    make_legacy(m);
    const auto opened = m.write();
    const AuditReport report = audit(*opened->file);
    ASSERT_TRUE(report.passed()) << report.to_text();
    const auto needs = quant_needs(*opened->file, report, 32);
    const auto of_kv_b = [&](std::int32_t op, std::int64_t n, std::int64_t k, std::int64_t heads) {
        return std::count_if(needs.begin(), needs.end(), [&](const auto& need) {
            return need.label.find("attn_kv_b") != std::string::npos && need.query.op == op && need.query.n == n &&
                   need.query.k == k && need.query.experts == heads;
        });
    };
    EXPECT_EQ(of_kv_b(ASSAY_Q_ROWS, 18, 8, 1), 1);
    EXPECT_EQ(of_kv_b(ASSAY_Q_BATCHED, 8, 4, 2), 1) << "keys, transposed";
    EXPECT_EQ(of_kv_b(ASSAY_Q_BATCHED, 5, 8, 2), 1) << "values";

    m.tensors["blk.0.attn_k_b.weight"] = m.tensors["blk.1.attn_k_b.weight"] = m.tensors["blk.2.attn_k_b.weight"] = {4, 8, 2};
    m.tensors["blk.0.attn_v_b.weight"] = m.tensors["blk.1.attn_v_b.weight"] = m.tensors["blk.2.attn_v_b.weight"] = {8, 5, 2};
    const auto both = m.write();
    const auto of_both = quant_needs(*both->file, audit(*both->file), 32);
    EXPECT_NE(find_need(of_both, "attn_k_b.weight f32, row gather"), nullptr) << "compared";
    EXPECT_NE(find_need(of_both, "attn_v_b.weight f32, row gather"), nullptr);
    EXPECT_NE(find_need(of_both, "attn_k_b.weight f32, per-head matmul"), nullptr);
    for (const auto& need : of_both)
        if (need.label.find("attn_kv_b") != std::string::npos) {
            EXPECT_EQ(need.query.op, ASSAY_Q_ROWS) << need.label;
        }
}

TEST(AttentionNeeds, GroupLayersThatAreAlike) {
    const auto opened = glm_dsa().write();
    const auto needs = attention_needs(audit(*opened->file).hparams);
    ASSERT_EQ(needs.size(), 2U);
    EXPECT_EQ(needs[0].label, "layers 0-1");
    EXPECT_EQ(needs[0].layer.index_role, ASSAY_INDEX_FULL);
    EXPECT_EQ(needs[0].layer.attn_class, ASSAY_ATTN_MLA_DSA);
    EXPECT_EQ(needs[0].layer.kv_lora_rank, 8);
    EXPECT_EQ(needs[1].label, "layer 2");
    EXPECT_EQ(needs[1].layer.index_role, ASSAY_INDEX_SHARED);

    Hparams h = plausible();
    h.layers.resize(6);
    h.layers[1].window = h.layers[4].window = 128;
    const auto windows = attention_needs(h);
    ASSERT_EQ(windows.size(), 2U);
    EXPECT_EQ(windows[0].label, "layers 0, 2-3, 5");
    EXPECT_EQ(windows[1].label, "layers 1, 4");
}

}  // namespace
}  // namespace model
