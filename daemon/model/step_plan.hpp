#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace model {

/// One pass over one ragged batch, as plain data: what every rank needs to know and nothing that
/// belongs to one rank. Decode sequences come first, then prefill chunks.
///
/// Vectors are cleared and refilled each step, never shrunk: after reserve() no step allocates.
struct StepPlan {
    std::uint64_t step = 0;
    std::int32_t num_decode_seqs = 0;
    std::vector<std::int32_t> tokens;       ///< [T]
    std::vector<std::int32_t> positions;    ///< [T], from 0
    std::vector<std::int32_t> slots;        ///< [T]: block * block_size + offset
    std::vector<std::int32_t> cu_q;         ///< [S + 1]: rows of sequence i are [cu_q[i], cu_q[i+1])
    std::vector<std::int32_t> kv_len;       ///< [S]: tokens in cache after this step
    std::int32_t max_blocks = 0;            ///< row length of block_table
    std::vector<std::int32_t> block_table;  ///< [S, max_blocks]; -1 = unused
    std::vector<std::int32_t> logit_rows;   ///< rows of T whose logits are wanted, ascending

    [[nodiscard]] std::int32_t num_tokens() const { return static_cast<std::int32_t>(tokens.size()); }
    [[nodiscard]] std::int32_t num_seqs() const { return static_cast<std::int32_t>(kv_len.size()); }

    /// For the largest step there will be.
    void reserve(std::int32_t max_tokens, std::int32_t max_seqs, std::int32_t max_blocks_per_seq,
                 std::int32_t max_logit_rows) {
        for (auto* v : {&tokens, &positions, &slots}) v->reserve(static_cast<std::size_t>(max_tokens));
        cu_q.reserve(static_cast<std::size_t>(max_seqs) + 1);
        kv_len.reserve(static_cast<std::size_t>(max_seqs));
        block_table.reserve(static_cast<std::size_t>(max_seqs) * static_cast<std::size_t>(max_blocks_per_seq));
        logit_rows.reserve(static_cast<std::size_t>(max_logit_rows));
    }

    void clear() {
        num_decode_seqs = 0;
        max_blocks = 0;
        for (auto* v : {&tokens, &positions, &slots, &cu_q, &kv_len, &block_table, &logit_rows}) v->clear();
        cu_q.push_back(0);
    }
};

}  // namespace model
