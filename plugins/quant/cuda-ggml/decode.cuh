#pragma once

// Every format on the device, eight neighbours at a time: the definitions of plugins/quant/ggml/formats
// with the same roundings (products and sums are not contracted), so that the values are equal to the
// bit. Scalar loads for most; those that kernels live on read words.

#include "plugins/quant/cuda-ggml/weight_view.hpp"
#include "plugins/quant/ggml/bytes.hpp"
#include "plugins/quant/ggml/formats/expand.hpp"
#include "plugins/quant/ggml/formats/iq.hpp"
#include "plugins/quant/ggml/formats/k_scale.hpp"
#include "plugins/quant/ggml/formats/levels.hpp"

#include <cuda_fp16.h>

namespace cuda_ggml {

/// The fields of one block. Formats that are never planar have it whole at [0].
struct Block {
    const std::uint8_t* at[kMaxFields];
};

__device__ inline float half_at(const std::uint8_t* p) {
    return __half2float(__ushort_as_half(*reinterpret_cast<const unsigned short*>(p)));
}
__device__ inline unsigned u16_at(const std::uint8_t* p) {
    return *reinterpret_cast<const unsigned short*>(p);
}
__device__ inline unsigned u32_at(const std::uint8_t* p) {  // aligned to 2
    return u16_at(p) | u16_at(p + 2) << 16;
}
__device__ inline float times(float a, float b) {
    return __fmul_rn(a, b);
}
__device__ inline float minus(float a, float b) {
    return __fsub_rn(a, b);
}
__device__ inline float plus(float a, float b) {
    return __fadd_rn(a, b);
}
/// Byte j of a word.
__device__ inline int byte_of(uint2 w, int j) {
    return static_cast<int>((j < 4 ? w.x >> (8 * j) : w.y >> (8 * (j - 4))) & 255u);
}
__device__ inline uint2 word2_at(const std::uint8_t* p) {  // aligned to 8
    return *reinterpret_cast<const uint2*>(p);
}

// The host's tables, expanded by the compiler into device memory; a copy a translation unit.
static __device__ const auto device_iq2_xxs = ggml::expand<std::uint64_t, 256>(ggml::kIq2xxsSet, ggml::kLevels2);
static __device__ const auto device_iq2_xs = ggml::expand<std::uint64_t, 512>(ggml::kIq2xsSet, ggml::kLevels2);
static __device__ const auto device_iq2_s = ggml::expand<std::uint64_t, 1024>(ggml::kIq2sSet, ggml::kLevels2);
static __device__ const auto device_iq3_xxs = ggml::expand<std::uint32_t, 256>(ggml::kIq3xxsSet, ggml::kLevels3Xxs);
static __device__ const auto device_iq3_s = ggml::expand<std::uint32_t, 512>(ggml::kIq3sSet, ggml::kLevels3S);
static __device__ const auto device_iq1 = ggml::expand<std::uint64_t, 2048>(ggml::kIq1sSet, ggml::kLevels1);

struct Levels {
    std::int8_t of[16];
};
constexpr Levels copy_of(const std::int8_t (&levels)[16]) {
    Levels l{};
    for (int i = 0; i < 16; ++i) l.of[i] = levels[i];
    return l;
}
static __device__ const Levels device_iq4_levels = copy_of(ggml::kIq4Levels);
static __device__ const Levels device_fp4_levels = copy_of(ggml::kFp4Levels);

#define EACH_FIELD _Pragma("unroll") for (int i = 0; i < kMaxFields; ++i)
#define EACH_OF_8 _Pragma("unroll") for (int j = 0; j < 8; ++j)

/// Elements 8g .. 8g + 7 of a block of format kId.
template <FormatId kId>
__device__ void decode8(const Block& block, int g, float* out);

template <>
__device__ inline void decode8<FormatId::q1_0>(const Block& block, int g, float* out) {
    const std::uint8_t* b = block.at[0];
    const float d = half_at(b);
    const unsigned bits = b[2 + g];
    EACH_OF_8 out[j] = (bits >> j & 1u) != 0 ? d : -d;
}

template <>
__device__ inline void decode8<FormatId::q2_0>(const Block& block, int g, float* out) {
    const std::uint8_t* b = block.at[0];
    const float d = half_at(b);
    const unsigned q = u16_at(b + 2 + 2 * g);
    EACH_OF_8 out[j] = times(static_cast<float>(static_cast<int>(q >> (2 * j) & 3u) - 1), d);
}

template <>
__device__ inline void decode8<FormatId::q4_0>(const Block& block, int g, float* out) {
    const std::uint8_t* b = block.at[0];
    const float d = half_at(b);
    EACH_OF_8 out[j] = times(static_cast<float>(ggml::split_nibble(b + 2, 8 * g + j) - 8), d);
}

template <>
__device__ inline void decode8<FormatId::q4_1>(const Block& block, int g, float* out) {
    const std::uint8_t* b = block.at[0];
    const float d = half_at(b), m = half_at(b + 2);
    EACH_OF_8 out[j] = plus(times(static_cast<float>(ggml::split_nibble(b + 4, 8 * g + j)), d), m);
}

template <>
__device__ inline void decode8<FormatId::q5_0>(const Block& block, int g, float* out) {
    const std::uint8_t* b = block.at[0];
    const float d = half_at(b);
    const unsigned high = b[2 + g];
    EACH_OF_8 {
        const int q = ggml::split_nibble(b + 6, 8 * g + j) | static_cast<int>(high >> j & 1u) << 4;
        out[j] = times(static_cast<float>(q - 16), d);
    }
}

template <>
__device__ inline void decode8<FormatId::q5_1>(const Block& block, int g, float* out) {
    const std::uint8_t* b = block.at[0];
    const float d = half_at(b), m = half_at(b + 2);
    const unsigned high = b[4 + g];
    EACH_OF_8 {
        const int q = ggml::split_nibble(b + 8, 8 * g + j) | static_cast<int>(high >> j & 1u) << 4;
        out[j] = plus(times(static_cast<float>(q), d), m);
    }
}

template <>
__device__ inline void decode8<FormatId::q8_0>(const Block& block, int g, float* out) {
    const float d = half_at(block.at[1]);
    const std::uint8_t* at = block.at[0] + 8 * g;  // aligned to 2 at least
    const unsigned low = u32_at(at), high = u32_at(at + 4);
    EACH_OF_8 {
        const auto q = static_cast<std::int8_t>((j < 4 ? low : high) >> (8 * (j & 3)));
        out[j] = times(static_cast<float>(q), d);
    }
}

template <>
__device__ inline void decode8<FormatId::q8_1>(const Block& block, int g, float* out) {
    const float d = half_at(block.at[0]);
    const auto* q = reinterpret_cast<const std::int8_t*>(block.at[0]) + 4 + 8 * g;
    EACH_OF_8 out[j] = times(static_cast<float>(q[j]), d);
}

template <>
__device__ inline void decode8<FormatId::q2_k>(const Block& block, int g, float* out) {
    const std::uint8_t* b = block.at[0];
    const float d = half_at(b + 80), dmin = half_at(b + 82);
    const int group = b[g / 2];
    const float scale = times(d, static_cast<float>(group & 15));
    const float min = times(dmin, static_cast<float>(group >> 4));
    EACH_OF_8 out[j] = minus(times(scale, static_cast<float>(ggml::crumb_256(b + 16, 8 * g + j))), min);
}

template <>
__device__ inline void decode8<FormatId::q3_k>(const Block& block, int g, float* out) {
    const std::uint8_t *b = block.at[0], *s = b + 96;
    const int k = g / 2;
    const int six = ((s[k % 8] >> (4 * (k / 8))) & 15) | ((s[8 + k % 4] >> (2 * (k / 4))) & 3) << 4;
    const float scale = times(half_at(b + 108), static_cast<float>(six - 32));
    EACH_OF_8 {
        const int e = 8 * g + j;
        const int high = (b[e % 32] >> (e / 32)) & 1;
        out[j] = times(scale, static_cast<float>(ggml::crumb_256(b + 32, e) - (high != 0 ? 0 : 4)));
    }
}

template <>
__device__ inline void decode8<FormatId::q4_k>(const Block& block, int g, float* out) {
    const std::uint8_t* b = block.at[0];
    const ggml::KScale s = ggml::k_scale(b + 4, g / 4);
    const float scale = times(half_at(b), static_cast<float>(s.scale));
    const float min = times(half_at(b + 2), static_cast<float>(s.min));
    const uint2 q = word2_at(b + 16 + 32 * (g / 8) + 8 * (g % 4));
    const int shift = 4 * (g / 4 % 2);
    EACH_OF_8 out[j] = minus(times(scale, static_cast<float>(byte_of(q, j) >> shift & 15)), min);
}

template <>
__device__ inline void decode8<FormatId::q5_k>(const Block& block, int g, float* out) {
    const std::uint8_t* b = block.at[0];
    const ggml::KScale s = ggml::k_scale(b + 4, g / 4);
    const float scale = times(half_at(b), static_cast<float>(s.scale));
    const float min = times(half_at(b + 2), static_cast<float>(s.min));
    const uint2 q = word2_at(b + 48 + 32 * (g / 8) + 8 * (g % 4)), high = word2_at(b + 16 + 8 * (g % 4));
    const int shift = 4 * (g / 4 % 2), bit = g / 4;
    EACH_OF_8 {
        const int value = (byte_of(q, j) >> shift & 15) | (byte_of(high, j) >> bit & 1) << 4;
        out[j] = minus(times(scale, static_cast<float>(value)), min);
    }
}

template <>
__device__ inline void decode8<FormatId::q6_k>(const Block& block, int g, float* out) {
    const int half = g / 16, k = g / 4 % 4, l = 8 * (g % 4);
    const std::uint8_t* low = block.at[0] + 64 * half + 32 * (k % 2) + l;
    const std::uint8_t* high = block.at[1] + 32 * half + l;
    const auto scales = reinterpret_cast<const std::int8_t*>(block.at[2]);
    const float scale = times(half_at(block.at[3]), static_cast<float>(scales[g / 2]));
    // Both are aligned to 2 at least.
    const unsigned low_words[2] = {u32_at(low), u32_at(low + 4)}, high_words[2] = {u32_at(high), u32_at(high + 4)};
    EACH_OF_8 {
        const unsigned low_byte = low_words[j / 4] >> (8 * (j & 3)), high_byte = high_words[j / 4] >> (8 * (j & 3));
        const int q = static_cast<int>((low_byte >> (4 * (k / 2)) & 15u) | (high_byte >> (2 * k) & 3u) << 4);
        out[j] = times(scale, static_cast<float>(q - 32));
    }
}

template <>
__device__ inline void decode8<FormatId::q8_k>(const Block& block, int g, float* out) {
    const float d = *reinterpret_cast<const float*>(block.at[0]);
    const auto* q = reinterpret_cast<const std::int8_t*>(block.at[0]) + 4 + 8 * g;
    EACH_OF_8 out[j] = times(d, static_cast<float>(q[j]));
}

template <>
__device__ inline void decode8<FormatId::iq1_s>(const Block& block, int g, float* out) {
    const std::uint8_t* b = block.at[0];
    const unsigned h = u16_at(b + 34 + g / 4 * 2);
    const unsigned index = b[2 + g] | (h >> (3 * (g % 4)) & 7u) << 8;
    const float scale = times(half_at(b), static_cast<float>(2 * (h >> 12 & 7u) + 1));
    ggml::decode_iq1(scale, device_iq1.entry[index], (h & 0x8000u) != 0, out);
}

template <>
__device__ inline void decode8<FormatId::iq1_m>(const Block& block, int g, float* out) {
    const std::uint8_t* b = block.at[0];
    unsigned bits = 0;
    for (int i = 0; i < 4; ++i) bits |= (u16_at(b + 48 + 2 * i) >> 12) << (4 * i);
    const float d = __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
    const unsigned nibble = (b[32 + g / 2] >> (4 * (g % 2))) & 15u;
    const unsigned index = b[g] | (nibble & 7u) << 8;
    const unsigned t = u16_at(b + 48 + g / 8 * 2);
    const float scale = times(d, static_cast<float>(2 * (t >> (3 * (g % 8 / 2)) & 7u) + 1));
    ggml::decode_iq1(scale, device_iq1.entry[index], (nibble & 8u) != 0, out);
}

template <>
__device__ inline void decode8<FormatId::iq2_xxs>(const Block& block, int g, float* out) {
    const std::uint8_t* group = block.at[0] + 2 + 8 * (g / 4);
    const unsigned a = u32_at(group + 4);
    const float scale = times(times(half_at(block.at[0]), plus(0.5f, static_cast<float>(a >> 28))), 0.25f);
    const std::uint64_t entry = device_iq2_xxs.entry[group[g % 4]];
    const unsigned signs = ggml::even_signs(a >> (7 * (g % 4)) & 127u);
    EACH_OF_8 out[j] = ggml::signed_magnitude(scale, entry, j, signs);
}

template <>
__device__ inline void decode8<FormatId::iq2_xs>(const Block& block, int g, float* out) {
    const std::uint8_t* b = block.at[0];
    const unsigned w = u16_at(b + 2 + 2 * g);
    const int s = (b[66 + g / 4] >> (4 * (g % 4 / 2))) & 15;
    const float scale = times(times(half_at(b), plus(0.5f, static_cast<float>(s))), 0.25f);
    const unsigned signs = ggml::even_signs(w >> 9);
    EACH_OF_8 out[j] = ggml::signed_magnitude(scale, device_iq2_xs.entry[w & 511u], j, signs);
}

template <>
__device__ inline void decode8<FormatId::iq2_s>(const Block& block, int g, float* out) {
    const std::uint8_t* b = block.at[0];
    const int index = b[2 + g] | ((b[66 + g / 4] >> (2 * (g % 4))) & 3) << 8;
    const int s = (b[74 + g / 4] >> (4 * (g % 4 / 2))) & 15;
    const float scale = times(times(half_at(b), plus(0.5f, static_cast<float>(s))), 0.25f);
    EACH_OF_8 out[j] = ggml::signed_magnitude(scale, device_iq2_s.entry[index], j, b[34 + g]);
}

template <>
__device__ inline void decode8<FormatId::iq3_xxs>(const Block& block, int g, float* out) {
    const std::uint8_t* b = block.at[0];
    const unsigned a = u32_at(b + 66 + g / 4 * 4);
    const float scale = times(times(half_at(b), plus(0.5f, static_cast<float>(a >> 28))), 0.5f);
    const unsigned signs = ggml::even_signs(a >> (7 * (g % 4)) & 127u);
    const std::uint64_t entry = device_iq3_xxs.entry[b[2 + 2 * g]] |
                                static_cast<std::uint64_t>(device_iq3_xxs.entry[b[3 + 2 * g]]) << 32;
    EACH_OF_8 out[j] = ggml::signed_magnitude(scale, entry, j, signs);
}

template <>
__device__ inline void decode8<FormatId::iq3_s>(const Block& block, int g, float* out) {
    const std::uint8_t* b = block.at[0];
    const int s = (b[106 + g / 8] >> (4 * (g / 4 % 2))) & 15;
    const float scale = times(half_at(b), static_cast<float>(1 + 2 * s));
    std::uint64_t entry = 0;
    for (int i = 0; i < 2; ++i) {
        const int at = 2 * g + i;
        const int index = b[2 + at] | ((b[66 + at / 8] >> (at % 8)) & 1) << 8;
        entry |= static_cast<std::uint64_t>(device_iq3_s.entry[index]) << (32 * i);
    }
    EACH_OF_8 out[j] = ggml::signed_magnitude(scale, entry, j, b[74 + g]);
}

template <>
__device__ inline void decode8<FormatId::iq4_nl>(const Block& block, int g, float* out) {
    const std::uint8_t* b = block.at[0];
    const float d = half_at(b);
    EACH_OF_8 out[j] = times(d, static_cast<float>(device_iq4_levels.of[ggml::split_nibble(b + 2, 8 * g + j)]));
}

template <>
__device__ inline void decode8<FormatId::iq4_xs>(const Block& block, int g, float* out) {
    const std::uint8_t* b = block.at[0];
    const int k = g / 4;
    const int six = ((b[4 + k / 2] >> (4 * (k % 2))) & 15) | static_cast<int>(u16_at(b + 2) >> (2 * k) & 3u) << 4;
    const float scale = times(half_at(b), static_cast<float>(six - 32));
    EACH_OF_8 {
        const int q = ggml::split_nibble(b + 8 + 16 * k, 8 * (g % 4) + j);
        out[j] = times(scale, static_cast<float>(device_iq4_levels.of[q]));
    }
}

/// Digit n in base 3 of a byte that holds ceil(value * 256 / 243), less one.
__device__ inline int base3_digit(unsigned byte, int n) {
    const unsigned power = n == 0 ? 1 : n == 1 ? 3 : n == 2 ? 9 : n == 3 ? 27 : 81;
    return static_cast<int>(((byte * power & 255u) * 3) >> 8) - 1;
}

template <>
__device__ inline void decode8<FormatId::tq1_0>(const Block& block, int g, float* out) {
    const std::uint8_t* b = block.at[0];
    const float d = half_at(b + 52);
    EACH_OF_8 {
        const int e = 8 * g + j;
        const int byte = e < 160 ? e % 32 : e < 240 ? 32 + (e - 160) % 16 : 48 + (e - 240) % 4;
        const int n = e < 160 ? e / 32 : e < 240 ? (e - 160) / 16 : (e - 240) / 4;
        out[j] = times(static_cast<float>(base3_digit(b[byte], n)), d);
    }
}

template <>
__device__ inline void decode8<FormatId::tq2_0>(const Block& block, int g, float* out) {
    const std::uint8_t* b = block.at[0];
    const float d = half_at(b + 64);
    EACH_OF_8 out[j] = times(static_cast<float>(ggml::crumb_256(b, 8 * g + j) - 1), d);
}

template <>
__device__ inline void decode8<FormatId::mxfp4>(const Block& block, int g, float* out) {
    const std::uint8_t* b = block.at[0];
    const unsigned x = b[0];
    const float d = __uint_as_float(x < 2 ? 0x200000u << x : (x - 1) << 23);
    EACH_OF_8 out[j] = times(static_cast<float>(device_fp4_levels.of[ggml::split_nibble(b + 1, 8 * g + j)]), d);
}

template <>
__device__ inline void decode8<FormatId::nvfp4>(const Block& block, int g, float* out) {
    const std::uint8_t* b = block.at[0];
    const unsigned byte = b[g / 2], x = (byte >> 3) & 15u, m = byte & 7u;
    float scale = x == 0 ? times(static_cast<float>(m), 0x1p-9f) : __uint_as_float((x + 120u) << 23 | m << 20);
    if (byte == 0x7f) scale = 0;
    scale = times(scale, 0.5f);
    EACH_OF_8 {
        const int q = (b[4 + 8 * (g / 2) + j] >> (4 * (g % 2))) & 15;
        out[j] = times(static_cast<float>(device_fp4_levels.of[q]), scale);
    }
}

/// Element i of a row of plain values.
template <FormatId kId>
__device__ float plain_at(const std::uint8_t* row, std::int64_t i) {
    switch (kId) {
        case FormatId::f32:
            return reinterpret_cast<const float*>(row)[i];
        case FormatId::f16:
            return half_at(row + 2 * i);
        case FormatId::bf16:
            return __uint_as_float(u16_at(row + 2 * i) << 16);
        case FormatId::f64:
            return static_cast<float>(reinterpret_cast<const double*>(row)[i]);
        case FormatId::i8:
            return static_cast<float>(reinterpret_cast<const std::int8_t*>(row)[i]);
        case FormatId::i16:
            return static_cast<float>(reinterpret_cast<const std::int16_t*>(row)[i]);
        case FormatId::i32:
            return static_cast<float>(reinterpret_cast<const std::int32_t*>(row)[i]);
        default:
            return static_cast<float>(reinterpret_cast<const long long*>(row)[i]);
    }
}

/// Where row `row` (of all experts') begins in each plane.
struct RowBase {
    const std::uint8_t* at[kMaxFields];
    __device__ RowBase(const WeightView& w, std::int64_t row) {
        EACH_FIELD at[i] = w.plane[i] + (w.plane[i] != nullptr ? row * w.row_bytes[i] : 0);
    }
};

/// Columns k0 .. k0 + 7 of a row; k0 is a multiple of 8. Columns from `k` on are zero.
template <FormatId kId, int kBlockCols, int kBlockBytes>
__device__ inline void decode_columns(const WeightView& w, const RowBase& row, std::int32_t k0,
                                      std::int32_t k, float* out) {
    if constexpr (kBlockCols == 1) {
        EACH_OF_8 out[j] = k0 + j < k ? plain_at<kId>(row.at[0], k0 + j) : 0.0f;
    } else {
        const unsigned column = static_cast<unsigned>(k0);
        const std::int64_t b = column / kBlockCols;
        const int g = static_cast<int>(column % kBlockCols / 8);
        Block block{};
        if constexpr (kId == FormatId::q8_0) {
            if (w.is_planar) {
                block.at[0] = row.at[0] + 32 * b;
                block.at[1] = row.at[1] + 2 * b;
            } else {
                block.at[1] = row.at[0] + kBlockBytes * b;
                block.at[0] = block.at[1] + 2;
            }
        } else if constexpr (kId == FormatId::q6_k) {
            if (w.is_planar) {
                block.at[0] = row.at[0] + 128 * b;
                block.at[1] = row.at[1] + 64 * b;
                block.at[2] = row.at[2] + 16 * b;
                block.at[3] = row.at[3] + 2 * b;
            } else {
                block.at[0] = row.at[0] + kBlockBytes * b;
                block.at[1] = block.at[0] + 128;
                block.at[2] = block.at[0] + 192;
                block.at[3] = block.at[0] + 208;
            }
        } else {
            block.at[0] = row.at[0] + kBlockBytes * b;
        }
        decode8<kId>(block, g, out);
    }
}

/// The same for a format known when the kernel runs; all threads of a warp agree on it.
__device__ inline void decode_columns(const WeightView& w, const RowBase& row, std::int32_t k0,
                                      std::int32_t k, float* out) {
    switch (w.id) {
#define FORMAT(id, block_cols, block_bytes, check)                                   \
    case FormatId::id:                                                               \
        return decode_columns<FormatId::id, block_cols, block_bytes>(w, row, k0, k, out);
#include "plugins/quant/ggml/formats/formats.inc"
#undef FORMAT
        default:
            return;
    }
}

#undef EACH_OF_8
#undef EACH_FIELD

}  // namespace cuda_ggml
