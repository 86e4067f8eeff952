#include "daemon/model/architectures/list.hpp"

namespace model::architectures {

std::span<const Architecture* const> all() {
    static const Architecture* const kAll[] = {&kLlama,  &kQwen2, &kQwen3,  &kQwen3Moe,  &kGlm4,       &kGlm4Moe,
                                              &kGptOss, &kGemma3, &kDeepseek2, &kDeepseek32, &kGlmDsa};
    return kAll;
}

}  // namespace model::architectures
