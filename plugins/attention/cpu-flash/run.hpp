#pragma once

// How a call of run() and index() is cut into items for the lanes, and what one item does.

#include "../common/batch.hpp"
#include "kernels.hpp"

#include <cstdint>
#include <vector>

namespace attention::flash {

/// What sizes() fixed: the memory of each part of the workspace.
struct Limits {
    std::int64_t max_seqs = 0, max_tokens = 0, max_kv_len = 0;
};

struct Instance {
    const Kernels* kernels = nullptr;
    Cache cache{};
    std::vector<Layer> layers;
    std::int64_t max_workers = 1;
    Limits limits;

    // The largest of each size over the layers.
    std::int64_t key_pad = 0, value_pad = 0, max_rows = 0, topk = 0, index_heads = 0, index_pad = 0;
};

/// Query rows (tokens x heads) of an item at most: so many that their queries and sums, 256 KiB,
/// stay in L2 beside a tile while the keys pass by. The heads of a group are kept together, so that
/// a larger group makes a larger item.
[[nodiscard]] inline std::int64_t block_rows(const Layer& layer) noexcept {
    constexpr std::int64_t kFloats = 64 * 1024;
    const std::int64_t rows = kFloats / (padded(layer.key_dim) + padded(layer.value_dim));
    const std::int64_t bounded = rows < 16 ? 16 : rows > 256 ? 256 : rows;
    return bounded > layer.group ? bounded : layer.group;
}

/// Query rows of several key heads in one item.
constexpr std::int64_t kTogetherRows = 64;

/// Fills the derived sizes of an instance whose layers are set.
void prepare_sizes(Instance& in);

[[nodiscard]] std::int64_t workspace_bytes(const Instance& in);

/// The ABI's run and index. Throw sdk::Error; allocate nothing otherwise.
void run(const Instance& in, const Layer& layer, const assay_attn_args& a,
         const assay_stream& stream);
void index(const Instance& in, const Layer& layer, const assay_attn_index_args& a,
           const assay_stream& stream);

}  // namespace attention::flash
