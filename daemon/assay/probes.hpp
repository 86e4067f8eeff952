#pragma once

#include <span>
#include <string>

namespace assay {

/// A text and how it must go on. Judged without sampling: by the mean natural log-probability of the
/// continuation's tokens, each given those before it.
struct Probe {
    std::string name;
    std::string prompt;
    std::string expected;
    double floor = 0;  ///< nats a token; lower fails
};

/// What any language model can do, trained on whatever: go on counting, repeat what was repeated before,
/// close a quotation that was opened.
[[nodiscard]] std::span<const Probe> built_in_probes();

}  // namespace assay
