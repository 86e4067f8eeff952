#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/error.hpp"

namespace config {

/// One thing that is wrong with a setting.
struct Mistake {
    std::string source;    ///< the file's name, or "environment"
    int line = 0;          ///< from 1; 0 where there is no position (a variable, a missing key)
    int column = 0;        ///< from 1, in characters
    std::string key;       ///< full key, or the variable's name; empty for a syntax error
    std::string found;
    std::string expected;

    /// `file:line:column: key: found …, expected …`, in one line of printable text.
    [[nodiscard]] std::string text() const;
};

/// All that is wrong at once. what() has one mistake a line, in the order of the file.
class Mistakes : public base::ConfigError {
public:
    explicit Mistakes(std::vector<Mistake> list);
    [[nodiscard]] const std::vector<Mistake>& list() const noexcept { return list_; }

private:
    std::vector<Mistake> list_;
};

/// The candidate with the fewest single-character edits (insert, delete, replace, swap neighbours)
/// from `word`, or "" when even that one is too far away to be what was meant.
[[nodiscard]] std::string_view nearest(std::string_view word,
                                       const std::vector<std::string>& candidates);

/// `text` as a TOML string, with control characters escaped; shortened after `max_bytes`.
[[nodiscard]] std::string toml_quoted(std::string_view text, std::size_t max_bytes = 80);

}  // namespace config
