#pragma once

// The kernels of one SIMD tier by format. Included by one translation unit a tier.

#include "plugins/quant/ggml/simd/dense.hpp"
#include "plugins/quant/ggml/simd/epilogue.hpp"
#include "plugins/quant/ggml/simd/integer.hpp"
#include "plugins/quant/ggml/simd/quantize.hpp"

namespace ggml {
namespace {

/// Unpacking into a panel pays from here on.
inline constexpr std::int64_t kMaxDirectTokens = 4;

template <class F>
inline constexpr WeightKernel kInteger{F::kGroup,        true,
                                       kMaxDirectTokens, integer_panel_bytes<F>,
                                       integer_pack<F>,  integer_direct<F>,
                                       integer_panel<F>};

template <class W>
inline constexpr WeightKernel kDense{0,      true, kDirectAlways, nullptr, nullptr, dense_direct<W>,
                                     nullptr};

inline constexpr WeightKernel kDecoded{0,       false,       0, decoded_panel_bytes, decoded_pack,
                                       nullptr, decoded_tile};

struct KernelRow {
    const char* format;
    const WeightKernel* kernel;
};

// To give a format kernels of its own: a struct in unpack.hpp, and a row here. Formats without a
// row are decoded to f32 rows.
constexpr KernelRow kKernels[] = {
    {"f32", &kDense<WeightF32>}, {"f16", &kDense<WeightHalf>}, {"bf16", &kDense<WeightBf16>},
    {"q4_0", &kInteger<Q4_0>},   {"q4_1", &kInteger<Q4_1>},    {"q5_0", &kInteger<Q5_0>},
    {"q5_1", &kInteger<Q5_1>},   {"q8_0", &kInteger<Q8_0>},    {"q2_k", &kInteger<Q2K>},
    {"q3_k", &kInteger<Q3K>},    {"q4_k", &kInteger<Q4K>},     {"q5_k", &kInteger<Q5K>},
    {"q6_k", &kInteger<Q6K>},    {"iq4_nl", &kInteger<Iq4Nl>}, {"iq4_xs", &kInteger<Iq4Xs>},
    {"mxfp4", &kInteger<Mxfp4>},
};

const WeightKernel* find_kernel(const Format& format, bool precise) {
    for (const KernelRow& row : kKernels) {
        if (__builtin_strcmp(row.format, format.abi.id) != 0) continue;
        return precise && row.kernel->group != 0 ? &kDecoded : row.kernel;
    }
    return &kDecoded;
}

constexpr Tier make_tier(const char* name) {
    return {name, sizeof(float), quantize_x, epilogue, find_kernel};
}

}  // namespace
}  // namespace ggml
