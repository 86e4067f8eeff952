#pragma once

// The images under test, in every form that this machine can run.

#include "image.hpp"

#include <vector>

namespace attention_test {

/// A tier that this processor lacks is refused by check() and left out here; the tier "scalar" is
/// always there.
inline const std::vector<Backend>& backends() {
    static const std::vector<Backend> kBackends = [] {
        std::vector<Backend> list{{"reference", nullptr, ASSAY_F32}};
        const assay_attn_layer layer = gqa_layer(2, 1, 64, 64, 0.125F);
        for (const Backend& b :
             {Backend{"cpu-flash", "scalar", ASSAY_F32}, Backend{"cpu-flash", "avx2", ASSAY_F32},
              Backend{"cpu-flash", "avx512", ASSAY_F32}, Backend{"cpu-flash", "auto", ASSAY_F16},
              Backend{"cpu-flash", "auto", ASSAY_BF16}}) {
            const Config config{b, 32};
            if (open_image(b.image).check(&config.config, &layer, ASSAY_MIXED, nullptr) == ASSAY_OK)
                list.push_back(b);
        }
        return list;
    }();
    return kBackends;
}

/// The images once each, with what they choose by themselves, and a half-precision cache. The tiers
/// of cpu-flash give the same bits (TierInvariance), so one stands for all.
inline const std::vector<Backend>& default_backends() {
    static const std::vector<Backend> kBackends{{"reference", nullptr, ASSAY_F32},
                                                {"cpu-flash", nullptr, ASSAY_F32},
                                                {"cpu-flash", nullptr, ASSAY_F16}};
    return kBackends;
}

}  // namespace attention_test
