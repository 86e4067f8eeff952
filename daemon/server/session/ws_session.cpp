#include "daemon/server/session/ws_session.hpp"

#include "daemon/server/core.hpp"
#include "daemon/server/ids.hpp"
#include "daemon/server/session/channel.hpp"
#include "daemon/server/session/flow.hpp"
#include "daemon/server/session/session.hpp"
#include "daemon/server/session/write_watch.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/websocket/stream.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace server {
namespace asio = boost::asio;
namespace beast = boost::beast;
namespace websocket = beast::websocket;

namespace {

using Clock = base::Clock;
constexpr auto kNoThrow = asio::as_tuple(asio::use_awaitable);
constexpr double kAgeJitter = 0.05;  // so that a fleet does not reconnect at once

/// One WebSocket connection: a reader that is always reading, and one writer.
///
/// Held by its two coroutines.
class WsSession final : public Session, public std::enable_shared_from_this<WsSession> {
public:
    WsSession(Core& core, Sessions& sessions, Transport transport, WsUpgrade upgrade)
        : core_{core},
          sessions_{sessions},
          upgrade_{std::move(upgrade)},
          ws_{std::move(transport)},
          client_{core.next_client++},
          wake_{ws_.get_executor()},
          flow_{core.dispatcher, core.metrics, core.options.limits.send_budget_bytes},
          outbox_{core.options.limits.send_high_bytes, &flow_},
          channel_{core, outbox_, flow_, client_, upgrade_.log_id,
                   upgrade_.key_label, [this] { notify(); }},
          expires_at_{began_ +
                      std::chrono::duration_cast<Clock::duration>(
                          core.options.limits.max_connection_age *
                          (1 - kAgeJitter * static_cast<double>(random_bits() % 1024) / 1024))} {
        core_.keys.bind(client_, upgrade_.key);
        sessions_.add(*this, upgrade_.address);
        core_.metrics.connections(metrics::Transport::ws).add(1);
        wake_.expires_at(Clock::time_point::max());
    }

    ~WsSession() override {
        core_.keys.unbind(client_);
        sessions_.remove(*this, upgrade_.address);
        core_.metrics.connections(metrics::Transport::ws).add(-1);
        core_.metrics.ws_closed(close_code_);
        log();
    }

    asio::awaitable<void> read();
    asio::awaitable<void> write();

    void sweep(Clock::time_point now) override;
    void drain() override {
        is_draining_ = true;
        end_if_idle();
    }
    void abort() override {
        drain_code_ = websocket::close_code::service_restart;
        is_draining_ = true;
        channel_.abort();
        end_if_idle();
    }
    void drop() override {
        is_gone_ = true;
        ws_.next_layer().close();
        notify();
    }
    [[nodiscard]] bool is_busy() const override { return !is_gone_; }

private:
    void accept_options();
    void notify() {
        if (channel_.is_abusive())
            close(websocket::close_code::policy_error, "too_many_bad_messages");
        wake_.cancel();
    }
    /// Nothing runs, and all that was said has left.
    [[nodiscard]] bool is_idle() const { return channel_.is_idle() && outbox_.empty() && !is_writing_; }
    void end_if_idle() {
        if (!is_draining_ || !is_idle()) return;
        close(drain_code_, "going_away");
        wake_.cancel();
    }
    /// The writer sends what waits, then a close frame. The first reason counts.
    void close(websocket::close_code code, std::string_view reason) {
        if (close_code_ != kOpen) return;
        close_code_ = static_cast<int>(code);
        close_reason_ = reason;
        closing_since_ = Clock::now();
    }
    void log() const;

    static constexpr int kOpen = 0;
    static constexpr int kNoCloseFrame = 1006;

