#pragma once

// The gated activations of assay_glu, one element.

#include "abi/quant.h"

#include <cstdint>

namespace cuda {

struct Glu {
    std::int32_t kind;
    float alpha, limit;

    __device__ static float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

    __device__ float operator()(float g, float u) const {
        switch (kind) {
            case ASSAY_GLU_SILU:
                return g * sigmoid(g) * u;
            case ASSAY_GLU_GELU_TANH:  // (1 + tanh z) / 2 = sigmoid(2 z), which does not cancel
                return g * sigmoid(1.59576912f * (g + 0.044715f * g * g * g)) * u;
            case ASSAY_GLU_SILU_CLAMP:
                g = g > limit ? limit : g;  // a NaN stays
                u = u < -limit ? -limit : u > limit ? limit : u;
                return g * sigmoid(alpha * g) * (u + 1.0f);
            default:
                return g * u;
        }
    }
};

}  // namespace cuda
