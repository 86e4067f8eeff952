#include "plugins/quant/ggml/cpu.hpp"
#include "plugins/quant/ggml/simd/tier.hpp"

namespace ggml {

const Tier* tier_avx512() noexcept {
    static constexpr Tier kTier = make_tier("avx512");
    return &kTier;
}

}  // namespace ggml
