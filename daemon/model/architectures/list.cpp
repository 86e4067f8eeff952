#include "daemon/model/architectures/list.hpp"

namespace model::architectures {

std::span<const Architecture* const> all() {
    static const Architecture* const kAll[] = {&kLlama, &kQwen3, &kGlmDsa};
    return kAll;
}

}  // namespace model::architectures
