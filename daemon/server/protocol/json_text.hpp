#pragma once

#include "daemon/server/protocol/error.hpp"

#include <boost/json/object.hpp>

#include <string>
#include <string_view>

namespace server {

/// Parses a client's message: RFC 8259 without exceptions, an object at the top, nesting at most
/// 128, well-formed UTF-8, no lone surrogates.
/// @param refuse_duplicates  also refuse a key that stands twice at the top level
[[nodiscard]] Parsed<boost::json::object> parse_object(std::string_view text,
                                                       bool refuse_duplicates = false);

/// The inside of a JSON string: what stands between the quotes. `text` is well-formed UTF-8.
void append_escaped(std::string& out, std::string_view text);
/// A JSON string with its quotes.
void append_string(std::string& out, std::string_view text);
/// The same, or null for "".
void append_string_or_null(std::string& out, std::string_view text);
/// A number that reads back the same; what JSON cannot hold is written as null (NaN) or -9999
/// (minus infinity, the custom for log-probabilities).
void append_number(std::string& out, float value);

}  // namespace server
