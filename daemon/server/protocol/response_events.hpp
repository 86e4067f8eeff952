#pragma once

#include "daemon/server/protocol/error.hpp"
#include "daemon/server/protocol/event_text.hpp"
#include "daemon/server/protocol/response_object.hpp"
#include "daemon/server/protocol/response_request.hpp"
#include "daemon/server/protocol/usage.hpp"

#include <boost/json/array.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace server {

/// What an item of the output is.
enum class ItemKind : std::uint8_t {
    message,
    reasoning,
    summary,  ///< reasoning that is told as its summary
    call,     ///< of a function
};

/// An item that begins. Ids are unguessable and not known to this folder.
struct ItemStart {
    ItemKind kind = ItemKind::message;
    std::string id;       ///< "msg_…", "rs_…", "fc_…"
    std::string call_id;  ///< call: what its output will name
    std::string name;     ///< call: the function
};

/// Writes the events of one response, in the order of websocket.md 3.2, as JSON text.
///
/// Numbers the events, and keeps what the later ones repeat: ids, the text so far, log-probability
/// entries. Knows no transport; over SSE the same objects are sent. One item is open at a time.
class ResponseEvents {
public:
    /// @param request     checked; its echo goes into the response object
    /// @param created_at  seconds since 1970
    ResponseEvents(const ResponseRequest& request, std::string response_id,
                   std::string_view fingerprint, std::int64_t created_at);

    [[nodiscard]] TypedEvent created() { return begin("created"); }
    [[nodiscard]] TypedEvent in_progress() { return begin("in_progress"); }

    /// Begins an item; the one before is closed.
    [[nodiscard]] std::vector<TypedEvent> open(ItemStart start);
    [[nodiscard]] bool has_open_item() const { return has_open_item_; }
    /// @return  whether the open item is of this kind
    [[nodiscard]] bool is_open(ItemKind kind) const {
        return has_open_item_ && items_.back().start.kind == kind;
    }
    /// Text of the open item: what is said, thought, or the arguments.
    /// @param text      not escaped; whole characters
    /// @param logprobs  entries separated by commas, without brackets; "" for none. Messages only
    [[nodiscard]] TypedEvent delta(std::string_view text, std::string_view logprobs);
    /// Text that was added to an event already written, by way of EventText::insert_at.
    void add_to_last_delta(std::string_view text) { items_.back().text += text; }
    /// Ends the open item.
    [[nodiscard]] std::vector<TypedEvent> close(bool is_complete);

    /// response.completed, response.incomplete or response.failed.
    /// @param error  with ResponseEnd::failed
    [[nodiscard]] TypedEvent terminal(ResponseEnd end, const Usage& usage, const ApiError* error,
                                      std::int64_t completed_at);
    /// The number of an event that is written elsewhere (response.steer.failed).
    [[nodiscard]] int take_number() { return sequence_number_++; }
    [[nodiscard]] int next_number() const { return sequence_number_; }

    /// The response object by itself, for HTTP without streaming.
    [[nodiscard]] std::string response_object(ResponseEnd end, const Usage& usage,
                                              const ApiError* error,
                                              std::int64_t completed_at) const;

    [[nodiscard]] const std::string& response_id() const { return object_.id(); }
    [[nodiscard]] std::size_t num_items() const { return items_.size(); }
    /// Whether something other than reasoning was said.
    [[nodiscard]] bool has_answer() const;
    /// The items as input of a next turn. Calls that were cut off are left out where the response was
    /// cut off too: no client can have answered them.
    [[nodiscard]] boost::json::array to_input(ResponseEnd end) const;

private:
    struct Item {
        ItemStart start;
        std::string text;
        std::string logprobs;  // entries
        std::string done;      // the whole object, once closed
        bool is_complete = false;
    };

    TypedEvent begin(std::string_view status);
    [[nodiscard]] std::string open_event(std::string_view type);
    void close_event(std::string& out) const;
    void append_place(std::string& out) const;
    [[nodiscard]] TypedEvent part_event(std::string_view type, std::string_view part);
    [[nodiscard]] TypedEvent item_event(std::string_view type, std::string_view item);
    [[nodiscard]] std::string output() const;

    ResponseObject object_;
    std::string stream_id_;  // as a member ,"stream_id":"…" or ""
    std::vector<Item> items_;
    std::string delta_head_;  // what every delta of the open item has between number and text
    bool has_open_item_ = false;
    int sequence_number_ = 0;
};

}  // namespace server
