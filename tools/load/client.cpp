#include "client.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <charconv>

namespace load {
namespace asio = boost::asio;
namespace beast = boost::beast;
namespace websocket = beast::websocket;
using asio::ip::tcp;
namespace {

constexpr auto kNoThrow = asio::as_tuple(asio::use_awaitable);
constexpr int kSlowReceiveBytes = 16 << 10;  // the kernel's own buffer would hide a slow reader
constexpr std::uint64_t kMaxDeltasBeforeLeaving = 8;
constexpr auto kRetryAfter = std::chrono::milliseconds{100};
constexpr std::int64_t kStampRange =
    1'000'000'000;  // microseconds, tests/system/null_engine/codec.hpp
constexpr std::size_t kStampChars = 10;

/// The string after `"name":"` in a frame that this server or one like it wrote; "" when there is
/// none.
std::string_view string_after(std::string_view frame, std::string_view key) {
    const auto at = frame.find(key);
    if (at == std::string_view::npos) return {};
    const auto begin = at + key.size();
    const auto end = frame.find('"', begin);
    return end == std::string_view::npos ? std::string_view{} : frame.substr(begin, end - begin);
}

std::string_view type_of(std::string_view frame) {
    return string_after(frame, R"("type":")");
}

bool is_delta(std::string_view type) {
    return type.ends_with(".delta");
}

}  // namespace

Clock::duration Run::exponential(double mean_seconds) {
    if (mean_seconds <= 0) return {};
    const double seconds = std::exponential_distribution<double>{1 / mean_seconds}(random);
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>{seconds});
}

void Run::fail(std::string_view code) {
    if (!is_over()) ++figures.failures[std::string{code.empty() ? "unknown" : code}];
}

void Run::count_delta(std::string_view frame, Clock::time_point now) {
    ++figures.num_deltas;
    std::uint64_t num_tokens = 1;
    if (settings.stamps) {
        const std::string_view text = string_after(frame, R"("delta":")");
        num_tokens = text.size() / kStampChars;
        const std::int64_t now_us =
            std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count() %
            kStampRange;
        for (std::size_t i = 0; i < num_tokens; ++i) {
            std::int64_t stamp = 0;
            std::from_chars(text.data() + i * kStampChars, text.data() + (i + 1) * kStampChars,
                            stamp);
            const std::int64_t age_ns = (now_us - stamp + kStampRange) % kStampRange * 1000;
            figures.token_age.record(age_ns);
            Figures::Step& step = figures.steps[stamp];
            ++step.num_tokens;
            step.last_age_ns = std::max(step.last_age_ns, age_ns);
        }
    }
    figures.num_tokens += num_tokens;
    const auto second = static_cast<std::size_t>(
        std::chrono::duration_cast<std::chrono::seconds>(now - begin).count());
    if (second >= figures.tokens_by_second.size()) figures.tokens_by_second.resize(second + 1);
    figures.tokens_by_second[second] += num_tokens;
}

asio::awaitable<void> Client::sleep_until(Clock::time_point until) {
    timer_.expires_at(std::min(until, run_.end));
    co_await timer_.async_wait(kNoThrow);
}

void Client::close() {
    boost::system::error_code ignored;
    timer_.cancel();
    if (socket_) socket_->next_layer().close(ignored);
}

asio::awaitable<bool> Client::connect() {
    socket_.emplace(run_.io);
    buffer_.clear();
    tcp::socket& tcp_socket = socket_->next_layer();
    boost::system::error_code ec;
    tcp_socket.open(run_.endpoint.protocol(), ec);
    if (!ec && is_slow_)
        tcp_socket.set_option(asio::socket_base::receive_buffer_size{kSlowReceiveBytes}, ec);
    if (!ec) std::tie(ec) = co_await tcp_socket.async_connect(run_.endpoint, kNoThrow);
    if (!ec) tcp_socket.set_option(tcp::no_delay{true}, ec);
    if (!ec) {
        if (!run_.settings.api_key.empty()) {
            socket_->set_option(websocket::stream_base::decorator{
                [key = run_.settings.api_key](websocket::request_type& request) {
                    request.set(beast::http::field::authorization, "Bearer " + key);
                }});
        }
        std::tie(ec) = co_await socket_->async_handshake(
            run_.settings.host + ":" + run_.settings.port, "/v1/responses", kNoThrow);
    }
    if (ec)
        run_.fail("connect: " + ec.message());
    else
        ++run_.figures.num_connected;
    co_return !ec;
}

