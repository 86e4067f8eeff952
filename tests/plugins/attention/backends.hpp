#pragma once

// The images under test, in every form that this machine can run.

#include "image.hpp"

#include <vector>

namespace attention_test {

#ifdef ASSAY_TEST_CUDA

/// Every tier with every cache dtype that it takes. What a GPU does not serve, or a tier does not
/// take, is skipped with the words of check().
inline const std::vector<Backend>& backends() {
    static const std::vector<Backend> kBackends{
        {"cuda-gqa", "plain", ASSAY_F32}, {"cuda-gqa", "plain", ASSAY_BF16},
        {"cuda-gqa", "mma", ASSAY_F16},   {"cuda-gqa", "mma", ASSAY_BF16},
        {"cuda-gqa", "wgmma", ASSAY_F16}, {"cuda-gqa", "wgmma", ASSAY_BF16},
        {"cuda-mla", "plain", ASSAY_F32}, {"cuda-mla", "plain", ASSAY_F16},
        {"cuda-mla", "mma", ASSAY_F16},   {"cuda-mla", "mma", ASSAY_BF16},
        {"cuda-mla", "wgmma", ASSAY_F16}, {"cuda-mla", "wgmma", ASSAY_BF16}};
    return kBackends;
}
inline const std::vector<Backend>& default_backends() {
    static const std::vector<Backend> kBackends{{"cuda-mla", "plain", ASSAY_F32},
                                                {"cuda-mla", "mma", ASSAY_F16},
                                                {"cuda-mla", "mma", ASSAY_BF16},
                                                {"cuda-mla", "wgmma", ASSAY_BF16}};
    return kBackends;
}

#else

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

#endif

}  // namespace attention_test

/// Leaves a test out, in words, when the image does not serve the layer on this machine. Images for
/// the CPU serve every layer of the tables.
#define SKIP_UNLESS_SERVED(backend, layer)                                    \
    if (const std::string words = refusal_of((backend), (layer)); !words.empty()) { \
        if ((backend).is_cuda()) GTEST_SKIP() << words;                       \
        FAIL() << words;                                                      \
    }
