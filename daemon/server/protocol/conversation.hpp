#pragma once

#include "daemon/server/protocol/fields.hpp"

#include <boost/json/array.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace server {

/// Checks the items of a Responses request, each by itself: known types and roles, required
/// fields, text parts only.
/// @param param  where the list stands, for the messages: "input"
bool check_items(const boost::json::array& items, std::string_view param, FieldReader& reader);

/// Whether every function call of a whole context is answered before the next user message, and
/// every output belongs to a call.
[[nodiscard]] std::optional<ApiError> check_call_pairs(const boost::json::array& context);

/// The messages that a chat template gets.
///
/// Parts of text are joined; calls become `tool_calls` of an assistant message, with arguments as
/// an object where they parse as one; outputs become messages of role `tool`; reasoning goes to
/// `reasoning_content` of the assistant message after it; `developer` becomes `system`.
/// @param context       checked items (check_items)
/// @param instructions  the first system message; "" for none
[[nodiscard]] boost::json::array to_messages(const boost::json::array& context,
                                             std::string_view instructions);

/// Drops the oldest item that may go from a context that is too long: never a system message,
/// never half of a call and its output, never the last item.
/// @return  whether there was one
bool drop_oldest(boost::json::array& context);

/// Checks the `messages` of a chat completion and normalises them for the template: text parts
/// joined, null content beside tool calls made "", argument strings made objects.
[[nodiscard]] std::optional<boost::json::array> read_messages(const boost::json::array& messages,
                                                              FieldReader& reader);

}  // namespace server
