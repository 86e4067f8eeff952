#pragma once

#include "daemon/base/output_rules.hpp"
#include "daemon/server/protocol/fields.hpp"

#include <boost/json/value.hpp>

#include <string_view>

namespace server {

/// Reads the form that the answer is to have: `text.format`, or `response_format` of chat, where a
/// schema stands one level deeper.
/// @param param      the field's name, for messages
/// @param is_nested  name, schema and strict stand in a member `json_schema`
bool read_output_form(const boost::json::value& value, std::string_view param, bool is_nested,
                      base::OutputRules& rules, FieldReader& reader);

/// Whether a JSON schema is one at all: known words for `type`, objects where schemas must stand.
[[nodiscard]] bool is_schema(const boost::json::value& schema, int depth = 0);

}  // namespace server
