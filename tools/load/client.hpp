#pragma once

#include "figures.hpp"
#include "run.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/websocket/stream.hpp>

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <string>
#include <string_view>

namespace load {

using Clock = std::chrono::steady_clock;

/// What all clients of a run share. One thread.
struct Run {
    const Settings& settings;
    boost::asio::io_context& io;
    boost::asio::ip::tcp::endpoint endpoint;
    std::string create;       ///< the response.create message
    Clock::time_point begin;  ///< of what counts
    Clock::time_point end;
    Figures figures;
    std::mt19937_64 random;
    std::deque<Clock::time_point> due;  ///< open loop: when requests should have begun
    boost::asio::steady_timer is_due;   ///< cancelled once for each

    [[nodiscard]] bool counts(Clock::time_point now) const { return now >= begin && now < end; }
    [[nodiscard]] bool is_over() const { return Clock::now() >= end; }
    [[nodiscard]] double uniform() { return std::uniform_real_distribution<double>{}(random); }
    [[nodiscard]] Clock::duration exponential(double mean_seconds);
    void fail(std::string_view code);
    /// Counts one delta: its tokens, and with time stamps their ages.
    void count_delta(std::string_view frame, Clock::time_point now);
};

/// One WebSocket connection and the requests that are sent on it, one after the other.
class Client {
public:
    Client(Run& run, bool is_slow) : run_{run}, is_slow_{is_slow}, timer_{run.io} {}

    /// Until the run is over. @param delay  before connecting
    boost::asio::awaitable<void> live(Clock::duration delay);
    /// Ends it, whatever it waits for.
    void close();

private:
    using Socket = boost::beast::websocket::stream<boost::asio::ip::tcp::socket, false>;
    enum class Answer : std::uint8_t { completed, failed, aborted };

    boost::asio::awaitable<bool> connect();
    boost::asio::awaitable<std::optional<Clock::time_point>> next_request();
    boost::asio::awaitable<Answer> ask(Clock::time_point due);
    boost::asio::awaitable<bool> send(std::string_view text);
    boost::asio::awaitable<void> sleep_until(Clock::time_point until);

    Run& run_;
    bool is_slow_;
    boost::asio::steady_timer timer_;
    std::optional<Socket> socket_;
    boost::beast::flat_buffer buffer_;
};

}  // namespace load
