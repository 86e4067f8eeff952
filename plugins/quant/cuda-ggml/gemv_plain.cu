// Products with x as it is: plain weights, formats without integer kernels, and ASSAY_MM_PRECISE. Weights
// are decoded to f32 in registers, sums are f32.

#include "plugins/quant/cuda-ggml/decode.cuh"
#include "plugins/quant/cuda-ggml/gemv.cuh"

#include <cuda_bf16.h>

namespace cuda_ggml {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

/// Eight neighbours of a row. `is_aligned`: rows can be read by 16-byte loads.
struct AnyFormat {
    __device__ static void load(const WeightView& w, const RowBase& row, std::int32_t k0, std::int32_t k, bool, float* out) {
        decode_columns(w, row, k0, k, out);
    }
};
template <FormatId kId>
struct Plain {
    __device__ static void load(const WeightView& w, const RowBase& row, std::int32_t k0, std::int32_t k, bool is_aligned,
                                float* out) {
        if (!is_aligned || k0 + 8 > k) {
            decode_columns<kId, 1, 0>(w, row, k0, k, out);
        } else if constexpr (kId == FormatId::f32) {
            const uint4 a = load16(row.at[0] + 4 * k0), b = load16(row.at[0] + 4 * k0 + 16);
            const unsigned words[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
            for (int j = 0; j < 8; ++j) out[j] = __uint_as_float(words[j]);
        } else {
            const uint4 v = load16(row.at[0] + 2 * k0);
            const unsigned words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                if constexpr (kId == FormatId::bf16) {
                    out[2 * j] = __uint_as_float(words[j] << 16);
                    out[2 * j + 1] = __uint_as_float(words[j] & 0xffff0000u);
                } else {
                    const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&words[j]));
                    out[2 * j] = pair.x;
                    out[2 * j + 1] = pair.y;
                }
            }
        }
    }
};

__device__ void load_x(const float* x, std::int64_t k0, std::int64_t k, bool is_aligned, float* out) {
    if (is_aligned && k0 + 8 <= k) {
        const float4 a = *reinterpret_cast<const float4*>(x + k0), b = *reinterpret_cast<const float4*>(x + k0 + 4);
        out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w;
        out[4] = b.x, out[5] = b.y, out[6] = b.z, out[7] = b.w;
    } else {
#pragma unroll
        for (int j = 0; j < 8; ++j) out[j] = k0 + j < k ? x[k0 + j] : 0.0f;
    }
}

/// @tparam kX  slots of a tile
template <class Weight, int kX>
__global__ void __launch_bounds__(kThreads, 2) plain_gemv_kernel(const __grid_constant__ GemvArgs a) {
    const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
    const std::int32_t first_pair = static_cast<std::int32_t>(blockIdx.x) * kWarps + thread / 32;
    prefetch_first(a, first_pair, lane);
    cuda::wait_for_inputs();
    cuda::let_next_start();
    const Segment segment = segment_of(a);
    if (segment.count <= 0) return;

    const float* x[kX];
    unsigned bad_slots = 0;
    bool x_is_aligned = true;
#pragma unroll
    for (int t = 0; t < kX; ++t) {
        const std::int32_t row = x_row_of(a, segment.first + min(t, segment.count - 1));
        if (row < 0) bad_slots |= 1u << t;
        x[t] = x_of(a, max(row, 0), segment.expert);
        x_is_aligned = x_is_aligned && reinterpret_cast<std::uintptr_t>(x[t]) % 16 == 0;
    }
    const bool is_glu = a.glu.kind != ASSAY_GLU_NONE;
    const bool w_is_aligned = a.out[0].w.row_bytes[0] % 16 == 0;
    const std::int32_t pairs = num_pairs(a);
    for (std::int32_t pair = first_pair; pair < pairs; pair += static_cast<std::int32_t>(gridDim.x) * kWarps) {
        const RowPair rows = pair_of(a, pair);
        const GemvOutput &out0 = a.out[rows.i], &out1 = a.out[is_glu ? 1 : rows.i];
        const RowBase row0{out0.w, static_cast<std::int64_t>(segment.expert) * out0.rows + rows.row[0]};
        const RowBase row1{out1.w, static_cast<std::int64_t>(segment.expert) * out1.rows +
                                       (rows.row[1] >= 0 ? rows.row[1] : rows.row[0])};
        float sum[kX][2] = {};
#pragma unroll 2
        for (std::int32_t k0 = 8 * lane; k0 < a.k; k0 += 256) {
            float w0[8], w1[8];
            Weight::load(out0.w, row0, k0, a.k, w_is_aligned, w0);
            Weight::load(out1.w, row1, k0, a.k, w_is_aligned, w1);
#pragma unroll
            for (int t = 0; t < kX; ++t) {
                float v[8];
                load_x(x[t], k0, a.k, x_is_aligned, v);
#pragma unroll
                for (int j = 0; j < 8; ++j) {
                    sum[t][0] = fmaf(w0[j], v[j], sum[t][0]);
                    sum[t][1] = fmaf(w1[j], v[j], sum[t][1]);
                }
            }
        }
        float mine[2] = {0, 0};
#pragma unroll
        for (int t = 0; t < kX; ++t) {
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                const float all = cuda::warp_reduce(sum[t][r], cuda::Sum{});
                if (lane == t) mine[r] = all;
            }
        }
        if (lane >= segment.count) continue;
        if ((bad_slots >> lane & 1u) != 0) mine[0] = mine[1] = __uint_as_float(0x7fffffffu);
        write_pair(a, rows, segment, segment.first + lane, mine[0], mine[1]);
    }
}

template <class Weight, int kX>
cudaError_t launch_tile(GemvArgs& a, const assay_stream* s) {
    a.tile = kX;
    const dim3 grid = gemv_grid(a, s->device->num_units, kWarps, 4);
    return cuda::launch(plain_gemv_kernel<Weight, kX>, grid, dim3(kThreads), 0, s, true, a);
}

template <class Weight>
cudaError_t launch_weight(GemvArgs& a, std::int32_t max_rows, const assay_stream* s) {
    if (max_rows <= 1) return launch_tile<Weight, 1>(a, s);
    return launch_tile<Weight, 4>(a, s);
}

}  // namespace

cudaError_t launch_plain(GemvArgs a, std::int32_t max_rows_per_tile, const assay_stream* s) {
    switch (a.out[0].w.id) {
        case FormatId::f32:
            return launch_weight<Plain<FormatId::f32>>(a, max_rows_per_tile, s);
        case FormatId::f16:
            return launch_weight<Plain<FormatId::f16>>(a, max_rows_per_tile, s);
        case FormatId::bf16:
            if (max_rows_per_tile > 4) return launch_tile<Plain<FormatId::bf16>, 8>(a, s);
            return launch_weight<Plain<FormatId::bf16>>(a, max_rows_per_tile, s);
        default:
            return launch_weight<AnyFormat>(a, max_rows_per_tile, s);
    }
}

}  // namespace cuda_ggml
