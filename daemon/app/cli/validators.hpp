#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <string>

namespace app::cli {

/// A whole number from `min` to 2147483647; says so when it is not.
[[nodiscard]] inline CLI::Validator at_least(std::int32_t min) {
    CLI::Validator validator{"INT >= " + std::to_string(min)};
    validator.operation([min](std::string& text) -> std::string {
        std::int32_t value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error == std::errc{} && end == text.data() + text.size() && value >= min) return {};
        return "expected a whole number from " + std::to_string(min) + " to 2147483647, found " + text;
    });
    return validator;
}

}  // namespace app::cli
