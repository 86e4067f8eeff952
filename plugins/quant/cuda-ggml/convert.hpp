#pragma once

// Weights and x as the matrix products of many rows want them: 16-bit floats, rows padded to a multiple of 8.

#include "plugins/cuda/status.hpp"
#include "plugins/quant/cuda-ggml/weight_view.hpp"

#include <cstdint>

namespace cuda_ggml {

/// What conversions leave for the product, in device memory.
struct GemmHeader {
    unsigned peak_bits;         // largest finite |x|
    float alpha, alpha_low;     // of the product with each plane of x
    float zero, one;            // the betas
};

enum class Half { f16, bf16 };

/// x [rows, k] (batched: [rows, heads, k]) to one or two planes [rows * heads, padded_k]. f16 is scaled by
/// a power of two so that the largest value is near the top of its range; the second plane holds what
/// rounding left, 2^11 times larger in f16.
struct ConvertX {
    const float* x;
    std::int64_t x_stride, x_head;
    std::int32_t rows, heads, k, padded_k, planes;
    Half type;
    GemmHeader* header;
    std::uint16_t* out;
};
cudaError_t launch_convert_x(const ConvertX& c, const assay_stream* s);

/// Rows [first, first + count) of a weight (over all experts) to [count, padded_k].
cudaError_t launch_dequantize(const WeightView& w, std::int64_t first, std::int64_t count, std::int32_t k,
                              std::int32_t padded_k, Half type, std::uint16_t* out, const assay_stream* s);

/// out[i, :] = row ids[i] of the num_rows rows of w; NaN where there is none. dtype f32, f16 or bf16.
cudaError_t launch_rows(const WeightView& w, std::int64_t num_rows, const std::int32_t* ids, std::int64_t num_ids,
                        const assay_tensor& out, const assay_stream* s);

/// Blocks to planes.
cudaError_t launch_repack(const std::uint8_t* blocks, std::int64_t num_blocks, const WeightView& planar,
                          std::uint32_t block_bytes, const assay_stream* s);

/// y = act(g + bias, u + bias), and y + that where `accumulate`. Rows of g and u are dense [rows, n]. `offset`: bias rows are those of the slot's expert.
struct Epilogue {
    const float *g, *u;
    const float *bias_g, *bias_u;
    std::int64_t bias_stride;
    const std::int32_t* offset;
    std::int32_t num_experts;
    std::int32_t glu;
    float alpha, limit;
    bool accumulate;
    float* y;
    std::int64_t y_stride;
    std::int32_t rows, n;
};
cudaError_t launch_epilogue(const Epilogue& e, const assay_stream* s);

/// y [rows, n] += bias [n].
cudaError_t launch_add_bias(float* y, std::int64_t y_stride, const float* bias, std::int32_t rows, std::int32_t n,
                            const assay_stream* s);

}  // namespace cuda_ggml
