#include "daemon/server/session/http_session.hpp"

#include "daemon/server/core.hpp"
#include "daemon/server/gate.hpp"
#include "daemon/server/ids.hpp"
#include "daemon/server/routes/router.hpp"
#include "daemon/server/session/http_exchange.hpp"
#include "daemon/server/session/session.hpp"
#include "daemon/server/session/write_watch.hpp"
#include "daemon/server/session/ws_session.hpp"
#include "daemon/server/transport/transport.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/chunk_encode.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/rfc7230.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <poll.h>
#include <sys/socket.h>
#include <utility>

namespace server {
namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
namespace {

using Clock = base::Clock;
using Parser = http::request_parser<http::string_body>;
using Header = http::request<http::string_body>;
constexpr auto kNoThrow = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t kWriteBytes = 64U << 10U;         // one chunk of a stream
constexpr std::size_t kMaxPipelinedBytes = 64U << 10U;  // read ahead while an answer is written

std::string_view view(beast::string_view text) {
    return {text.data(), text.size()};
}

/// Whether the peer has closed its end, or reset the connection.
bool has_left(int fd) {
    pollfd descriptor{fd, POLLRDHUP, 0};
    return ::poll(&descriptor, 1, 0) > 0;
}

bool is_base64_of_16_bytes(std::string_view text) {
    constexpr std::string_view kAlphabet =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    return text.size() == 24 && text.ends_with("==") &&
           text.substr(0, 22).find_first_not_of(kAlphabet) == std::string_view::npos;
}

/// A request target: where it is asked for, and of whom where it says that (RFC 9112, 3.2.2).
struct Target {
    std::string_view authority;  ///< "" unless the target is a whole URL
    std::string_view path;       ///< without the query
};

Target split_target(std::string_view target) {
    Target out;
    for (const std::string_view scheme : {"http://", "https://"}) {
        if (!beast::iequals(beast::string_view{target.data(), std::min(target.size(), scheme.size())},
                            beast::string_view{scheme.data(), scheme.size()}))
            continue;
        target.remove_prefix(scheme.size());
        out.authority = target.substr(0, target.find_first_of("/?#"));
        target.remove_prefix(out.authority.size());
        if (target.empty() || target.front() != '/') target = "/";
        break;
    }
    out.path = target.substr(0, target.find_first_of("?#"));
    return out;
}

/// Whether what was read is no HTTP, as opposed to nothing, too little, or too much.
bool is_bad_http(beast::error_code ec) {
    return ec && ec.category() == make_error_code(http::error::bad_method).category() &&
           ec != http::error::end_of_stream && ec != http::error::partial_message &&
           ec != http::error::body_limit;
}

/// One connection, from accept to close or upgrade.
///
/// Held by its coroutine and, while one waits, by the watch on the socket.
class HttpSession final : public Session, public std::enable_shared_from_this<HttpSession> {
public:
    HttpSession(Core& core, Sessions& sessions, Transport transport)
        : core_{core},
          sessions_{sessions},
          stream_{std::move(transport)},
          wake_{stream_.get_executor()},
          client_{core.next_client++} {
        beast::error_code ec;
        const auto peer = stream_.socket().remote_endpoint(ec);
        if (!ec) address_ = peer.address().to_string();
        sessions_.add(*this, address_);
        core_.metrics.connections(metrics::Transport::http).add(1);
        wake_.expires_at(Clock::time_point::max());
    }

    ~HttpSession() override {
        core_.keys.unbind(client_);
        sessions_.remove(*this, address_);
        core_.metrics.connections(metrics::Transport::http).add(-1);
    }

    asio::awaitable<void> run();

