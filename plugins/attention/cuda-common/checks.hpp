#pragma once

// Argument checks of calls whose arrays lie in device memory: shapes, dtypes, and what the host's
// copies of the lengths say. The contents of device memory cannot be looked at.

#include "instance.hpp"

namespace attention::gpu {

/// The sums over a batch that launches depend on.
struct BatchShape {
    std::int32_t first_row = 0, num_tokens = 0;
    bool has_few = false;          // sequences of 1 to kFewTokens queries
    std::int64_t many_tiles = 0;   // row tiles of the others
};

/// Throws INVALID when lengths contradict each other, or what sizes() was told.
[[nodiscard]] BatchShape check_batch(const Instance& in, const assay_attn_batch* batch);

/// Row tiles of the sequences with more than kFewTokens queries.
[[nodiscard]] std::int64_t many_tiles(const assay_attn_batch& batch, const Geometry& g);

/// Throws INVALID unless `t` is a present [>= rows, tail...] tensor of `dtype` with innermost
/// stride 1.
void check_tensor(const char* name, const assay_tensor& t, std::int32_t dtype, std::int64_t rows,
                  std::initializer_list<std::int64_t> tail);
void check_plane(const char* name, const void* plane);
void check_run(const Instance& in, const Layer& layer, const assay_attn_args& a,
               std::int64_t rows);

}  // namespace attention::gpu
