#include "daemon/server/transport/transport.hpp"

#include <boost/asio/use_awaitable.hpp>

#include <array>
#include <tuple>
#include <utility>

namespace server {
namespace asio = boost::asio;
namespace {

constexpr auto kNoThrow = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t kMaxLingerBytes = 1U << 20U;

/// Awaits an operation that takes a handler of void(error_code).
template <class Start>
asio::awaitable<Transport::Error> done(Start start) {
    auto token = kNoThrow;
    const auto [ec] = co_await asio::async_initiate<decltype(token), void(Transport::Error)>(std::move(start), token);
    co_return ec;
}

}  // namespace

asio::awaitable<Transport::Error> Transport::handshake() {
    if (tls_ == nullptr) co_return Error{};
    co_return co_await done([this](auto handler) { tls_->async_handshake(std::move(handler)); });
}

asio::awaitable<void> Transport::linger() {
    tcp_->expires_after(kGoodbyeTime);
    if (tls_ != nullptr)
        std::ignore = co_await done([this](auto handler) { tls_->async_shutdown(std::move(handler)); });
    Error ignored;
    socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
    std::array<char, 16U << 10U> scratch;
    for (std::size_t total = 0; total < kMaxLingerBytes;) {
        const auto [ec, n] = co_await tcp_->async_read_some(asio::buffer(scratch), kNoThrow);
        if (ec) break;
        total += n;
    }
    close();
}

}  // namespace server