    void sweep(Clock::time_point now) override;
    void drain() override {
        is_draining_ = true;
        if (exchange_ == nullptr && !is_reading_body_) drop();
    }
    void abort() override {
        if (const auto job = job_) job->abort();
    }
    void drop() override {
        is_gone_ = true;
        stream_.close();
        notify();
    }
    [[nodiscard]] bool is_busy() const override { return exchange_ != nullptr || is_reading_body_; }

private:
    asio::awaitable<bool> serve_one();
    asio::awaitable<bool> read_body(Parser& parser);
    std::optional<ApiError> check_upgrade(const Header& header) const;
    asio::awaitable<bool> answer(const Header& header, HttpRequest request, Route route);
    asio::awaitable<bool> write_reply(const Header& header, HttpReply reply, bool keep_alive);
    asio::awaitable<bool> write_stream(const Header& header, bool keep_alive);
    asio::awaitable<bool> write_bytes(std::string bytes);
    asio::awaitable<void> refuse(const Header& header, const ApiError& error,
                                 std::string_view extra_name = {},
                                 std::string_view extra_value = {});
    void upgrade(Parser& parser);
    void set_common_headers(http::fields& fields, const Header& header);
    void watch_peer();
    void on_half_close();
    void notify() { wake_.cancel(); }
    [[nodiscard]] bool is_draining() const {
        return is_draining_ || core_.state.phase() == base::ServiceState::Phase::draining;
    }
    void log(const Header& header, int status);

