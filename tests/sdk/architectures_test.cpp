// What each architecture asks of the ABI, as a table that compiles against it: a field or a call
// that disappears breaks the build, and an architecture that needs something the table has no words
// for shows as a gap here before it shows in a daemon.

#include "cxx/plugin.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <dlfcn.h>
#include <iterator>
#include <string_view>
#include <type_traits>
#include <vector>

namespace {

enum class Need {
    embedding,
    embedding_scale,
    rms_norm,
    layer_norm,
    residual,
    post_norm,
    qk_norm,
    linear,
    qkv_bias,
    output_bias,
    fused_qkv,
    fused_gate_up,
    rope_norm,
    rope_neox,
    rope_partial,
    rope_factors,
    rope_magnitude,
    rope_two_bases,
    swiglu,
    geglu_tanh,
    clamped_swiglu,
    router_softmax,
    router_sigmoid,
    router_chosen_softmax,
    selection_bias,
    expert_groups,
    normalized_weights,
    routed_scale,
    grouped_experts,
    expert_bias,
    shared_expert,
    router_precise,
    gqa,
    sliding_window,
    sinks,
    mla,
    per_head_product,
    indexer,
    shared_indexer,
    index_precise,
    final_softcap,
    head,
};

enum class Table { device_ops, quant, attention, quant_field, attention_field, router_field };

// Where the ABI answers a need. For calls, `offset` is that of the function pointer.
struct Answer {
    Need need;
    Table table;
    std::size_t offset;
    std::string_view how;
};

#define OP(name) Table::device_ops, offsetof(assay_ops, name)
#define QUANT(name) Table::quant, offsetof(assay_quant, name)
#define ATTENTION(name) Table::attention, offsetof(assay_attention, name)
#define MATMUL_FIELD(name) Table::quant_field, offsetof(assay_matmul, name)
#define LAYER_FIELD(name) Table::attention_field, offsetof(assay_attn_layer, name)
#define ARGS_FIELD(name) Table::attention_field, offsetof(assay_attn_args, name)
#define ROUTER_FIELD(name) Table::router_field, offsetof(assay_router, name)

constexpr Answer kAnswers[] = {
    {Need::embedding, QUANT(rows), "rows of the embedding matrix, dequantized"},
    {Need::embedding_scale, OP(scale), "sqrt(hidden_size)"},
    {Need::rms_norm, OP(rmsnorm), "weight [n]"},
    {Need::layer_norm, OP(layernorm), "weight and bias; the indexer's key"},
    {Need::residual, OP(rmsnorm), "residual += x before the norm"},
    {Need::post_norm, OP(add), "the norm of a block's output is added afterwards"},
    {Need::qk_norm, OP(rmsnorm), "x [T, heads, head_dim]: the norm is over the last dimension"},
    {Need::linear, QUANT(matmul), "any format"},
    {Need::qkv_bias, MATMUL_FIELD(bias), "one per fused product"},
    {Need::output_bias, MATMUL_FIELD(bias), "added on one rank only"},
    {Need::fused_qkv, MATMUL_FIELD(w), "products that share x"},
    {Need::fused_gate_up, MATMUL_FIELD(glu), "w[0] gate, w[1] up, y[0] written"},
    {Need::rope_norm, OP(rope), "ASSAY_ROPE_NORM"},
    {Need::rope_neox, OP(rope), "ASSAY_ROPE_NEOX"},
    {Need::rope_partial, OP(rope), "2 * half_dims below head_dim; later dims pass through"},
    {Need::rope_factors, OP(rope_table), "inv_freq: factors, linear and YaRN are in it"},
    {Need::rope_magnitude, OP(rope_table), "mscale"},
    {Need::rope_two_bases, OP(rope_table), "one table per configuration and step"},
    {Need::swiglu, OP(glu), "ASSAY_GLU_SILU"},
    {Need::geglu_tanh, OP(glu), "ASSAY_GLU_GELU_TANH"},
    {Need::clamped_swiglu, OP(glu), "ASSAY_GLU_SILU_CLAMP, alpha and limit"},
    {Need::router_softmax, ROUTER_FIELD(gating), "1"},
    {Need::router_sigmoid, ROUTER_FIELD(gating), "2"},
    {Need::router_chosen_softmax, ROUTER_FIELD(gating), "3"},
    {Need::selection_bias, OP(router), "bias [E]"},
    {Need::expert_groups, ROUTER_FIELD(num_groups), "and top_groups"},
    {Need::normalized_weights, ROUTER_FIELD(normalize), "before the scale"},
    {Need::routed_scale, ROUTER_FIELD(scale), "last"},
    {Need::grouped_experts, QUANT(grouped_matmul), "between expert_sort and expert_combine"},
    {Need::expert_bias, MATMUL_FIELD(bias), "grouped: [E, N]"},
    {Need::shared_expert, OP(expert_combine), "accumulate onto the shared expert's output"},
    {Need::router_precise, MATMUL_FIELD(flags), "ASSAY_MM_PRECISE"},
    {Need::gqa, ATTENTION(run), "ASSAY_ATTN_GQA"},
    {Need::sliding_window, LAYER_FIELD(window), "per layer"},
    {Need::sinks, ARGS_FIELD(sinks), "[Hq]; has_sinks in the layer"},
    {Need::mla, LAYER_FIELD(kv_lora_rank), "ASSAY_ATTN_MLA, absorbed"},
    {Need::per_head_product, QUANT(batched_matmul), "k_b and v_b, one per head"},
    {Need::indexer, ATTENTION(index), "ASSAY_ATTN_MLA_DSA, index_role full"},
    {Need::shared_indexer, LAYER_FIELD(index_role), "ASSAY_INDEX_SHARED reads topk_slots"},
    {Need::index_precise, MATMUL_FIELD(flags), "ASSAY_MM_PRECISE for the head weights"},
    {Need::final_softcap, OP(softcap), "final_logit_softcapping"},
    {Need::head, QUANT(matmul), "output, or the embedding matrix when tied"},
};

using enum Need;

struct Architecture {
    std::string_view name;
    std::vector<Need> needs;
};

const Architecture kArchitectures[] = {
    {"llama",
     {embedding, rms_norm, residual, linear, fused_qkv, rope_norm, rope_factors, swiglu,
      fused_gate_up, gqa, head, router_softmax, normalized_weights, grouped_experts,
      router_precise}},
    {"qwen2",
     {embedding, rms_norm, residual, linear, fused_qkv, qkv_bias, rope_neox, rope_factors,
      rope_magnitude, swiglu, fused_gate_up, gqa, head}},
    {"qwen3",
     {embedding, rms_norm, residual, linear, fused_qkv, qk_norm, rope_neox, rope_factors,
      rope_magnitude, swiglu, fused_gate_up, gqa, head}},
    {"qwen3moe",
     {embedding, rms_norm, residual, linear, fused_qkv, qk_norm, rope_neox, swiglu, router_softmax,
      normalized_weights, grouped_experts, router_precise, gqa, head}},
    {"glm4",
     {embedding, rms_norm, residual, post_norm, linear, qkv_bias, rope_norm, rope_partial, swiglu,
      fused_gate_up, gqa, head}},
    {"glm4moe",
     {embedding, rms_norm, residual, linear, qkv_bias, qk_norm, rope_neox, rope_partial, swiglu,
      router_sigmoid, selection_bias, normalized_weights, routed_scale, grouped_experts,
      shared_expert, router_precise, gqa, head}},
    {"deepseek2", {embedding,          rms_norm,
                   residual,           linear,
                   rope_norm,          rope_factors,
                   rope_magnitude,     swiglu,
                   router_softmax,     router_sigmoid,
                   selection_bias,     expert_groups,
                   normalized_weights, routed_scale,
                   grouped_experts,    shared_expert,
                   router_precise,     mla,
                   per_head_product,   head}},
    {"deepseek32", {embedding,
                    rms_norm,
                    layer_norm,
                    residual,
                    linear,
                    rope_norm,
                    rope_neox,
                    rope_partial,
                    rope_factors,
                    rope_magnitude,
                    swiglu,
                    router_sigmoid,
                    selection_bias,
                    expert_groups,
                    normalized_weights,
                    routed_scale,
                    grouped_experts,
                    shared_expert,
                    router_precise,
                    mla,
                    per_head_product,
                    indexer,
                    index_precise,
                    head}},
    {"glm-dsa",
     {embedding,
      rms_norm,
      layer_norm,
      residual,
      linear,
      rope_norm,
      rope_partial,
      swiglu,
      router_sigmoid,
      selection_bias,
      normalized_weights,
      routed_scale,
      grouped_experts,
      shared_expert,
      router_precise,
      mla,
      per_head_product,
      indexer,
      shared_indexer,
      index_precise,
      head}},
    {"gpt-oss",
     {embedding, rms_norm, residual, linear, fused_qkv, qkv_bias, output_bias, rope_neox,
      rope_factors, rope_magnitude, clamped_swiglu, router_chosen_softmax, grouped_experts,
      expert_bias, router_precise, gqa, sliding_window, sinks, head}},
    {"gemma3",
     {embedding, embedding_scale, rms_norm, residual, post_norm, qk_norm, linear, rope_neox,
      rope_factors, rope_two_bases, geglu_tanh, gqa, sliding_window, final_softcap, head}},
};

const Answer* answer_to(Need need) {
    const auto* found = std::ranges::find(kAnswers, need, &Answer::need);
    return found != std::end(kAnswers) ? found : nullptr;
}

// The enumerators the answers speak of, and the types that a host relies on.
static_assert(ASSAY_ROPE_NORM != ASSAY_ROPE_NEOX && ASSAY_INDEX_SHARED != ASSAY_INDEX_FULL);
static_assert(ASSAY_GLU_SILU != ASSAY_GLU_GELU_TANH && ASSAY_GLU_SILU != ASSAY_GLU_SILU_CLAMP);
static_assert(ASSAY_ATTN_GQA != ASSAY_ATTN_MLA && ASSAY_ATTN_MLA != ASSAY_ATTN_MLA_DSA);
static_assert(ASSAY_MM_PRECISE != 0);
static_assert(std::is_same_v<decltype(assay_router::scale), float>);
static_assert(std::is_same_v<decltype(assay_attn_layer::window), std::int32_t>);
static_assert(std::extent_v<decltype(assay_matmul::w)> >= 3, "q, k and v of one x");
static_assert(std::extent_v<decltype(assay_attn_args::planes)> >= 2, "latent and index_k");

TEST(Architectures, EachNeedHasOneAnswer) {
    for (const Architecture& a : kArchitectures) {
        EXPECT_FALSE(a.needs.empty());
        for (const Need need : a.needs)
            EXPECT_NE(answer_to(need), nullptr) << a.name << " need " << static_cast<int>(need);
        EXPECT_NE(std::ranges::find(a.needs, head), a.needs.end()) << a.name;
    }
    for (const Answer& answer : kAnswers)
        EXPECT_EQ(answer_to(answer.need), &answer) << "answered twice: " << answer.how;
}

TEST(Architectures, NoAnswerIsWithoutANeed) {
    for (const Answer& answer : kAnswers) {
        const bool is_used = std::ranges::any_of(kArchitectures, [&](const Architecture& a) {
            return std::ranges::find(a.needs, answer.need) != a.needs.end();
        });
        EXPECT_TRUE(is_used) << answer.how;
    }
}

// The same offsets, read in the table of the image that is the reference for its kind.
TEST(Architectures, TheCpuDeviceHasEveryOpThatIsNeeded) {
    void* image = dlopen(ASSAY_BUILD_DIR "/plugins/device/cpu.so", RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(image, nullptr) << dlerror();
    const auto* module = static_cast<const assay_module*>(dlsym(image, "assay_module_entry"));
    ASSERT_NE(module, nullptr);
    const auto* device = static_cast<const assay_device*>(module->query(ASSAY_KIND_DEVICE));
    ASSERT_NE(device, nullptr);
    int num_ops = 0;
    for (const Answer& answer : kAnswers) {
        if (answer.table != Table::device_ops) continue;
        void (*call)() = nullptr;
        std::memcpy(&call, reinterpret_cast<const char*>(device->ops) + answer.offset, sizeof call);
        EXPECT_NE(call, nullptr) << answer.how;
        ++num_ops;
    }
    EXPECT_GE(num_ops, 15);
}

}  // namespace