    Core& core_;
    Sessions& sessions_;
    WsUpgrade upgrade_;
    websocket::stream<Transport> ws_;
    std::uint64_t client_;
    asio::steady_timer wake_;  // never expires; cancelled to wake the writer
    WriteWatch watch_;
    Flow flow_;
    Outbox outbox_;
    Clock::time_point began_ = Clock::now();
    Channel channel_;
    Clock::time_point expires_at_;
    Clock::time_point closing_since_{};
    websocket::close_code drain_code_ = websocket::close_code::going_away;
    int close_code_ = kOpen;
    std::string close_reason_;
    std::uint64_t bytes_in_ = 0;
    std::uint64_t bytes_out_ = 0;
    bool is_writing_ = false;
    bool is_gone_ = false;
    bool is_draining_ = false;
};

void WsSession::accept_options() {
    const Limits& limits = core_.options.limits;
    websocket::stream_base::timeout timeouts{};
    timeouts.handshake_timeout = limits.head_timeout;
    timeouts.idle_timeout = limits.ws_idle_timeout;
    timeouts.keep_alive_pings = true;  // at half of the idle time
    ws_.set_option(timeouts);
    ws_.set_option(
        websocket::stream_base::decorator{[id = upgrade_.log_id, protocol = upgrade_.subprotocol](
                                              websocket::response_type& response) {
            response.set("X-Request-Id", id);
            if (!protocol.empty())
                response.set(beast::http::field::sec_websocket_protocol, protocol);
        }});
    ws_.read_message_max(limits.max_frame_bytes);
    ws_.auto_fragment(false);  // one event, one frame
    ws_.text(true);
}

asio::awaitable<void> WsSession::read() {
    accept_options();
    const auto [accept_ec] = co_await ws_.async_accept(upgrade_.request, kNoThrow);
    if (accept_ec) {
        close_code_ = kNoCloseFrame;
        co_return;
    }
    asio::co_spawn(
        core_.io,
        [self = shared_from_this()]() -> asio::awaitable<void> { co_await self->write(); },
        asio::detached);
    beast::flat_buffer buffer;
    beast::error_code end;
    for (;;) {
        const auto [ec, n] = co_await ws_.async_read(buffer, kNoThrow);
        end = ec;
        if (ec) break;
        bytes_in_ += n;
        if (close_code_ != kOpen) {  // read on for the peer's close frame, heed nothing else
            buffer.consume(n);
            continue;
        }
        if (!ws_.got_text()) {
            close(websocket::close_code::unknown_data, "binary");
            wake_.cancel();
        } else {
            const std::string_view text{static_cast<const char*>(buffer.data().data()), n};
            if (core_.options.on_message) core_.options.on_message(upgrade_.log_id, text);
            channel_.on_message(text);
        }
        buffer.consume(n);
        if (buffer.capacity() > (16U << 10U)) buffer.shrink_to_fit();
    }
    if (close_code_ == kOpen) {
        const auto code = ws_.reason().code;
        close_code_ = code == websocket::close_code::none ? kNoCloseFrame : static_cast<int>(code);
    }
    is_gone_ = true;
    channel_.leave();
    wake_.cancel();
    // A frame that broke the rules was answered by a close frame, which has to arrive.
    if (end.category() == beast::error_code{websocket::error::closed}.category() && end != websocket::error::closed)
        co_await ws_.next_layer().linger();
    ws_.next_layer().close();
}

asio::awaitable<void> WsSession::write() {
    while (!is_gone_) {
        if (outbox_.empty()) {
            if (close_code_ != kOpen) break;
            end_if_idle();
            if (close_code_ == kOpen) co_await wake_.async_wait(kNoThrow);
            continue;
        }
        const std::string event = outbox_.pop();
        const asio::const_buffer bytes = asio::buffer(event);
        watch_.begin(Clock::now());
        is_writing_ = true;
        const auto [ec, n] = co_await ws_.async_write(bytes, kNoThrow);
        is_writing_ = false;
        watch_.end();
        if (ec) {
            drop();
            co_return;
        }
        bytes_out_ += n;
    }
    if (is_gone_) co_return;
    const websocket::close_reason reason{static_cast<websocket::close_code>(close_code_),
                                         close_reason_};
    co_await ws_.async_close(reason, kNoThrow);
}

void WsSession::sweep(Clock::time_point now) {
    if (is_gone_) return;
    const Limits& limits = core_.options.limits;
    if (watch_.has_stalled(ws_.next_layer().socket().native_handle(), now,
                           limits.write_stall_timeout)) {
        if (close_code_ == kOpen) close_code_ = kNoCloseFrame;
        core_.metrics.slow_clients_dropped.add();
        core_.report(upgrade_.log_id + " dropped: the client took no byte for too long");
        return drop();
    }
    if (flow_.has_stalled(now, limits.pause_timeout) && close_code_ == kOpen) {
        core_.metrics.slow_clients_dropped.add();
        core_.report(upgrade_.log_id + " dropped: the client has not read what waits for it for too long");
        channel_.leave();
        close(websocket::close_code::policy_error, "slow_consumer");
        wake_.cancel();
    }
    if (close_code_ != kOpen) {
        if (now - closing_since_ > limits.close_timeout) drop();
        return;
    }
    if (now < expires_at_) return;
    channel_.expire();
    if (is_idle()) {
        close(websocket::close_code::going_away, "connection_age");
        wake_.cancel();
    }
}

void WsSession::log() const {
    if (!core_.options.on_access) return;
    AccessRecord record;
    record.id = upgrade_.log_id;
    record.peer = upgrade_.address;
    record.key_label = upgrade_.key_label;
    record.method = "GET";
    record.path = upgrade_.path;
    record.status = 101;
    record.close_code = close_code_;
    record.bytes_in = bytes_in_;
    record.bytes_out = bytes_out_;
    record.responses = channel_.num_responses();
    record.duration = std::chrono::duration_cast<milliseconds>(Clock::now() - began_);
    core_.options.on_access(record);
}

}  // namespace

void start_ws_session(Core& core, Sessions& sessions, Transport transport, WsUpgrade upgrade) {
    const auto session =
        std::make_shared<WsSession>(core, sessions, std::move(transport), std::move(upgrade));
    asio::co_spawn(
        core.io, [session]() -> asio::awaitable<void> { co_await session->read(); },
        asio::detached);
}

}  // namespace server
