#pragma once

#include "daemon/server/transport/tls_stream.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/core/bind_handler.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/websocket/teardown.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

namespace server {

/// A connection's byte stream: a socket, with or without TLS on it.
///
/// One type for both, so that HTTP and WebSocket are compiled once. A plain connection calls its socket
/// directly; one with TLS goes through TlsStream, which hides OpenSSL.
///
/// Bytes that were read too far can be put in front again (an upgrade request may arrive together with the
/// first frames). Thread: io.
class Transport {
public:
    using executor_type = boost::beast::tcp_stream::executor_type;
    using Error = boost::beast::error_code;

    /// @param tls  null: plain
    Transport(boost::asio::ip::tcp::socket socket, const TlsContext* tls)
        : tcp_{std::make_unique<boost::beast::tcp_stream>(std::move(socket))},
          tls_{tls == nullptr ? nullptr : TlsStream::create(*tls, *tcp_)} {}

    [[nodiscard]] executor_type get_executor() noexcept { return tcp_->get_executor(); }
    [[nodiscard]] boost::asio::ip::tcp::socket& socket() noexcept { return tcp_->socket(); }
    [[nodiscard]] bool is_tls() const noexcept { return tls_ != nullptr; }

    // Deadlines of reads and writes, as those of beast::tcp_stream.
    void expires_after(std::chrono::nanoseconds time) { tcp_->expires_after(time); }
    void expires_never() { tcp_->expires_never(); }
    void cancel() { tcp_->cancel(); }
    /// At once, without a word to the peer.
    void close() { tcp_->close(); }

    /// Shakes hands; at once for a plain connection. Within the deadline set.
    /// @return what went wrong
    [[nodiscard]] boost::asio::awaitable<Error> handshake();
    /// Ends the connection so that the peer gets what was written: a socket closed over unread bytes is
    /// reset. Reads and drops what still comes, for two seconds or 1 MiB.
    [[nodiscard]] boost::asio::awaitable<void> linger();

    /// The next reads give `bytes` first.
    void put_back(std::string bytes) { put_back_ = std::move(bytes); }

    template <class Buffers, class Token>
    auto async_read_some(const Buffers& buffers, Token&& token) {
        return boost::asio::async_initiate<Token, void(Error, std::size_t)>(
            [this](auto handler, const Buffers& target) {
                if (!put_back_.empty()) {
                    const std::size_t n = boost::asio::buffer_copy(target, boost::asio::buffer(put_back_));
                    put_back_.erase(0, n);
                    boost::asio::post(get_executor(),
                                      boost::beast::bind_front_handler(std::move(handler), Error{}, n));
                } else if (tls_ == nullptr) {
                    tcp_->async_read_some(target, std::move(handler));
                } else {
                    tls_->async_read_some(first_of<boost::asio::mutable_buffer>(target), std::move(handler));
                }
            },
            token, buffers);
    }

    template <class Buffers, class Token>
    auto async_write_some(const Buffers& buffers, Token&& token) {
        return boost::asio::async_initiate<Token, void(Error, std::size_t)>(
            [this](auto handler, const Buffers& source) {
                if (tls_ == nullptr) {
                    tcp_->async_write_some(source, std::move(handler));
                } else {
                    // A frame's head and its payload in one record.
                    tls_->async_write_some(tls_->gather(source), std::move(handler));
                }
            },
            token, buffers);
    }

    // How Beast ends the connection under a WebSocket.
    friend void beast_close_socket(Transport& transport) { transport.close(); }
    friend void teardown(boost::beast::role_type role, Transport& transport, Error& ec) {
        boost::beast::websocket::teardown(role, transport.socket(), ec);
    }
    template <class Handler>
    friend void async_teardown(boost::beast::role_type role, Transport& transport, Handler&& handler) {
        if (transport.tls_ == nullptr) {
            // Beast's own reads once and closes; over bytes that are still unread that resets the
            // connection, and the close frame with it. The session lingers instead.
            Error ignored;
            transport.socket().shutdown(boost::asio::ip::tcp::socket::shutdown_send, ignored);
            boost::asio::post(transport.get_executor(),
                              boost::beast::bind_front_handler(std::forward<Handler>(handler), Error{}));
            return;
        }
        transport.expires_after(kGoodbyeTime);
        transport.tls_->async_shutdown(
            [&transport, role, handler = std::forward<Handler>(handler)](Error) mutable {
                boost::beast::websocket::async_teardown(role, transport.socket(), std::move(handler));
            });
    }

private:
    static constexpr std::chrono::seconds kGoodbyeTime{2};

    template <class Buffer, class Buffers>
    static Buffer first_of(const Buffers& buffers) {
        const auto end = boost::asio::buffer_sequence_end(buffers);
        for (auto it = boost::asio::buffer_sequence_begin(buffers); it != end; ++it)
            if (const Buffer buffer{*it}; buffer.size() > 0) return buffer;
        return {};
    }

    std::unique_ptr<boost::beast::tcp_stream> tcp_;  // TlsStream points to it
    std::unique_ptr<TlsStream> tls_;
    std::string put_back_;
};

}  // namespace server
