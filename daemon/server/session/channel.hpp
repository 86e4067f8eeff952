#pragma once

#include "daemon/server/core.hpp"
#include "daemon/server/protocol/response_request.hpp"
#include "daemon/server/session/outbox.hpp"
#include "daemon/server/session/response_turn.hpp"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace server {

/// The protocol of one WebSocket connection, without the socket: client messages in, event texts
/// out.
///
/// A lane (`stream_id`, or the default one) runs its responses one after the other; lanes run at
/// once, up to a number of responses in flight. Each lane remembers its last response, from which
/// the client may go on (`previous_response_id`).
///
/// Thread: io.
class Channel {
public:
    /// @param outbox  where events go
    /// @param flow    the outbox's
    /// @param owner   label of the client's key
    /// @param wake    tells the writer that there is something new, or to end (is_finished)
    Channel(Core& core, Outbox& outbox, Flow& flow, std::uint64_t client, std::string log_id,
            std::string owner, std::function<void()> wake);
    ~Channel();
    Channel(const Channel&) = delete;
    Channel& operator=(const Channel&) = delete;

    /// One text message of the client.
    void on_message(std::string_view text);

    /// From now on no further response is begun (the connection is too old).
    void expire();
    /// The daemon leaves and its time is over: ends what runs with response.failed, refuses the
    /// rest.
    void abort();

    /// The client has left: cancels everything at the engine and sends nothing more.
    void leave();

    [[nodiscard]] bool is_idle() const { return num_in_flight_ == 0 && waiting_.empty(); }
    [[nodiscard]] std::uint64_t num_responses() const { return num_responses_; }
    /// The client sent so many bad messages in a short time that the connection should end.
    [[nodiscard]] bool is_abusive() const { return is_abusive_; }

private:
    class Lane final : public EventSink {
    public:
        Lane(Channel& channel, std::string id) : channel_{channel}, id_{std::move(id)} {}
        Outbox::Serial send(std::string_view type, EventText event) override;
        bool merge(Outbox::Serial serial, std::string_view text) override;
        void refuse(const ApiError& error) override { channel_.send_error(error, id_); }
        void done(ResponseTurn& ended, bool is_success) override;

        std::shared_ptr<ResponseTurn> turn;      // running; weakly held by the helper thread
        std::shared_ptr<const PastResponse> history;  // held with requests that wait to continue it
        std::shared_ptr<const PastResponse> parent;   // what `turn` continues
        int next_number = 0;  // of an event that is still written into the stream of `history`
        std::size_t num_waiting = 0;
        [[nodiscard]] const std::string& id() const { return id_; }

    private:
        Channel& channel_;
        std::string id_;
    };

    struct Waiting {
        Lane* lane;
        Parsed<ResponseRequest> request;
        std::shared_ptr<const PastResponse> parent;  // pinned when it was there on arrival
        base::Clock::time_point received;
        std::size_t bytes;
    };

    [[nodiscard]] Parsed<ResponseRequest> read_create(const boost::json::object& message) const;
    void on_create(const boost::json::object& message, std::size_t bytes);
    void on_cancel(const boost::json::object& message);
    void on_steer(const boost::json::object& message);
    void pump();
    void start(Waiting waiting);
    void end(Lane& lane, ResponseTurn& turn, bool is_success);
    void remember(Lane& lane, const ResponseTurn& turn);

    [[nodiscard]] std::shared_ptr<const PastResponse> find_history(std::string_view response_id) const;
    void send_error(const ApiError& error, std::string_view stream_id);
    Outbox::Serial push(EventText event);
    void count_bad_message();

    Core& core_;
    Outbox& outbox_;
    Flow& flow_;
    std::uint64_t client_;
    std::string log_id_;
    std::string owner_;
    std::function<void()> wake_;
    std::map<std::string, Lane, std::less<>> lanes_;  // nodes stay where they are
    std::list<Lane*> recently_used_;                  // lanes with a history, oldest first
    std::deque<Waiting> waiting_;                     // in order of arrival, all lanes
    std::size_t waiting_bytes_ = 0;
    std::size_t history_bytes_ = 0;
    std::size_t num_in_flight_ = 0;
    std::uint64_t num_responses_ = 0;
    std::size_t num_bad_ = 0;
    base::Clock::time_point bad_since_{};
    bool is_pumping_ = false;
    bool is_expired_ = false;
    bool is_abusive_ = false;
};

}  // namespace server