asio::awaitable<bool> Client::send(std::string_view text) {
    const auto [ec, n] =
        co_await socket_->async_write(asio::buffer(text.data(), text.size()), kNoThrow);
    co_return !ec;
}

asio::awaitable<std::optional<Clock::time_point>> Client::next_request() {
    if (run_.settings.rate <= 0) co_return Clock::now();
    while (run_.due.empty()) {
        if (run_.is_over()) co_return std::nullopt;
        co_await run_.is_due.async_wait(kNoThrow);
    }
    const Clock::time_point due = run_.due.front();
    run_.due.pop_front();
    co_return due;
}

asio::awaitable<void> Client::live(Clock::duration delay) {
    co_await sleep_until(Clock::now() + delay);
    const Settings& settings = run_.settings;
    bool is_connected = false;
    for (int num_asked = 0; !run_.is_over();) {
        if (!is_connected) {
            is_connected = co_await connect();
            if (!is_connected) {
                co_await sleep_until(Clock::now() + kRetryAfter);
                continue;
            }
        }
        if (settings.idle) {  // reads on, so that pings are answered
            const auto [ec, n] = co_await socket_->async_read(buffer_, kNoThrow);
            if (ec) run_.fail("closed");
            is_connected = !ec;
            continue;
        }
        if (settings.requests_per_client > 0 && num_asked == settings.requests_per_client) break;
        const auto due = co_await next_request();
        if (!due) break;
        const Answer answer = co_await ask(*due);
        ++num_asked;
        is_connected = answer == Answer::completed;
        if (!is_connected) {
            boost::system::error_code ignored;
            socket_->next_layer().close(ignored);
        }
        if (settings.mean_think_time > 0)
            co_await sleep_until(Clock::now() + run_.exponential(settings.mean_think_time));
    }
}

asio::awaitable<Client::Answer> Client::ask(Clock::time_point due) {
    const Settings& settings = run_.settings;
    Figures& figures = run_.figures;
    const double choice = run_.uniform();
    const bool is_aborting = choice < settings.abort_share;
    const bool is_cancelling =
        !is_aborting && choice < settings.abort_share + settings.cancel_share;
    const std::uint64_t leave_after =
        is_aborting || is_cancelling ? 1 + run_.random() % kMaxDeltasBeforeLeaving : 0;
    if (!co_await send(run_.create)) {
        run_.fail("closed");
        co_return Answer::failed;
    }
    if (is_slow_ && settings.slow_bytes_per_s <= 0) {
        co_await sleep_until(run_.end);
        co_return Answer::aborted;
    }
    std::uint64_t num_deltas = 0;
    bool is_cancelled = false;
    Clock::time_point last{};
    for (;;) {
        buffer_.consume(buffer_.size());
        const auto [ec, n] = co_await socket_->async_read(buffer_, kNoThrow);
        if (ec) {
            run_.fail("closed");
            co_return Answer::failed;
        }
        const Clock::time_point now = Clock::now();
        const bool counts = run_.counts(now);
        const std::string_view frame{static_cast<const char*>(buffer_.data().data()),
                                     buffer_.size()};
        if (counts) {
            ++figures.num_frames;
            figures.num_bytes += n;
        }
        const std::string_view type = type_of(frame);
        if (is_delta(type)) {
            if (counts) {
                run_.count_delta(frame, now);
                if (num_deltas == 0)
                    figures.ttft.record((now - due).count());
                else
                    figures.itl.record((now - last).count());
            }
            last = now;
            if (++num_deltas == leave_after && is_aborting) {
                if (counts) ++figures.num_aborted;
                co_return Answer::aborted;
            }
            if (num_deltas == leave_after && !is_cancelled) {
                is_cancelled = true;
                if (!co_await send(R"({"type":"response.cancel"})")) co_return Answer::failed;
            }
        } else if (type == "response.completed" || type == "response.incomplete") {
            if (counts) {
                ++(is_cancelled ? figures.num_cancelled : figures.num_completed);
                if (!is_cancelled) figures.duration.record((now - due).count());
            }
            co_return Answer::completed;
        } else if (type == "response.failed" || type == "error") {
            run_.fail(string_after(frame, R"("code":")"));
            if (type == "error" && is_cancelled) continue;  // it had ended before
            co_return Answer::completed;
        }
        if (is_slow_) {
            co_await sleep_until(
                now + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>{
                          static_cast<double>(n) / settings.slow_bytes_per_s}));
        }
        if (run_.is_over()) co_return Answer::aborted;
    }
}

}  // namespace load
