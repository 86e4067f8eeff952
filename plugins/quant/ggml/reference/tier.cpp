// The tier "reference": the definition arithmetic. Every weight is decoded to f32 exactly, products
// are summed in f64 in the order of k, bias, GLU and the residual are applied in f64, and the
// result is rounded to f32 once.

#include "plugins/quant/ggml/cpu.hpp"
#include "plugins/quant/ggml/reference/tile.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ggml {
namespace {

std::int64_t panel_bytes(std::int64_t k) {
    return k * kTileRows * std::int64_t{sizeof(float)};
}

/// Decodes rows piece by piece and lays them side by side; missing rows are zero.
void pack(const PackArgs& args) {
    constexpr std::int64_t kPiece = 256;
    float piece[kPiece];
    const std::int64_t cols = args.format->abi.block_cols, bytes = args.format->abi.block_bytes;
    for (int r = 0; r < kTileRows; ++r) {
        float* panel =
            static_cast<float*>(args.panel) + r / kPanelRows * kPanelRows * args.k + r % kPanelRows;
        if (r >= args.num_rows) {
            for (std::int64_t i = 0; i < args.k; ++i) panel[i * kPanelRows] = 0;
            continue;
        }
        const std::uint8_t* row = args.rows + r * args.row_bytes;
        for (std::int64_t k0 = 0; k0 < args.k; k0 += kPiece) {
            const std::int64_t n = std::min(kPiece, args.k - k0);
            args.format->decode(row + k0 / cols * bytes, n / cols, piece);
            for (std::int64_t i = 0; i < n; ++i) panel[(k0 + i) * kPanelRows] = piece[i];
        }
    }
}

/// Source: Shazeer, "GLU Variants Improve Transformer", 2020; Hendrycks & Gimpel, "Gaussian Error
/// Linear Units", 2016, section 2 (the tanh form); the clamped form as assay_glu says.
double apply_glu(const EpilogueArgs& args, double gate, double up) {
    switch (args.glu) {
        case ASSAY_GLU_GELU_TANH: {
            const double inner =
                std::sqrt(2 / std::numbers::pi) * (gate + 0.044715 * gate * gate * gate);
            return 0.5 * gate * (1 + std::tanh(inner)) * up;
        }
        case ASSAY_GLU_SILU_CLAMP: {
            const double limit = args.glu_limit;
            gate = gate > limit ? limit : gate;
            up = up > limit ? limit : up < -limit ? -limit : up;
            return gate / (1 + std::exp(-args.glu_alpha * gate)) * (up + 1);
        }
        default:
            return gate / (1 + std::exp(-gate)) * up;
    }
}

void epilogue(const EpilogueArgs& args) {
    for (int t = 0; t < args.num_tokens; ++t) {
        for (int r = 0; r < args.num_rows; ++r) {
            double value[2] = {};
            for (int i = 0; i < (args.glu != ASSAY_GLU_NONE ? 2 : 1); ++i) {
                value[i] = static_cast<const double*>(args.product[i])[t * kTileRows + r];
                if (args.bias[i] != nullptr) value[i] += double{args.bias[i][r]};
            }
            double result =
                args.glu != ASSAY_GLU_NONE ? apply_glu(args, value[0], value[1]) : value[0];
            if (args.accumulate) result += double{args.y[t][r]};
            args.y[t][r] = static_cast<float>(result);
        }
    }
}

const WeightKernel* kernel(const Format&, bool) {
    static constexpr WeightKernel kBaseline{
        0, false, 0, panel_bytes, pack, nullptr, reference_tile_baseline};
#if defined(__x86_64__)
    static constexpr WeightKernel kAvx2{
        0, false, 0, panel_bytes, pack, nullptr, reference_tile_avx2};
    static constexpr WeightKernel kAvx512{
        0, false, 0, panel_bytes, pack, nullptr, reference_tile_avx512};
    static const WeightKernel* const kBest = missing_features("avx512").empty() ? &kAvx512
                                             : missing_features("avx2").empty() ? &kAvx2
                                                                                : &kBaseline;
    return kBest;
#else
    return &kBaseline;
#endif
}

}  // namespace

const Tier* tier_reference() noexcept {
    static constexpr Tier kTier{"reference", sizeof(double), nullptr, epilogue, kernel};
    return &kTier;
}

}  // namespace ggml
