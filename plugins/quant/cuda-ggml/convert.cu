#include "plugins/quant/cuda-ggml/convert.hpp"

#include "plugins/cuda/glu.cuh"
#include "plugins/cuda/launch.cuh"
#include "plugins/quant/cuda-ggml/decode.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace cuda_ggml {
namespace {

constexpr int kThreads = 256;

template <Half kType>
__device__ std::uint16_t narrow(float v) {
    if constexpr (kType == Half::f16) return __half_as_ushort(__float2half_rn(v));
    return __bfloat16_as_ushort(__float2bfloat16_rn(v));
}
template <Half kType>
__device__ float widen(std::uint16_t v) {
    if constexpr (kType == Half::f16) return __half2float(__ushort_as_half(v));
    return __bfloat162float(__ushort_as_bfloat16(v));
}

template <Half kType>
__device__ uint4 pack8(const float (&v)[8]) {
    unsigned w[4];
#pragma unroll
    for (int j = 0; j < 4; ++j)
        w[j] = narrow<kType>(v[2 * j]) | static_cast<unsigned>(narrow<kType>(v[2 * j + 1])) << 16;
    return make_uint4(w[0], w[1], w[2], w[3]);
}

// ---- x -------------------------------------------------------------------------------------------

__device__ void load8(const float* x, std::int32_t k0, std::int32_t k, float (&v)[8]) {
    if (reinterpret_cast<std::uintptr_t>(x) % 16 == 0 && k0 + 8 <= k) {
        const float4 a = *reinterpret_cast<const float4*>(x + k0), b = *reinterpret_cast<const float4*>(x + k0 + 4);
        v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
    } else {
#pragma unroll
        for (int j = 0; j < 8; ++j) v[j] = k0 + j < k ? x[k0 + j] : 0.0f;
    }
}

__device__ const float* row_of(const ConvertX& c, std::int64_t row) {
    return c.x + row / c.heads * c.x_stride + row % c.heads * c.x_head;
}

/// The largest finite magnitude into the header, which is zero before.
__global__ void __launch_bounds__(kThreads) peak_kernel(const __grid_constant__ ConvertX c) {
    __shared__ unsigned scratch[32];
    cuda::wait_for_inputs();
    cuda::let_next_start();
    unsigned peak = 0;
    const std::int64_t num_rows = static_cast<std::int64_t>(c.rows) * c.heads;
    for (std::int64_t row = blockIdx.x; row < num_rows; row += gridDim.x) {
        const float* x = row_of(c, row);
        for (std::int32_t k0 = 8 * static_cast<std::int32_t>(threadIdx.x); k0 < c.k; k0 += 8 * kThreads) {
            float v[8];
            load8(x, k0, c.k, v);
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                const unsigned bits = __float_as_uint(v[j]) & 0x7fffffffu;
                if (bits < 0x7f800000u) peak = max(peak, bits);
            }
        }
    }
    peak = cuda::block_reduce(peak, scratch, cuda::Max{});
    if (threadIdx.x == 0) atomicMax(&c.header->peak_bits, peak);
}

template <Half kType>
__global__ void __launch_bounds__(kThreads) convert_x_kernel(const __grid_constant__ ConvertX c) {
    cuda::wait_for_inputs();
    cuda::let_next_start();
    float scale = 1.0f, low_scale = 1.0f;
    if constexpr (kType == Half::f16) {
        // The exponent of the peak becomes 14: values up to 2^15, half the range.
        const int exponent = static_cast<int>(c.header->peak_bits >> 23);
        const int shift = min(max(127 + 14 - exponent, -100), 100);
        if (c.header->peak_bits != 0) scale = __uint_as_float(static_cast<unsigned>(127 + shift) << 23);
        low_scale = 2048.0f;
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        c.header->alpha = 1.0f / scale;
        c.header->alpha_low = 1.0f / scale / low_scale;
        c.header->zero = 0.0f;
        c.header->one = 1.0f;
    }
    const std::int64_t num_rows = static_cast<std::int64_t>(c.rows) * c.heads, plane = num_rows * c.padded_k;
    for (std::int64_t row = blockIdx.x; row < num_rows; row += gridDim.x) {
        const float* x = row_of(c, row);
        for (std::int32_t k0 = 8 * static_cast<std::int32_t>(threadIdx.x); k0 < c.padded_k; k0 += 8 * kThreads) {
            float v[8], low[8];
            load8(x, k0, c.k, v);
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                v[j] *= scale;
                low[j] = (v[j] - widen<kType>(narrow<kType>(v[j]))) * low_scale;
                // Beyond the type's range the first plane is infinite already; the second must not make it NaN.
                if (!isfinite(low[j])) low[j] = 0.0f;
            }
            *reinterpret_cast<uint4*>(c.out + row * c.padded_k + k0) = pack8<kType>(v);
            if (c.planes == 2) *reinterpret_cast<uint4*>(c.out + plane + row * c.padded_k + k0) = pack8<kType>(low);
        }
    }
}

// ---- weights -------------------------------------------------------------------------------------

