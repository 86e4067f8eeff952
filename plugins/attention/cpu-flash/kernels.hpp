#pragma once

// The vector code of cpu-flash: what one tile of keys does to a block of query rows. One table per
// instruction set; all of them perform the same operations on the same operands in the same order
// (fused multiply-adds included), so that every tier gives the same bits.

#include <cstdint>

namespace attention::flash {

constexpr std::int64_t kVector = 16;  // floats; rows of queries, sums and tiles are padded to it
constexpr std::int64_t kTile = 64;    // keys of one step of the online softmax
/// Keys of one split. Splits begin at multiples of it whatever the batch, and are merged in order:
/// that, and the tiles, fix the order of every sum.
constexpr std::int64_t kSplit = 512;

[[nodiscard]] constexpr std::int64_t padded(std::int64_t n) noexcept {
    return (n + kVector - 1) / kVector * kVector;
}

/// Softmax state of a block of rows: sum[r] = sum over keys seen of exp(score - max[r]) * value.
struct State {
    float* max;    // [rows]; -inf: no key seen
    float* total;  // [rows] sum of the weights; 0: no key seen
    float* sum;    // [rows, value_pad]
};

/// Rows of pages to be fetched into L2 while a tile is worked on: some of those that the next tile
/// reads. Pages lie anywhere, so the processor cannot guess them.
struct Prefetch {
    const char* const* key = nullptr;    // [keys]
    const char* const* value = nullptr;  // [keys], or null
    std::int64_t keys = 0, key_bytes = 0, value_bytes = 0;
};

struct Tile {
    std::int64_t rows, key_pad, value_pad;
    const float* query;         // [rows, key_pad], zeros after key_dim
    const float* const* key;    // [kTile]; valid from the first to the last visible key, rounded
                                // outwards to multiples of 4; key_pad entries each
    const float* const* value;  // [kTile], value_pad entries each; read for visible keys only
    const std::int32_t* begin;  // [rows] the row sees keys [begin, end) of the tile
    const std::int32_t* end;
    float scale, softcap;
    float* score;    // [rows, kTile] scratch
    float* rescale;  // [rows] scratch
    State state;
    Prefetch next;
};

/// The last step of a row: sink, division, log-sum-exp.
struct Finish {
    std::int64_t value_dim;
    const float* sink;  // or null
    float max, total;
    const float* sum;
    float* out;  // [value_dim]
    float* lse;  // or null
};

/// score[k] = sum_h weight[h] * max(0, query[h] . key[k]), heads in order.
struct IndexTile {
    std::int64_t heads, key_pad, keys;  // keys <= kTile
    const float* query;                 // [heads, key_pad]
    const float* weight;                // [heads]
    const float* const* key;            // [keys rounded up to 4]
    float* match;                       // [heads, kTile] scratch
    float* score;                       // [kTile]
};

struct Kernels {
    const char* tier;
    void (*attend)(const Tile& tile);
    /// state := state joined by `later`, whose keys come after those of `state`.
    void (*merge)(std::int64_t rows, std::int64_t value_pad, const State& state,
                  const State& later);
    void (*finish)(const Finish& row);
    void (*index)(const IndexTile& tile);
    void (*narrow)(std::int32_t dtype, const float* in, std::int64_t n, void* out);
    void (*widen)(std::int32_t dtype, const void* in, std::int64_t n, float* out);
};

extern const Kernels kScalarKernels;
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;

}  // namespace attention::flash
