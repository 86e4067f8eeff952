#pragma once

#include "daemon/base/error.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace text {

/// One pre-tokenizer pattern: PCRE2 with Unicode classes, compiled to machine code where it can be.
///
/// White space in patterns (\s, \S) is the Unicode White_Space property, which PCRE2's own is not:
/// it would count U+180E, and other tokenizers do not.
/// Immutable; any thread.
class Regex {
public:
    /// Throws base::ModelError when the pattern does not compile (a broken table row).
    explicit Regex(std::string_view pattern);

    /// Cuts a piece into matches and the gaps between them, all of them kept, in order. An empty
    /// match only cuts. Look-around sees nothing beyond the piece.
    /// @param piece  well-formed UTF-8, not empty
    /// @return       Errc::regex_limit when matching took too much time or memory
    [[nodiscard]] boost::system::error_code split(std::string_view piece,
                                                  std::vector<std::string_view>& out) const;

    /// Whether the pattern matches anywhere. Errors as in split().
    [[nodiscard]] base::Result<bool> matches(std::string_view text) const;

    /// Takes every match out of a text. Errors as in split(); the text is then unspecified.
    /// @param text  well-formed UTF-8
    [[nodiscard]] boost::system::error_code erase_from(std::string& text) const;

private:
    struct Range {
        std::size_t begin = 0, end = 0;
    };
    /// @return the next match; false: there is none
    [[nodiscard]] base::Result<bool> find(std::string_view text, std::size_t from,
                                          Range& range) const;

    struct Free {
        void operator()(void* code) const noexcept;
    };
    std::unique_ptr<void, Free> code_;  // pcre2_code
};

/// A pattern with \s and \S written out as the White_Space set.
[[nodiscard]] std::string expand_white_space(std::string_view pattern);

}  // namespace text
