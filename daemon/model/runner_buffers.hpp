#pragma once

// The device memory of a Runner. Private to its .cpp files.

#include <cstdint>
#include <vector>

#include "daemon/model/runner.hpp"

namespace model {

/// All of it is allocated once; sizes are those of RunnerLimits. Shapes use T max_tokens, S
/// T * num_experts_per_tok, n max_logit_rows.
struct Runner::Buffers {
    // step inputs: one pinned staging area and its device twin, same offsets (in int32)
    plugin::Buffer staging, inputs;
    struct Offsets {
        std::size_t tokens, positions, slots, cu_q, kv_len, logit_rows, block_table, total;
    } at{};

    // residual stream and block scratch
    plugin::Buffer x, u, block;  // [T, hidden]

    // attention
    plugin::Buffer q, k, v, o;                // GQA: [T, heads, dim]
    plugin::Buffer qr, q_absorbed, latent, z; // MLA: [T, q_lora], [T, H, L + R], [T, L + R], [T, H, L]
    plugin::Buffer index_q, index_k, index_w, topk;  // [T, HI, dI], [T, dI], [T, HI], [T, topk] i32
    std::vector<plugin::Buffer> inv_freq, cos_sin;   // per RopeParams: f64 [n/2], f32 [T, 2, n/2]

    // feed-forward
    plugin::Buffer ffn_h, ffn_gate, ffn_up;  // [T or S, widest]
    plugin::Buffer router_logits, expert_ids, expert_weights;  // [T, E], [T, k] i32, [T, k]
    plugin::Buffer slot_of, row_ids, expert_offset;            // i32: [S], [S], [E + 1]
    plugin::Buffer expert_y;                                   // [S, hidden]

    // head
    plugin::Buffer head_x, logits;  // [n, hidden], [n, vocab]

    // plugins' scratch
    plugin::Buffer quant_workspace, attention_workspace, plan_a, plan_b;

    std::uint64_t total_bytes = 0;

    /// Device address of an input array.
    [[nodiscard]] std::int32_t* input(std::size_t offset) const {
        return inputs.as<std::int32_t>() + offset;
    }
    [[nodiscard]] std::int32_t* host_input(std::size_t offset) const {
        return staging.as<std::int32_t>() + offset;
    }
};

}  // namespace model
