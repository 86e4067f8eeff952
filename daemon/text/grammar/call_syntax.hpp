#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace grammar {

/// How a family of models writes tool calls: what stands around names and arguments. Read back by
/// the reader of the same format in daemon/text/reply.
struct CallSyntax {
    std::string_view format;  ///< reply::Format::name; a format may have several rows
    std::string_view open;    ///< before the first call
    std::string_view before_name, before_arguments, after_call;
    std::string_view between;  ///< two calls
    std::string_view close;    ///< behind the last
    bool is_single = false;    ///< one call a reply
    /// Arguments that are no JSON object: each parameter is written by itself, strings as they are.
    struct Tagged {
        std::string_view before_key, before_value, before_close, close, after_close;
        std::string_view before_string;  ///< instead of before_value, where strings differ
    };
    const Tagged* tagged = nullptr;
};

/// The rows of a format; none where it has no calls.
[[nodiscard]] std::vector<const CallSyntax*> call_syntaxes(std::string_view format);

}  // namespace grammar
