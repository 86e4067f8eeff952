#pragma once

// Plain structs between the driver (matmul.cpp) and the kernels of a tier. The driver knows the
// ABI's operations, the work split and the workspace; a tier knows arithmetic on one tile.

#include "plugins/quant/ggml/format.hpp"

#include <cstdint>

namespace ggml {

/// A tile is kTileRows weight rows (fewer at the end of a weight) by up to kTileTokens rows of x.
inline constexpr int kTileRows = 32;
inline constexpr int kTileTokens = 16;

/// Integer kernels work on groups of 32 or 16 elements with one scale, in runs of 256 elements.
inline constexpr int kRunCols = 256;

/// Rows of 8-bit activations that stand for one row of x: the rounded one, and what rounding left.
inline constexpr int kMaxPlanes = 2;

/// Scales and sums of the quantized activations of one run, by groups of 32 elements.
struct alignas(32) Groups32 {
    float scale[8];              // x ~= scale * q
    float sum[8];                // scale * sum(q): what a weight's min is multiplied by
    std::int32_t neg128_sum[8];  // -128 * sum(q): what a weight's offset of 128 adds up to
};

/// The same by groups of 16, in the order in which the vector kernels leave group sums in their
/// lanes: group g of a run is at lane16(g).
struct alignas(32) Groups16 {
    float scale[16];
    float sum[16];
    std::int32_t neg128_sum[16];
};

[[nodiscard]] static inline constexpr int lane16(int g) noexcept {
    return (g & 3) | (g & 4) << 1 | (g & 8) >> 1;
}

/// Where half `half` (sixteen elements) of group g of 32 lies in the 256 bytes of a run of x: the
/// order in which weights are unpacked, see simd/unpack.hpp.
[[nodiscard]] static inline constexpr int offset_in_run(int g, int half) noexcept {
    return 64 * (g % 4) + 32 * half + 16 * (g / 4);
}

/// Activations of one call, quantized to 8 bits per group of 32.
/// scale = max|x| / 127, q = x * (127 / max|x|) to nearest even; a group with a NaN or infinite
/// element has scale NaN, so that its products are NaN too.
///
/// A record a run: 256 bytes of q in the order of offset_in_run(), zero beyond k, then Groups32 and
/// Groups16 where a weight of the call has groups of that size.
struct QuantizedX {
    std::int64_t num_runs;    // ceil(k / 256)
    std::int64_t run_bytes;   // of a record
    std::int64_t at32, at16;  // offsets of the groups in it; 0 where there are none
    int num_planes;           // rows of it for each row of x: 1, or kMaxPlanes
    std::uint8_t* data;       // [rows, num_planes, num_runs, run_bytes], 64-byte aligned

    /// Inlined always, as the tiers must not share code (README.md).
    [[nodiscard, gnu::always_inline]] inline std::int64_t row_bytes() const noexcept {
        return num_runs * run_bytes;
    }
};

struct QuantizeArgs {
    const float* x;  // [k]
    std::int64_t k;  // multiple of 32
    std::int64_t row;
    const QuantizedX* out;
};

/// Weight rows turned into the form that tile_panel reads.
struct PackArgs {
    const Format* format;
    const std::uint8_t* rows;  // [num_rows, row_bytes], the stored form
    std::int64_t row_bytes, k;
    int num_rows;  // 1..kTileRows
    void* panel;   // [panel_bytes], 64-byte aligned
};

/// out[t, r] = x[t] . w[r]
struct TileArgs {
    const std::uint8_t* rows;  // [num_rows, row_bytes]; for tile_direct
    const void* panel;         // for tile_panel
    std::int64_t row_bytes, k;
    int num_rows, num_tokens;
    const float* x[kTileTokens];        // [num_tokens] rows of [k]
    std::int64_t x_index[kTileTokens];  // [num_tokens] rows of quantized, planes counted
    const QuantizedX* quantized;        // null for kernels that read x as f32
    void* out;                          // [num_tokens, kTileRows], of the tier's sum type
};

/// What happens to the products on their way to y.
struct EpilogueArgs {
    const void* product[2];  // [num_tokens, kTileRows]; the second one for glu only
    const float* bias[2];    // [num_rows], or null
    int num_rows, num_tokens;
    std::int32_t glu;  // assay_glu
    float glu_alpha, glu_limit;
    bool accumulate;
    float* y[kTileTokens];  // [num_tokens] rows of [num_rows]
};

/// How one tier multiplies by one format.
struct WeightKernel {
    /// 0: reads x as f32. 16, 32: reads QuantizedX, with groups of this many elements.
    int group;
    /// True when the kernel was written for the format; false when it goes by decoded f32 rows.
    bool is_tuned;
    /// Up to this many tokens tile_direct is used, beyond it pack and tile_panel. Both give the
    /// same bits for a row. 0: tile_direct is null. kDirectAlways: pack and tile_panel are null.
    std::int64_t max_direct_tokens;
    std::int64_t (*panel_bytes)(std::int64_t k);
    void (*pack)(const PackArgs& args);
    void (*tile_direct)(const TileArgs& args);
    void (*tile_panel)(const TileArgs& args);
};
inline constexpr std::int64_t kDirectAlways = INT64_MAX;

/// One arithmetic with one instruction set.
struct Tier {
    const char* name;
    std::int64_t sum_bytes;  // of one element of TileArgs::out
    /// Null when the tier quantizes no activations.
    void (*quantize_x)(const QuantizeArgs& args);
    void (*epilogue)(const EpilogueArgs& args);
    /// The kernel for a format; with `precise`, one that reads x as f32. Never null.
    const WeightKernel* (*kernel)(const Format& format, bool precise);
};

}  // namespace ggml
