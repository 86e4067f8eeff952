#pragma once

#include "daemon/server/protocol/fields.hpp"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace server {

/// Checks the items of a Responses request, each by itself: known types and roles, required
/// fields, text parts only.
/// @param param  where the list stands, for the messages: "input"
bool check_items(const boost::json::array& items, std::string_view param, FieldReader& reader);

/// Puts what was said before in the place of references to it.
/// @param items      checked; changed
/// @param find_item  null for ids that are not known
[[nodiscard]] std::optional<ApiError> resolve_references(
    boost::json::array& items,
    const std::function<const boost::json::value*(std::string_view id)>& find_item);

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

/// What a context that is too long may lose, oldest first: never a system message, never half of a
/// call and its output, never the last item. As long as there is one, the rest begins with a
/// message of the user, since templates insist on that.
class Truncation {
public:
    /// @param context  checked items (check_items); outlives this
    explicit Truncation(const boost::json::array& context);

    /// Ways to shorten it, each shorter than the one before; 0: nothing may go.
    [[nodiscard]] std::size_t num_choices() const { return choices_.size(); }
    /// @param choice  below num_choices()
    [[nodiscard]] boost::json::array shortened(std::size_t choice) const;

private:
    const boost::json::array& context_;
    std::vector<std::size_t> step_;     // [num_items] the step in which an item goes; 0: it stays
    std::vector<std::size_t> choices_;  // steps after which the rest can be used
};

/// What a JSON value takes in memory, roughly.
[[nodiscard]] std::size_t memory_of(const boost::json::value& value);
[[nodiscard]] std::size_t memory_of(const boost::json::array& values);
[[nodiscard]] std::size_t memory_of(const boost::json::object& object);

/// Checks the `messages` of a chat completion and normalises them for the template: text parts
/// joined, null content beside tool calls made "", argument strings made objects.
[[nodiscard]] std::optional<boost::json::array> read_messages(const boost::json::array& messages,
                                                              FieldReader& reader);

}  // namespace server
