#pragma once

// x as the integer kernels read it: 8 bits, one f32 scale a group of 32, and the sums of each half of a
// group (for formats with a min or an offset). The same arithmetic as the CPU plugin's.

#include "plugins/cuda/launch.cuh"

#include <cstdint>

namespace cuda_ggml {

constexpr int kGroup = 32;

struct GroupMeta {
    float scale;          // NaN: the group held a NaN or an infinity
    std::int16_t sum[2];  // of its halves
};

/// A quantized row: [k] i8, then [k / 32] GroupMeta.
__host__ __device__ constexpr std::int64_t quantized_bytes(std::int64_t k) {
    return (k + k / kGroup * static_cast<std::int64_t>(sizeof(GroupMeta)) + 15) / 16 * 16;
}
__device__ inline const GroupMeta* meta_of(const std::uint8_t* row, int k) {
    return reinterpret_cast<const GroupMeta*>(row + k);
}

/// a / b, correctly rounded, for quotients and divisors that are normal numbers: without the branches of the
/// general division.
__device__ inline float divide_normal(float a, float b) {
    float r;
    asm("rcp.approx.f32 %0, %1;" : "=f"(r) : "f"(b));
    r = fmaf(fmaf(-b, r, 1.0f), r, r);
    const float q = a * r;
    return fmaf(fmaf(-b, q, a), r, q);
}

/// Four elements of a group that eight lanes hold together. @return what the rounding left
__device__ inline float4 quantize_group(float4 v, std::uint8_t* row, int k, int group, int sub, bool is_active) {
    const auto magnitude = [](float x) { return __float_as_uint(x) & 0x7fffffffu; };
    unsigned peak_bits = max(max(magnitude(v.x), magnitude(v.y)), max(magnitude(v.z), magnitude(v.w)));
#pragma unroll
    for (int offset = 1; offset < 8; offset *= 2)
        peak_bits = max(peak_bits, __shfl_xor_sync(0xffffffffu, peak_bits, offset));
    const bool is_finite = peak_bits < 0x7f800000u, is_zero = peak_bits < 0x04800000u;  // 2^-118
    const float peak = __uint_as_float(peak_bits);
    // Beyond 2^120 the reciprocal would not be a normal number.
    const float down = peak_bits < 0x7b800000u ? 1.0f : 0x1p-8f;
    const float inverse = is_finite && !is_zero ? divide_normal(127.0f, peak * down) * down : 0.0f;
    const float scale = !is_finite ? __uint_as_float(0x7fffffffu) : is_zero ? 0.0f : divide_normal(peak, 127.0f);
    const int q[4] = {is_finite ? __float2int_rn(v.x * inverse) : 0, is_finite ? __float2int_rn(v.y * inverse) : 0,
                      is_finite ? __float2int_rn(v.z * inverse) : 0, is_finite ? __float2int_rn(v.w * inverse) : 0};
    int sum = q[0] + q[1] + q[2] + q[3];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    const int other = __shfl_xor_sync(0xffffffffu, sum, 4);
    if (is_active) {
        const unsigned packed = (q[0] & 255u) | (q[1] & 255u) << 8 | (q[2] & 255u) << 16 | (q[3] & 255u) << 24;
        reinterpret_cast<unsigned*>(row)[group * 8 + sub] = packed;
        if (sub == 0) {
            GroupMeta meta{scale, {static_cast<std::int16_t>(sum), static_cast<std::int16_t>(other)}};
            reinterpret_cast<GroupMeta*>(row + k)[group] = meta;
        }
    }
    return make_float4(fmaf(static_cast<float>(-q[0]), scale, v.x), fmaf(static_cast<float>(-q[1]), scale, v.y),
                       fmaf(static_cast<float>(-q[2]), scale, v.z), fmaf(static_cast<float>(-q[3]), scale, v.w));
}

/// Quantizes x [k] into `planes` rows, each quantized_bytes(k) after the one before. x null: NaN.
/// All threads of `num_threads` (a multiple of 32) take part.
__device__ inline void quantize_row(const float* x, int k, int planes, std::uint8_t* out, int thread, int num_threads) {
    const int sub = thread % 8, groups = k / kGroup;
    const bool is_aligned = reinterpret_cast<std::uintptr_t>(x) % 16 == 0;
    // Not unrolled: a short launch waits for its code to arrive as much as for its data.
#pragma unroll 1
    for (int first = thread / 32 * 4; first < groups; first += num_threads / 8) {
        const int group = first + thread % 32 / 8;
        const bool is_active = group < groups;
        float4 v = make_float4(0, 0, 0, 0);
        if (is_active) {
            const float* at = x + group * kGroup + sub * 4;
            if (x == nullptr)
                v.x = __uint_as_float(0x7fffffffu);
            else if (is_aligned)
                v = *reinterpret_cast<const float4*>(at);
            else
                v = make_float4(at[0], at[1], at[2], at[3]);
        }
        for (int plane = 0; plane < planes; ++plane)
            v = quantize_group(v, out + plane * quantized_bytes(k), k, group, sub, is_active);
    }
}

}  // namespace cuda_ggml
