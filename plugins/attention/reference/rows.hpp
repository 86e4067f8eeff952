#pragma once

// The definition of attention/1, row by row over paged f32 caches. A row is one query head of one
// token. Scores, softmax and sums are in f64; nothing is approximated, tiled or reordered by batch.

#include "../common/batch.hpp"

#include <cstdint>

namespace attention::reference {

/// Memory of one worker, carved from the workspace.
struct Scratch {
    double* query;          // [key_dim or index heads * index_head_dim]
    double* sum;            // [value_dim]
    double* score;          // [max_kv_len]
    std::int32_t* slots;    // [max_kv_len]
    std::int32_t* scratch;  // [max_kv_len]
};

/// One query head of the token in an absolute row. False when topk_slots is not a valid selection.
[[nodiscard]] bool attend_row(const Layer& layer, const Cache& cache, const assay_attn_args& a,
                              std::int64_t row, std::int64_t head, const Scratch& scratch) noexcept;

/// Scores every cached key for the token of a row and writes the slots of the best, ascending by
/// position, -1 after them.
void index_row(const Layer& layer, const Cache& cache, const assay_attn_index_args& a,
               std::int64_t row, const Scratch& scratch) noexcept;

}  // namespace attention::reference
