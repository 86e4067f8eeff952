#pragma once

// Reading a batch: sequences, the slots a query sees, and the writes and reads of pages. On the CPU
// all arrays of a call are host memory, so what the host promised is checked before it is used.

#include "layer.hpp"

#include <atomic>
#include <cstdint>
#include <initializer_list>

namespace attention {

/// One sequence of a batch.
struct Sequence {
    std::int64_t first_row, q_len, kv_len;
    const std::int32_t* blocks;  // page ids, [max_blocks]

    /// The position of the query in an absolute row.
    [[nodiscard]] std::int64_t position(std::int64_t row) const noexcept {
        return kv_len - q_len + (row - first_row);
    }
    [[nodiscard]] std::int64_t slot(std::int64_t pos, std::int64_t page_tokens) const noexcept {
        return std::int64_t{blocks[pos / page_tokens]} * page_tokens + pos % page_tokens;
    }
};

[[nodiscard]] inline Sequence sequence(const assay_attn_batch& batch, std::int64_t i) noexcept {
    const std::int32_t first = batch.cu_q[i];
    return {first, batch.cu_q[i + 1] - first, batch.kv_len[i],
            batch.block_table + i * batch.max_blocks};
}

/// The sequence that owns an absolute row. Rows outside the batch are the caller's mistake.
[[nodiscard]] std::int64_t sequence_of_row(const assay_attn_batch& batch,
                                           std::int64_t row) noexcept;

[[nodiscard]] inline std::int64_t first_row(const assay_attn_batch& b) noexcept {
    return b.cu_q[0];
}
[[nodiscard]] inline std::int64_t end_row(const assay_attn_batch& b) noexcept {
    return b.cu_q[b.num_seqs];
}

/// Throws INVALID when lengths contradict each other or a needed page id is missing.
void check_batch(const assay_attn_batch* batch, std::int64_t page_tokens);

/// Throws INVALID unless `t` is a present [>= rows, tail...] tensor of `dtype` with innermost
/// stride 1.
void check_tensor(const char* name, const assay_tensor& t, std::int32_t dtype, std::int64_t rows,
                  std::initializer_list<std::int64_t> tail);

/// Checks batch, q, out, lse, sinks and topk_slots of a run() for this layer.
void check_run(const Layer& layer, const Cache& cache, const assay_attn_args& a);
void check_index(const Layer& layer, const Cache& cache, const assay_attn_index_args& a);

/// The slots of one row of topk_slots in ascending order of position, so that a set of slots always
/// gives the same sums.
/// @param row      [topk], -1 = padding
/// @param out      [topk] receives the slots
/// @param scratch  [topk]
/// @return how many; -1 when a slot is not one of the sequence's tokens up to `pos`, or stands
/// twice
[[nodiscard]] std::int64_t selected_slots(const std::int32_t* row, std::int64_t topk,
                                          const Sequence& seq, std::int64_t pos,
                                          std::int64_t page_tokens, std::int32_t* out,
                                          std::int32_t* scratch) noexcept;

/// The INVALID of a row for which selected_slots() gave -1.
[[noreturn]] void fail_selection(std::int64_t row);

/// Row conversions between f32 and the cache's dtype; an image may bring faster ones. Narrowing
/// rounds to nearest, ties to even.
struct RowCopy {
    void (*narrow)(std::int32_t dtype, const float* in, std::int64_t n, void* out);
    void (*widen)(std::int32_t dtype, const void* in, std::int64_t n, float* out);
};
extern const RowCopy kPlainRowCopy;

/// The ABI's append and kv_read over the page format of layer.hpp. Throw sdk::Error.
void append(const Layer& layer, const Cache& cache, const RowCopy& copy, const assay_attn_args& a,
            const assay_stream& stream);
void kv_read(const Layer& layer, const Cache& cache, const RowCopy& copy, std::uint32_t plane,
             void* const* planes, const std::int32_t* slots, std::int64_t num_slots,
             const assay_tensor& out, const assay_stream& stream);

/// Calls body(item, worker) once for each item in [0, n), with worker < max_workers, so that
/// scratch is sized by workers that the workspace has room for and not by lanes. `body` must not
/// throw.
template <class Body>
void for_each_item(const assay_lanes* lanes, std::int64_t n, std::int64_t max_workers,
                   Body&& body) {
    std::int64_t workers = lanes != nullptr ? std::int64_t{lanes->width} : 1;
    if (workers > max_workers) workers = max_workers;
    if (workers > n) workers = n;
    if (workers <= 1) {
        for (std::int64_t i = 0; i < n; ++i) body(i, std::int64_t{0});
        return;
    }
    std::atomic<std::int64_t> next{0};
    sdk::parallel_for(lanes, workers, [&](std::uint32_t worker, std::uint32_t) {
        for (std::int64_t i = next.fetch_add(1); i < n; i = next.fetch_add(1))
            body(i, std::int64_t{worker});
    });
}

}  // namespace attention
