#pragma once

#include "daemon/metrics/labels.hpp"
#include "daemon/server/core.hpp"
#include "daemon/server/protocol/response_events.hpp"
#include "daemon/server/session/generation.hpp"
#include "daemon/server/session/outbox.hpp"
#include "daemon/server/session/reply_reader.hpp"

#include <boost/json/array.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace server {

class Flow;
class ResponseTurn;
struct EncodedPrompt;

/// Where the events of a response go: one lane of a WebSocket, or an HTTP answer.
class EventSink {
public:
    virtual ~EventSink() = default;
    virtual Outbox::Serial send(std::string_view type, EventText event) = 0;
    /// See Outbox::merge; asked before every delta, with serial 0 where it stands alone.
    virtual bool merge(Outbox::Serial serial, std::string_view text) = 0;
    /// The request is refused; nothing was sent before, nothing follows.
    virtual void refuse(const ApiError& error) = 0;
    /// The turn is over. May destroy the turn.
    /// @param is_success  its result can be continued from
    virtual void done(ResponseTurn& turn, bool is_success) = 0;
};

/// What a turn needs to know about its connection.
struct TurnOrigin {
    std::uint64_t client = 0;
    base::Clock::time_point received{};
    metrics::Transport transport = metrics::Transport::ws;
    std::string log_id;  ///< of the connection or HTTP request
    Flow* flow = nullptr;  ///< of the connection, where the answer is streamed
    std::string owner;     ///< label of the key; "" without keys
};

/// One `response.create` from the checked message to its terminal event. Thread: io.
///
/// Held by its session, and weakly by work on the helper thread. Destroying it cancels what runs.
class ResponseTurn final : public GenerationListener,
                           public std::enable_shared_from_this<ResponseTurn> {
public:
    /// @param context  all items that the model is to see, those of earlier turns first
    ResponseTurn(Core& core, std::shared_ptr<const Model> model, ResponseRequest request,
                 boost::json::array context, EventSink& sink, TurnOrigin origin);
    ~ResponseTurn() override;

    void start();
    /// The client asked for an end: closes the open item and sends the terminal event.
    void cancel();
    /// The daemon leaves: response.failed, or a refusal when nothing was sent yet.
    void fail(base::Errc errc);

    [[nodiscard]] const std::string& response_id() const { return events_.response_id(); }
    /// What a later request may go on from; also put into the store where the request asks for that.
    /// Once done.
    [[nodiscard]] std::shared_ptr<const PastResponse> past() const;
    /// The number of an event that another writes into this response's stream.
    [[nodiscard]] int take_sequence_number() { return events_.take_number(); }
    [[nodiscard]] int next_sequence_number() const { return events_.next_number(); }
    /// The final object, where it is not only an event. Set once done.
    [[nodiscard]] const std::string& final_object() const { return final_object_; }
    /// Why the response failed, or nothing. Set once done.
    [[nodiscard]] const std::optional<ApiError>& error() const { return error_; }

private:
    void on_accepted() override;
    void on_delta(Delta&& delta) override;
    void on_end(const GenerationEnd& end) override;

    void begin(Parsed<EncodedPrompt> prompt);
    void refuse(const ApiError& error);
    void say(std::vector<ReplyPiece>& pieces);
    void say(ReplyPiece& piece);
    void say_text(ItemKind kind, ReplyPiece& piece);
    void open_item(ItemKind kind, std::string name = {});
    void close_item(bool is_complete);
    void finish(ResponseEnd end, const ApiError* error);
    Outbox::Serial send(TypedEvent event) { return sink_.send(event.type, std::move(event.text)); }
    void send(std::vector<TypedEvent> events) {
        for (TypedEvent& event : events) send(std::move(event));
    }
    void count(metrics::Outcome outcome);

    Core& core_;
    std::shared_ptr<const Model> model_;
    ResponseRequest request_;
    std::shared_ptr<const boost::json::array> context_;  // shared with the helper thread
    EventSink& sink_;
    TurnOrigin origin_;
    ResponseEvents events_;
    std::optional<ReplyReader> reader_;
    std::optional<Generation> generation_;
    ResponseEnd end_ = ResponseEnd::failed;  // once done
    bool has_begun_ = false;                 // response.created was sent
    bool has_said_enough_ = false;           // nothing more is said, whatever is still read
    bool is_done_ = false;
    Outbox::Serial last_delta_ = 0;
    std::string final_object_;
    std::optional<ApiError> error_;
};

}  // namespace server
