#pragma once

// The kernels of one SIMD tier by format. Included by one translation unit a tier.

#include "plugins/quant/ggml/simd/decoded.hpp"
#include "plugins/quant/ggml/simd/epilogue.hpp"
#include "plugins/quant/ggml/simd/panel.hpp"
#include "plugins/quant/ggml/simd/quantize.hpp"
#include "plugins/quant/ggml/simd/unpack_32.hpp"
#include "plugins/quant/ggml/simd/unpack_iq.hpp"
#include "plugins/quant/ggml/simd/unpack_k.hpp"
#include "plugins/quant/ggml/simd/unpack_low.hpp"

namespace ggml {
namespace {

/// Unpacking into a panel pays from here on.
inline constexpr std::int64_t kMaxDirectTokens = 4;

template <class F>
inline constexpr WeightKernel kInteger{F::kGroup,
                                       true,
                                       kMaxDirectTokens,
                                       integer_panel_bytes<ArithmeticOf<F>>,
                                       integer_pack<F>,
                                       integer_direct<F>,
                                       integer_panel<ArithmeticOf<F>>};

/// With x in f32: rows decoded to f32, by the format's definition or from unpacked runs.
template <void (*kPack)(const PackArgs&)>
inline constexpr WeightKernel kDecoded{0,     false,   0,           decoded_panel_bytes,
                                       kPack, nullptr, decoded_tile};

template <class W>
inline constexpr WeightKernel kDense{0,      true, kDirectAlways, nullptr, nullptr, dense_direct<W>,
                                     nullptr};

struct KernelRow {
    const char* format;
    const WeightKernel *kernel, *precise;
};
template <class F>
constexpr KernelRow integer(const char* format) {
    return {format, &kInteger<F>, &kDecoded<decode_runs<F>>};
}
template <class W>
constexpr KernelRow plain(const char* format) {
    return {format, &kDense<W>, &kDense<W>};
}

// To give a format kernels of its own: a struct in unpack_*.hpp, and a row here. Formats without a
// row are decoded by their definition.
constexpr KernelRow kKernels[] = {
    plain<WeightF32>("f32"),  plain<WeightHalf>("f16"), plain<WeightBf16>("bf16"),
    integer<Q4_0>("q4_0"),    integer<Q4_1>("q4_1"),    integer<Q5_0>("q5_0"),
    integer<Q5_1>("q5_1"),    integer<Q8_0>("q8_0"),    integer<Q8_1>("q8_1"),
    integer<Q2K>("q2_k"),     integer<Q3K>("q3_k"),     integer<Q4K>("q4_k"),
    integer<Q5K>("q5_k"),     integer<Q6K>("q6_k"),     integer<Q8K>("q8_k"),
    integer<Iq1S>("iq1_s"),   integer<Iq1M>("iq1_m"),   integer<Iq2Xxs>("iq2_xxs"),
    integer<Iq2Xs>("iq2_xs"), integer<Iq2S>("iq2_s"),   integer<Iq3Xxs>("iq3_xxs"),
    integer<Iq3S>("iq3_s"),   integer<Iq4Nl>("iq4_nl"), integer<Iq4Xs>("iq4_xs"),
    integer<Tq1_0>("tq1_0"),  integer<Tq2_0>("tq2_0"),  integer<Mxfp4>("mxfp4"),
    integer<Nvfp4>("nvfp4"),  integer<Q1_0>("q1_0"),    integer<Q2_0>("q2_0"),
};

const WeightKernel* find_kernel(const Format& format, bool precise) {
    for (const KernelRow& row : kKernels)
        if (__builtin_strcmp(row.format, format.abi.id) == 0)
            return precise ? row.precise : row.kernel;
    return &kDecoded<decode_rows>;
}

constexpr Tier make_tier(const char* name) {
    return {name, sizeof(float), quantize_x, epilogue, find_kernel};
}

}  // namespace
}  // namespace ggml