/// Formats that prefill is measured with are compiled for themselves, the others share a kernel.
template <FormatId kId>
struct Columns {
    static constexpr int kBlockCols = kId == FormatId::q8_0 ? 32 : 256;
    static constexpr int kBlockBytes = kId == FormatId::q4_k ? 144 : kId == FormatId::q5_k ? 176 : kId == FormatId::q6_k ? 210 : 34;
    __device__ static void decode(const WeightView& w, const RowBase& row, std::int32_t k0, std::int32_t k, float* out) {
        decode_columns<kId, kBlockCols, kBlockBytes>(w, row, k0, k, out);
    }
};
template <>
struct Columns<FormatId::count> {
    __device__ static void decode(const WeightView& w, const RowBase& row, std::int32_t k0, std::int32_t k, float* out) {
        decode_columns(w, row, k0, k, out);
    }
};

template <Half kType, FormatId kId>
__global__ void __launch_bounds__(kThreads)
    dequantize_kernel(WeightView w, std::int64_t first, std::int32_t k, std::int32_t padded_k, std::uint16_t* out) {
    // Reads weights only, but the scratch it writes may still be read by the product before.
    cuda::wait_for_inputs();
    cuda::let_next_start();
    const std::int64_t row = blockIdx.y;
    const std::int32_t k0 = 8 * static_cast<std::int32_t>(blockIdx.x * kThreads + threadIdx.x);
    if (k0 >= padded_k) return;
    const RowBase base{w, first + row};
    float v[8];
    Columns<kId>::decode(w, base, k0, k, v);
    *reinterpret_cast<uint4*>(out + row * padded_k + k0) = pack8<kType>(v);
}

template <class T>
__device__ void put(float v, T& to);
template <>
__device__ void put(float v, float& to) {
    to = v;
}
template <>
__device__ void put(float v, __half& to) {
    to = __float2half_rn(v);
}
template <>
__device__ void put(float v, __nv_bfloat16& to) {
    to = __float2bfloat16_rn(v);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    rows_kernel(WeightView w, std::int64_t num_rows, const std::int32_t* ids, T* out, std::int64_t stride, std::int32_t k) {
    cuda::wait_for_inputs();
    cuda::let_next_start();
    const std::int64_t i = blockIdx.x;
    const std::int32_t id = ids[i];
    const bool exists = id >= 0 && id < num_rows;
    const RowBase base{w, exists ? id : 0};
    T* to = out + i * stride;
    for (std::int32_t k0 = 8 * static_cast<std::int32_t>(threadIdx.x); k0 < k; k0 += 8 * kThreads) {
        float v[8];
        if (exists) decode_columns(w, base, k0, k, v);
#pragma unroll
        for (int j = 0; j < 8; ++j)
            if (k0 + j < k) put(exists ? v[j] : __uint_as_float(0x7fffffffu), to[k0 + j]);
    }
}

/// A thread a two-byte piece of a field: every field of planar formats is even.
__global__ void __launch_bounds__(kThreads)
    repack_kernel(const std::uint8_t* blocks, std::int64_t num_blocks, std::uint8_t* plane, Field field, std::uint32_t block_bytes) {
    cuda::wait_for_inputs();
    const std::int64_t pieces = field.bytes / 2, total = num_blocks * pieces;
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < total; i += step)
        reinterpret_cast<std::uint16_t*>(plane)[i] = *reinterpret_cast<const std::uint16_t*>(
            blocks + i / pieces * block_bytes + field.offset + i % pieces * 2);
}

// ---- epilogue ------------------------------------------------------------------------------------

__global__ void __launch_bounds__(kThreads) epilogue_kernel(const __grid_constant__ Epilogue e) {
    cuda::wait_for_inputs();
    cuda::let_next_start();
    const std::int32_t i = static_cast<std::int32_t>(blockIdx.x * kThreads + threadIdx.x);
    if (i >= e.n) return;
    for (std::int32_t row = static_cast<std::int32_t>(blockIdx.y); row < e.rows; row += static_cast<std::int32_t>(gridDim.y)) {
        std::int32_t expert = 0;
        if (e.offset != nullptr) {
            if (row < e.offset[0] || row >= e.offset[e.num_experts]) continue;  // a slot of no expert
            while (e.offset[expert + 1] <= row) ++expert;
        }
        const auto with_bias = [&](const float* v, const float* bias) {
            const float x = v[static_cast<std::int64_t>(row) * e.n + i];
            return bias != nullptr ? x + bias[expert * e.bias_stride + i] : x;
        };
        const float v = cuda::Glu{e.glu, e.alpha, e.limit}(with_bias(e.g, e.bias_g), with_bias(e.u, e.bias_u));
        float& to = e.y[row * e.y_stride + i];
        to = e.accumulate ? to + v : v;
    }
}

__global__ void __launch_bounds__(kThreads)
    add_bias_kernel(float* y, std::int64_t y_stride, const float* bias, std::int32_t rows, std::int32_t n) {
    cuda::wait_for_inputs();
    cuda::let_next_start();
    const std::int32_t i = static_cast<std::int32_t>(blockIdx.x * kThreads + threadIdx.x);
    if (i >= n) return;
    for (std::int32_t row = static_cast<std::int32_t>(blockIdx.y); row < rows; row += static_cast<std::int32_t>(gridDim.y))
        y[row * y_stride + i] += bias[i];
}

}  // namespace

