#pragma once

#include "daemon/server/protocol/fields.hpp"

#include <boost/json/array.hpp>
#include <boost/json/value.hpp>

#include <string_view>

namespace server {

/// Checks a `tools` list of either shape ({type,name,parameters} of Responses,
/// {type,function:{…}} of chat) and gives the functions in chat shape, as templates take them.
/// Tools that are no functions are left out, or refused.
bool read_tools(const boost::json::value& value, bool reject_hosted, boost::json::array& functions,
                FieldReader& reader);

/// Checks `tool_choice` against the functions that are there.
/// @param value      null for not given
/// @param is_forced  receives whether a call is demanded ("required", or a named function)
bool check_tool_choice(const boost::json::value& value, const boost::json::array& functions,
                       bool& is_forced, FieldReader& reader);

/// Whether a JSON schema is one at all: known words for `type`, objects where schemas must stand.
[[nodiscard]] bool is_schema(const boost::json::value& schema, int depth = 0);

}  // namespace server
