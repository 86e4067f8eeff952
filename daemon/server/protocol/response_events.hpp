#pragma once

#include "daemon/server/protocol/error.hpp"
#include "daemon/server/protocol/event_text.hpp"
#include "daemon/server/protocol/response_request.hpp"
#include "daemon/server/protocol/usage.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace server {

/// How a response ends.
enum class ResponseEnd : std::uint8_t { completed, incomplete, cancelled, failed };

/// Writes the events of one text response, in the order of websocket.md 3.2, as JSON text.
///
/// Numbers the events, and keeps what the later ones repeat: ids, the text so far, log-probability
/// entries. Knows no transport; over SSE the same objects are sent.
class ResponseEvents {
public:
    /// @param request     checked; its echo goes into the response object
    /// @param created_at  seconds since 1970
    ResponseEvents(const ResponseRequest& request, std::string response_id, std::string item_id,
                   std::string_view fingerprint, std::int64_t created_at);

    [[nodiscard]] std::string created();
    [[nodiscard]] std::string in_progress();
    [[nodiscard]] std::string item_added();
    [[nodiscard]] std::string part_added();
    /// @param text      not escaped; whole characters
    /// @param logprobs  entries separated by commas, without brackets; "" for none
    [[nodiscard]] EventText delta(std::string_view text, std::string_view logprobs);
    /// Text that was added to an event already written, by way of EventText::insert_at.
    void add_to_last_delta(std::string_view text) { text_ += text; }
    [[nodiscard]] std::string text_done();
    [[nodiscard]] std::string part_done();
    [[nodiscard]] std::string item_done(bool is_complete);
    /// response.completed, response.incomplete or response.failed.
    /// @param error  with ResponseEnd::failed
    [[nodiscard]] std::string terminal(ResponseEnd end, const Usage& usage, const ApiError* error,
                                       std::int64_t completed_at);

    /// The response object by itself, for HTTP without streaming.
    [[nodiscard]] std::string response_object(ResponseEnd end, const Usage& usage,
                                              const ApiError* error,
                                              std::int64_t completed_at) const;

    [[nodiscard]] const std::string& response_id() const { return response_id_; }
    [[nodiscard]] const std::string& text() const { return text_; }

private:
    void open_event(std::string& out, std::string_view type);
    void close_event(std::string& out) const;
    void append_part(std::string& out) const;
    void append_item(std::string& out, std::string_view status) const;
    void append_response(std::string& out, std::string_view status, bool has_output,
                         const Usage* usage, const ApiError* error, bool hit_length,
                         std::int64_t completed_at) const;

    std::string response_id_;
    std::string item_id_;
    std::string head_;       // the response object up to its status
    std::string tail_;       // what never changes, closing brace included
    std::string stream_id_;  // as a member ,"stream_id":"…" or ""
    std::string text_;
    std::string logprobs_;  // entries of the whole text
    std::string item_status_ = "in_progress";
    bool has_item_ = false;
    int sequence_number_ = 0;
};

}  // namespace server
