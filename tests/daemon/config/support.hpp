#pragma once

#include <string>
#include <vector>

#include "daemon/config/config.hpp"
#include "daemon/config/mistakes.hpp"

inline config::Environment test_environment() {
    return {{{"PATH", "/bin"}}, "/opt/assay/bin", "/home/user"};
}

/// The text of a file with what is required and nothing else, then `more`.
inline std::string with_model(const std::string& more) {
    return "model.path = \"/m.gguf\"\n" + more;
}

inline config::Config parse_text(const std::string& text,
                                 const config::Environment& environment = test_environment()) {
    return config::parse(text, "/etc/assay/a.toml", environment);
}

/// What is wrong with a text; empty when nothing is.
inline std::vector<config::Mistake> mistakes_of(
    const std::string& text, const config::Environment& environment = test_environment()) {
    try {
        (void)parse_text(text, environment);
    } catch (const config::Mistakes& mistakes) {
        return mistakes.list();
    }
    return {};
}
