#pragma once

#include "daemon/base/error.hpp"

#include <string>
#include <vector>

namespace plugin {

/// One configured plugin and why it cannot do what is asked.
struct Rejected {
    std::string id;
    std::string reason;  ///< the first condition that fails
    std::vector<std::string> detail{};
};

/// Builds the error of a requirement that nobody meets: one line with all of it, then each
/// candidate by itself, then what to do.
///
/// @param key          "backends.attention.prefill"
/// @param requirement  "MLA prefill of layers 0-5 (…)"
/// @param able         plugins that could, but are not configured
/// @param kind         "attention/1"
/// @param found        Registry::summary()
/// @param remedy       what to do, where more is known than `able` says
[[nodiscard]] base::ConfigError refusal(const std::string& key, const std::string& requirement,
                                        const std::vector<Rejected>& candidates,
                                        const std::vector<std::string>& able,
                                        const std::string& kind, const std::string& found,
                                        const std::string& remedy = {});

}  // namespace plugin