    Core& core_;
    Sessions& sessions_;
    Transport stream_;
    beast::flat_buffer buffer_{1U << 20U};
    asio::steady_timer wake_;  // never expires; cancelled to wake the writer
    WriteWatch watch_;
    std::uint64_t client_;
    std::string address_;
    const ApiKey* key_ = nullptr;
    std::string key_label_;
    std::string log_id_;
    std::unique_ptr<HttpExchange> exchange_;
    std::shared_ptr<HttpJob> job_;
    Clock::time_point received_{};
    Clock::time_point last_write_{};
    std::uint64_t bytes_in_ = 0;
    std::uint64_t bytes_out_ = 0;
    bool is_reading_body_ = false;
    bool is_bad_body_ = false;
    bool is_watching_ = false;
    bool is_half_closed_ = false;  // the peer sends nothing more, and may still read
    bool has_head_ = false;        // of the answer: its bytes are on their way
    bool takes_interim_ = false;   // the request is HTTP/1.1
    bool is_first_ = true;
    bool is_gone_ = false;
    bool is_draining_ = false;
    bool is_upgraded_ = false;
};

asio::awaitable<void> HttpSession::run() {
    stream_.expires_after(core_.options.limits.head_timeout);
    if (const auto ec = co_await stream_.handshake()) {
        core_.count_bad_handshake(address_, ec.message());
        stream_.close();
        co_return;
    }
    for (;;) {
        const bool keep_alive = co_await serve_one();
        job_.reset();
        exchange_.reset();
        if (!keep_alive || is_draining() || is_gone_) break;
        is_first_ = false;
    }
    if (is_upgraded_ || is_gone_) co_return;
    co_await stream_.linger();
}

asio::awaitable<bool> HttpSession::serve_one() {
    const Limits& limits = core_.options.limits;
    Parser parser;
    parser.header_limit(static_cast<std::uint32_t>(limits.max_head_bytes));
    parser.body_limit(limits.max_body_bytes);
    stream_.expires_after(is_first_ ? limits.head_timeout : limits.keep_alive_timeout);
    const auto [ec, n] = co_await http::async_read_header(stream_, buffer_, parser, kNoThrow);
    received_ = Clock::now();
    log_id_ = random_id("req_");
    if (ec == http::error::header_limit || ec == http::error::buffer_overflow) {
        ApiError error =
            invalid_request("request_head_too_large", "", "The request head is too large.");
        error.status = 431;
        co_await refuse(parser.get(), error);
        co_return false;
    }
    if (is_bad_http(ec)) {
        co_await refuse(parser.get(), invalid_request("bad_request", "", "This is not HTTP/1.1."));
        co_return false;
    }
    if (ec && ec != http::error::body_limit) co_return false;  // closed, reset or out of time

    const Header& header = parser.get();
    if (header.version() == 11 && header.count(http::field::host) != 1) {
        co_await refuse(header, invalid_request("bad_request", "",
                                                "An HTTP/1.1 request has one Host header."));
        co_return false;
    }
    const Target target = split_target(view(header.target()));
    const std::string_view path = target.path;
    const Route route = find_route(path);
    const std::string_view origin = view(header[http::field::origin]);
    const std::string_view host =
        target.authority.empty() ? view(header[http::field::host]) : target.authority;
    if (route == Route::none) {
        ApiError error = invalid_request("not_found", "", "There is nothing at this path.");
        error.status = 404;
        co_await refuse(header, error);
        co_return false;
    }
    if (needs_key(route, true)) {
        std::optional<ApiError> error;
        if (!is_origin_allowed(core_.options, origin, host)) error = origin_not_allowed();
        if (!error && !is_host_allowed(core_.options, host)) error = host_not_allowed();
        if (error) {
            core_.count_rejection(*error);
            co_await refuse(header, *error);
            co_return false;
        }
    }
    if (header.method() == http::verb::options && !origin.empty() && needs_key(route, true)) {
        HttpReply reply{.status = 204};  // a browser asks what it may send; origins were checked
        reply.headers.emplace_back("Access-Control-Allow-Methods", allowed_methods(route));
        reply.headers.emplace_back("Access-Control-Allow-Headers", "authorization, content-type");
        reply.headers.emplace_back("Access-Control-Max-Age", "600");
        co_return co_await write_reply(header, std::move(reply), header.keep_alive());
    }
    if (needs_key(route, core_.options.metrics_need_key)) {
        const ApiKey* const key = find_key(core_.options, view(header[http::field::authorization]),
                                           view(header[http::field::sec_websocket_protocol]));
        if (key == nullptr && !core_.options.api_keys.empty()) {
            core_.count_bad_key(address_);
            co_await refuse(header, bad_key());
            co_return false;
        }
        key_ = key;
        key_label_ = key == nullptr ? std::string{} : key->label;
        core_.keys.bind(client_, key);
    }
    if (route == Route::responses && header.method() == http::verb::get) {
        if (const auto error = check_upgrade(header)) {
            core_.count_rejection(*error);
            if (error->status == 426)
                co_await refuse(header, *error, "Upgrade", "websocket");
            else if (error->code == "invalid_upgrade")
                co_await refuse(header, *error, "Sec-WebSocket-Version", "13");
            else
                co_await refuse(header, *error);
            co_return false;
        }
        upgrade(parser);
        co_return false;
    }
    if (ec == http::error::body_limit || !co_await read_body(parser)) {
        if (is_gone_) co_return false;
        if (is_bad_body_) {
            co_await refuse(header, invalid_request("bad_request", "",
                                                    "The body is not what its headers say."));
            co_return false;
        }
        ApiError error = invalid_request(
            "request_too_large", "",
            "The body is larger than " + std::to_string(limits.max_body_bytes) + " bytes.");
        error.status = 413;
        co_await refuse(header, error);
        co_return false;
    }
    received_ = Clock::now();
    HttpRequest request;
    request.method = view(header.method_string());
    request.path = path;
    request.body = std::move(parser.get().body());
    bytes_in_ = request.body.size();
    if (core_.options.on_message && !request.body.empty()) core_.options.on_message(log_id_, request.body);
    request.log_id = log_id_;
    request.key_label = key_label_;
    request.client = client_;
    request.received = received_;
    co_return co_await answer(header, std::move(request), route);
}

/// False when the body is too large or ill-formed (is_bad_body_), or when the peer is gone (is_gone_).
asio::awaitable<bool> HttpSession::read_body(Parser& parser) {
    if (parser.is_done()) co_return true;
    is_reading_body_ = true;
    stream_.expires_after(core_.options.limits.body_timeout);
    if (view(parser.get()[http::field::expect]) == "100-continue") {
        constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
        const asio::const_buffer bytes = asio::buffer(kContinue);
        const auto [ec, n] = co_await asio::async_write(stream_, bytes, kNoThrow);
        if (ec) is_gone_ = true;
    }
    if (!is_gone_) {
        const auto [ec, n] = co_await http::async_read(stream_, buffer_, parser, kNoThrow);
        is_reading_body_ = false;
        if (!ec) co_return true;
        is_bad_body_ = is_bad_http(ec);
        if (ec != http::error::body_limit && !is_bad_body_) is_gone_ = true;
    }
    co_return false;
}

std::optional<ApiError> HttpSession::check_upgrade(const Header& header) const {
    const auto upgrade_refused = [](int status, std::string code, std::string message) {
        ApiError error = invalid_request(std::move(code), "", std::move(message));
        error.status = status;
        return error;
    };
    const bool asks = http::token_list{header[http::field::upgrade]}.exists("websocket") &&
                      http::token_list{header[http::field::connection]}.exists("upgrade");
    if (!core_.options.websocket || !asks) {
        return upgrade_refused(426, "upgrade_required",
                               "Upgrade to a WebSocket here, or use POST.");
    }
    if (header[http::field::sec_websocket_version] != "13")
        return upgrade_refused(400, "invalid_upgrade", "Only WebSocket version 13 is spoken.");
    const beast::string_view key = header[http::field::sec_websocket_key];
    if (!is_base64_of_16_bytes(view(key)))
        return upgrade_refused(400, "invalid_upgrade", "Sec-WebSocket-Key is not 16 bytes.");
    if (header.version() != 11)
        return upgrade_refused(400, "invalid_upgrade", "A WebSocket needs HTTP/1.1.");
    return core_.refusal();
}

void HttpSession::upgrade(Parser& parser) {
    WsUpgrade upgrade;
    Header header = parser.release();
    upgrade.request.method(header.method());
    upgrade.request.target(header.target());
    upgrade.request.version(header.version());
    for (const auto& field : header) upgrade.request.insert(field.name_string(), field.value());
    upgrade.key = key_;
    stream_.put_back({static_cast<const char*>(buffer_.data().data()), buffer_.size()});
    upgrade.log_id = log_id_;
    upgrade.key_label = key_label_;
    upgrade.address = address_;
    upgrade.path = split_target(view(header.target())).path;
    upgrade.subprotocol = choose_subprotocol(view(header[http::field::sec_websocket_protocol]));
    is_upgraded_ = true;
    stream_.cancel();  // a watch left over from an earlier request
    stream_.expires_never();
    start_ws_session(core_, sessions_, std::move(stream_), std::move(upgrade));
}

asio::awaitable<bool> HttpSession::answer(const Header& header, HttpRequest request, Route route) {
    stream_.expires_never();
    last_write_ = Clock::now();
    exchange_ = std::make_unique<HttpExchange>(core_, [this] { notify(); });
    has_head_ = false;
    takes_interim_ = header.version() == 11;
    job_ = serve_request(core_, route, std::move(request), *exchange_);
    if (job_ != nullptr) watch_peer();
    while (!exchange_->has_reply() && exchange_->outbox().empty() && !exchange_->is_finished() &&
           !is_gone_)
        co_await wake_.async_wait(kNoThrow);
    if (is_gone_) {
        log(header, 499);
        co_return false;
    }
    const bool keep_alive = header.keep_alive() && !is_draining();
    has_head_ = true;
    if (exchange_->has_reply()) {
        HttpReply reply = *exchange_->take_reply();
        co_return co_await write_reply(header, std::move(reply), keep_alive);
    }
    core_.metrics.connections(metrics::Transport::sse).add(1);
    const bool is_whole = co_await write_stream(header, keep_alive && header.version() == 11);
    core_.metrics.connections(metrics::Transport::sse).add(-1);
    log(header, is_whole ? 200 : 499);
    co_return is_whole&& keep_alive&& header.version() == 11;
}

void HttpSession::set_common_headers(http::fields& fields, const Header& header) {
    fields.set("X-Request-Id", log_id_);
    const beast::string_view origin = header[http::field::origin];
    if (!origin.empty() && !core_.options.allowed_origins.empty() &&
        is_origin_allowed(core_.options, view(origin), {})) {
        fields.set(http::field::access_control_allow_origin, origin);
        fields.set(http::field::vary, "Origin");
    }
}

asio::awaitable<bool> HttpSession::write_reply(const Header& header, HttpReply reply,
                                               bool keep_alive) {
    http::response<http::string_body> response{static_cast<http::status>(reply.status),
                                               header.version() == 10 ? 10U : 11U};
    set_common_headers(response, header);
    if (!reply.body.empty()) response.set(http::field::content_type, reply.content_type);
    for (const auto& [name, value] : reply.headers) response.set(name, value);
    response.keep_alive(keep_alive);
    const bool is_head = header.method() == http::verb::head;
    const std::size_t body_bytes = reply.body.size();
    response.body() = std::move(reply.body);
    if (reply.status == 204)
        response.erase(http::field::content_length);
    else
        response.content_length(body_bytes);
    http::response_serializer<http::string_body> serializer{response};
    serializer.split(is_head);
    watch_.begin(Clock::now());
    bool is_written = false;
    if (is_head) {
        const auto [ec, n] = co_await http::async_write_header(stream_, serializer, kNoThrow);
        is_written = !ec;
        bytes_out_ += n;
    } else {
        const auto [ec, n] = co_await http::async_write(stream_, serializer, kNoThrow);
        is_written = !ec;
        bytes_out_ += n;
    }
    watch_.end();
    log(header, reply.status);
    co_return is_written&& keep_alive;
}

asio::awaitable<bool> HttpSession::write_stream(const Header& header, bool keep_alive) {
    const bool is_chunked = header.version() == 11;
    http::response<http::empty_body> response{http::status::ok, is_chunked ? 11U : 10U};
    set_common_headers(response, header);
    response.set(http::field::content_type, "text/event-stream; charset=utf-8");
    response.set(http::field::cache_control, "no-cache");
    response.set("X-Accel-Buffering", "no");
    response.keep_alive(keep_alive);
    if (is_chunked) response.chunked(true);
    http::response_serializer<http::empty_body> serializer{response};
    const auto [ec, n] = co_await http::async_write_header(stream_, serializer, kNoThrow);
    if (ec) co_return false;
    Outbox& outbox = exchange_->outbox();
    last_write_ = Clock::now();
    while (!is_gone_) {
        if (outbox.empty()) {
            if (exchange_->is_finished()) break;
            co_await wake_.async_wait(kNoThrow);
            continue;
        }
        std::string bytes = outbox.pop();
        while (!outbox.empty() && bytes.size() < kWriteBytes) bytes += outbox.pop();
        bool is_written = false;
        if (is_chunked) {
            const auto chunk = http::make_chunk(asio::buffer(bytes));
            watch_.begin(Clock::now());
            const auto [write_ec, size] = co_await asio::async_write(stream_, chunk, kNoThrow);
            is_written = !write_ec;
        } else {
            is_written = co_await write_bytes(bytes);
        }
        watch_.end();
        last_write_ = Clock::now();
        bytes_out_ += bytes.size();
        if (!is_written) co_return false;
    }
    if (is_gone_) co_return false;
    if (is_chunked) co_return co_await write_bytes("0\r\n\r\n");
    co_return true;
}

asio::awaitable<bool> HttpSession::write_bytes(std::string bytes) {
    watch_.begin(Clock::now());
    const asio::const_buffer buffer = asio::buffer(bytes);
    const auto [ec, n] = co_await asio::async_write(stream_, buffer, kNoThrow);
    watch_.end();
    co_return !ec;
}

asio::awaitable<void> HttpSession::refuse(const Header& header, const ApiError& error,
                                          std::string_view extra_name,
                                          std::string_view extra_value) {
    HttpReply reply = error_reply(error);
    if (!extra_name.empty()) reply.headers.emplace_back(extra_name, extra_value);
    stream_.expires_after(core_.options.limits.head_timeout);
    co_await write_reply(header, std::move(reply), false);
}

/// Notices a client that leaves while its answer is being generated. Bytes of a next request are
/// kept for it, up to a bound.
void HttpSession::watch_peer() {
    if (is_watching_ || stream_.is_tls()) return;  // what TLS wraps cannot be looked at; see sweep()
    is_watching_ = true;
    stream_.socket().async_wait(
        asio::ip::tcp::socket::wait_read, [self = shared_from_this()](beast::error_code ec) {
            self->is_watching_ = false;
            if (ec || self->job_ == nullptr || self->is_gone_) return;
            if (self->buffer_.size() >= kMaxPipelinedBytes) return;
            const auto space = self->buffer_.prepare(4096);
            const ssize_t n = ::recv(self->stream_.socket().native_handle(), space.data(),
                                     space.size(), MSG_DONTWAIT);
            if (n > 0) self->buffer_.commit(static_cast<std::size_t>(n));
            if (n == 0) return self->on_half_close();
            if (n < 0 && errno != EAGAIN && errno != EINTR) return self->drop();
            self->watch_peer();
        });
}

/// The peer sends nothing more. Either it has left, or it still reads: it may have closed the one
/// direction only. A byte tells, since a peer that has left answers it with a reset: one that no client
/// minds, an interim response before the answer and a comment inside of an event stream. HTTP/1.0 knows
/// neither before its answer, so such a client is believed to read.
void HttpSession::on_half_close() {
    if (std::exchange(is_half_closed_, true)) return;
    stream_.socket().async_wait(asio::ip::tcp::socket::wait_error,
                                [self = shared_from_this()](beast::error_code ec) {
                                    if (!ec && self->job_ != nullptr) self->drop();
                                });
    if (exchange_ == nullptr || exchange_->is_finished()) return;
    if (has_head_) return exchange_->keep_alive();
    if (!takes_interim_) return;
    constexpr std::string_view kProcessing = "HTTP/1.1 102 Processing\r\n\r\n";
    // Nothing else is being written before the head, and so few bytes fit.
    if (::send(stream_.socket().native_handle(), kProcessing.data(), kProcessing.size(),
               MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        drop();
}

void HttpSession::sweep(Clock::time_point now) {
    if (!stream_.socket().is_open() || is_upgraded_) return;
    if (watch_.has_stalled(stream_.socket().native_handle(), now,
                           core_.options.limits.write_stall_timeout)) {
        core_.metrics.slow_clients_dropped.add();
        core_.report(log_id_ + " dropped: the client took no byte for too long");
        return drop();
    }
    if (stream_.is_tls() && job_ != nullptr && has_left(stream_.socket().native_handle())) return drop();
    if (exchange_ != nullptr && exchange_->flow().has_stalled(now, core_.options.limits.pause_timeout)) {
        core_.metrics.slow_clients_dropped.add();
        core_.report(log_id_ + " dropped: the client has not read what waits for it for too long");
        return drop();
    }
    if (exchange_ != nullptr && exchange_->expects_stream() && !exchange_->is_finished() &&
        exchange_->outbox().empty() && now - last_write_ > core_.options.limits.sse_keep_alive) {
        last_write_ = now;
        exchange_->keep_alive();
    }
}

void HttpSession::log(const Header& header, int status) {
    if (!core_.options.on_access) return;
    AccessRecord record;
    record.id = log_id_;
    record.peer = address_;
    record.key_label = key_label_;
    record.method = view(header.method_string());
    record.path = split_target(view(header.target())).path;
    record.status = status;
    record.bytes_in = std::exchange(bytes_in_, 0);
    record.bytes_out = std::exchange(bytes_out_, 0);
    record.duration = std::chrono::duration_cast<milliseconds>(Clock::now() - received_);
    core_.options.on_access(record);
}

}  // namespace

void start_http_session(Core& core, Sessions& sessions, Transport transport) {
    beast::error_code ignored;
    transport.socket().set_option(asio::ip::tcp::no_delay{true}, ignored);
    const auto session = std::make_shared<HttpSession>(core, sessions, std::move(transport));
    asio::co_spawn(
        core.io, [session]() -> asio::awaitable<void> { co_await session->run(); }, asio::detached);
}

}  // namespace server
