#pragma once

#include "daemon/base/output_rules.hpp"
#include "daemon/server/protocol/fields.hpp"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

namespace server {

/// Reads `tools` and `tool_choice` of either shape ({type,name,parameters} of Responses,
/// {type,function:{…}} of chat). Tools that are no functions are left out, or refused.
/// @param message    the request; null counts as not given
/// @param functions  receives the functions that may be called, in chat shape, as templates take
///                   them: none with tool_choice none, else all, the allowed ones or the named one
/// @param rules      receives the same, as far as it binds the answer
bool read_tools(const boost::json::object& message, bool reject_hosted,
                boost::json::array& functions, base::OutputRules& rules, FieldReader& reader);

}  // namespace server
