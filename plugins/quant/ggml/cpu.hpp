#pragma once

// What this processor can run, and which tier a configuration gets.

#include "plugins/quant/ggml/kernels.hpp"

#include <string>
#include <string_view>

namespace ggml {

/// The tiers, best first, "reference" last.
inline constexpr std::string_view kTierNames[] = {"avx512-vnni", "avx512", "avx2", "reference"};

/// The features that a tier needs and this processor (or its operating system) lacks, as words:
/// "avx512vnni, avx512bw". Empty when the tier runs here.
[[nodiscard]] std::string missing_features(std::string_view tier);

/// "auto" gives the best tier that runs here. Throws sdk::Error{UNSUPPORTED} with words for a name
/// that is none, and for a tier that does not run here.
[[nodiscard]] const Tier* choose_tier(std::string_view name);

// One function a tier, each in its own translation unit with its own instruction set.
[[nodiscard]] const Tier* tier_reference() noexcept;
#if defined(__x86_64__)
[[nodiscard]] const Tier* tier_avx2() noexcept;
[[nodiscard]] const Tier* tier_avx512() noexcept;
[[nodiscard]] const Tier* tier_avx512_vnni() noexcept;
#endif

}  // namespace ggml
