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
        return list;
    }();
    return kBackends;
}

}  // namespace attention_test
