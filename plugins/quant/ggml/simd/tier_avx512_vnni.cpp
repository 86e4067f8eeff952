#include "plugins/quant/ggml/cpu.hpp"
#include "plugins/quant/ggml/simd/tier.hpp"

namespace ggml {

const Tier* tier_avx512_vnni() noexcept {
    static constexpr Tier kTier = make_tier("avx512-vnni");
    return &kTier;
}

}  // namespace ggml
