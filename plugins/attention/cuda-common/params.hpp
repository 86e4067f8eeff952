#pragma once

// Plain structs handed to kernels. Shapes in brackets: T token rows of the step, Hq query heads,
// Hkv key heads, Dv value dims. Rows of queries are numbered per key head: row r of a sequence is
// query token r / group under head r % group of the key head's group.

#include <cstddef>
#include <cstdint>

#include <vector_types.h>

namespace attention::gpu {

/// [rows, heads, dim] of f32, f16 or bf16; innermost stride 1, strides in elements.
struct View {
    void* data = nullptr;
    std::int32_t dtype = 0;
    std::int64_t row_stride = 0, head_stride = 0;
};

/// Division of positions below 2^24 by page sizes up to 256: one multiplication.
struct PageDivider {
    std::uint32_t page_tokens = 1, factor = 0;  // factor = ceil(2^32 / page_tokens); 0: page of one
};

struct BatchParams {
    const std::int32_t* cu_q;         // [num_seqs + 1]
    const std::int32_t* kv_len;       // [num_seqs]
    const std::int32_t* block_table;  // [num_seqs, max_blocks]
    std::int32_t num_seqs, max_blocks;
    PageDivider page;
};

/// Sequences of up to kFewTokens queries have their keys split among blocks; longer ones have
/// enough rows to fill the device.
constexpr std::int32_t kFewTokens = 8;
constexpr std::int32_t kSplitStep = 64;  // splits begin at multiples of it

/// What the schedule of a layer depends on; layers that agree share a section of the plan.
struct Geometry {
    std::int32_t group, num_kv_heads;
    std::int32_t window;
    std::int32_t topk;                  // keys of a selection; 0: dense
    std::int32_t few_rows, many_rows;   // rows of one block of threads, for both kinds of sequence
    std::int32_t max_splits;            // of a sequence with one query
    std::int32_t wanted_items;          // splits are made until the batch has so many; 0: the number
                                        // of splits depends on the sequence alone
    bool operator==(const Geometry&) const = default;
};

/// A section of the plan.
struct Schedule {
    std::int32_t* few_begin;   // [max_seqs + 1] first item of each sequence, in (split, row tile)
    std::int32_t* many_begin;  // [max_seqs + 1] in row tiles
    std::int32_t* num_splits;  // [max_seqs]
    std::int32_t* split_len;   // [max_seqs] keys, a multiple of kSplitStep
};

[[nodiscard]] constexpr std::int64_t section_entries(std::int64_t max_seqs) noexcept {
    return 4 * (max_seqs + 1);
}
[[nodiscard]] inline Schedule section(void* plan, std::int64_t max_seqs, std::size_t geometry) noexcept {
    const std::int64_t n = max_seqs + 1;
    auto* at = static_cast<std::int32_t*>(plan) +
               static_cast<std::int64_t>(geometry) * section_entries(max_seqs);
    return {at, at + n, at + 2 * n, at + 3 * n};
}

struct AttendParams {
    BatchParams batch;
    Schedule schedule;
    Geometry shape;
    std::int32_t num_q_heads, key_dim, value_dim;
    float scale, softcap;
    View q, out;
    float* lse;  // or null
    std::int64_t lse_stride;
    const float* sinks;             // [Hq] or null
    const void *keys, *values;      // pages; MLA: the same
    std::int64_t key_row, value_row;  // elements per token
    const std::int32_t* topk_slots;   // [T, topk] or null
    std::int64_t topk_stride;
    float* partial_sum;    // [max_seqs, max_splits, Hq, Dv], of one sequence [split, token, Hq, Dv]
    float2* partial_state;  // the same without Dv: (largest score * log2 e, sum of weights)
};

}  // namespace attention::gpu
