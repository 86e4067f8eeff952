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
              Backend{"cpu-flash", "avx512", ASSAY_F32}, Backend{"cpu-flash", "scalar", ASSAY_F16},
              Backend{"cpu-flash", "auto", ASSAY_F16}, Backend{"cpu-flash", "auto", ASSAY_BF16}}) {
            const Config config{b, 32};
            if (open_image(b.image).check(&config.config, &layer, ASSAY_MIXED, nullptr) == ASSAY_OK)
                list.push_back(b);
        }
        return list;
    }();
    return kBackends;
}

}  // namespace attention_test