cudaError_t launch_convert_x(const ConvertX& c, const assay_stream* s) {
    const std::int64_t rows = static_cast<std::int64_t>(c.rows) * c.heads;
    const auto blocks = static_cast<unsigned>(rows < 4096 ? rows : 4096);
    if (c.type == Half::bf16)
        return cuda::launch(convert_x_kernel<Half::bf16>, dim3(blocks), dim3(kThreads), 0, s, true, c);
    if (const cudaError_t error = cuda::enter(s); error != cudaSuccess) return error;
    cudaError_t error = cudaMemsetAsync(c.header, 0, sizeof(GemmHeader), static_cast<cudaStream_t>(s->native));
    if (error != cudaSuccess) return error;
    error = cuda::launch(peak_kernel, dim3(blocks < 512 ? blocks : 512), dim3(kThreads), 0, s, true, c);
    if (error != cudaSuccess) return error;
    return cuda::launch(convert_x_kernel<Half::f16>, dim3(blocks), dim3(kThreads), 0, s, true, c);
}

namespace {

auto dequantize_kernel_of(FormatId id, Half type) {
    if (type == Half::bf16) return dequantize_kernel<Half::bf16, FormatId::count>;
    switch (id) {
        case FormatId::q4_k:
            return dequantize_kernel<Half::f16, FormatId::q4_k>;
        case FormatId::q5_k:
            return dequantize_kernel<Half::f16, FormatId::q5_k>;
        case FormatId::q6_k:
            return dequantize_kernel<Half::f16, FormatId::q6_k>;
        case FormatId::q8_0:
            return dequantize_kernel<Half::f16, FormatId::q8_0>;
        default:
            return dequantize_kernel<Half::f16, FormatId::count>;
    }
}

}  // namespace

cudaError_t launch_dequantize(const WeightView& w, std::int64_t first, std::int64_t count, std::int32_t k,
                              std::int32_t padded_k, Half type, std::uint16_t* out, const assay_stream* s) {
    const auto columns = cuda::blocks_for(padded_k, 8 * kThreads);
    // Grids are 65,535 high at most.
    for (std::int64_t at = 0; at < count; at += 65535) {
        const std::int64_t here = count - at < 65535 ? count - at : 65535;
        const dim3 grid(columns, static_cast<unsigned>(here));
        std::uint16_t* to = out + at * padded_k;
        const cudaError_t error = cuda::launch(dequantize_kernel_of(w.id, type), grid, dim3(kThreads), 0, s, true, w,
                                               first + at, k, padded_k, to);
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

cudaError_t launch_rows(const WeightView& w, std::int64_t num_rows, const std::int32_t* ids, std::int64_t num_ids,
                        const assay_tensor& out, const assay_stream* s) {
    const dim3 grid(static_cast<unsigned>(num_ids));
    const auto k = static_cast<std::int32_t>(out.shape[1]);
    switch (out.dtype) {
        case ASSAY_F16:
            return cuda::launch(rows_kernel<__half>, grid, dim3(kThreads), 0, s, true, w, num_rows, ids,
                                static_cast<__half*>(out.data), out.stride[0], k);
        case ASSAY_BF16:
            return cuda::launch(rows_kernel<__nv_bfloat16>, grid, dim3(kThreads), 0, s, true, w, num_rows, ids,
                                static_cast<__nv_bfloat16*>(out.data), out.stride[0], k);
        default:
            return cuda::launch(rows_kernel<float>, grid, dim3(kThreads), 0, s, true, w, num_rows, ids,
                                static_cast<float*>(out.data), out.stride[0], k);
    }
}

cudaError_t launch_repack(const std::uint8_t* blocks, std::int64_t num_blocks, const WeightView& planar,
                          std::uint32_t block_bytes, const assay_stream* s) {
    const Fields fields = fields_of(planar.id);
    for (int f = 0; f < fields.count; ++f) {
        const cudaError_t error =
            cuda::launch(repack_kernel, dim3(4096), dim3(kThreads), 0, s, true, blocks, num_blocks,
                         const_cast<std::uint8_t*>(planar.plane[f]), fields.field[f], block_bytes);
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

cudaError_t launch_add_bias(float* y, std::int64_t y_stride, const float* bias, std::int32_t rows, std::int32_t n,
                            const assay_stream* s) {
    const dim3 grid(cuda::blocks_for(n, kThreads), static_cast<unsigned>(rows < 65535 ? rows : 65535));
    return cuda::launch(add_bias_kernel, grid, dim3(kThreads), 0, s, true, y, y_stride, bias, rows, n);
}

cudaError_t launch_epilogue(const Epilogue& e, const assay_stream* s) {
    const dim3 grid(cuda::blocks_for(e.n, kThreads), static_cast<unsigned>(e.rows < 65535 ? e.rows : 65535));
    return cuda::launch(epilogue_kernel, grid, dim3(kThreads), 0, s, true, e);
}

}  // namespace cuda_ggml
