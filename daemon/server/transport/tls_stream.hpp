#pragma once

#include "daemon/server/options.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

namespace server {

/// The certificate and the rules of a listener that speaks TLS.
class TlsContext {
public:
    /// Throws base::ConfigError that names the key (tls.certificate, tls.key), the file and the reason.
    explicit TlsContext(const TlsFiles& files);
    ~TlsContext();
    TlsContext(const TlsContext&) = delete;
    TlsContext& operator=(const TlsContext&) = delete;

    /// What an operator should know although it hinders nothing: "the certificate expired …"; or "".
    [[nodiscard]] const std::string& warning() const { return warning_; }

private:
    friend class TlsStream;
    struct Impl;
    std::unique_ptr<Impl> impl_;
    std::string warning_;
};

/// A completion handler of whatever type, called once and on the io thread, which is where every handler
/// of a session belongs.
template <class... Args>
class AnyHandler {
public:
    template <class Handler>
        requires(!std::is_same_v<std::remove_cvref_t<Handler>, AnyHandler>)
    AnyHandler(Handler&& handler)
        : held_{std::make_unique<Held<std::remove_cvref_t<Handler>>>(std::forward<Handler>(handler))} {}

    void operator()(Args... args) { std::exchange(held_, nullptr)->call(args...); }

private:
    struct Base {
        virtual ~Base() = default;
        virtual void call(Args... args) = 0;
    };
    template <class Handler>
    struct Held final : Base {
        explicit Held(Handler h) : handler{std::move(h)} {}
        void call(Args... args) override { std::move(handler)(args...); }
        Handler handler;
    };
    std::unique_ptr<Base> held_;
};

/// TLS over a socket, for a server, with OpenSSL out of sight, so that nothing of Beast is compiled twice.
///
/// As with any asio stream: one read and one write at a time. Thread: io.
class TlsStream {
public:
    using Done = AnyHandler<boost::system::error_code>;
    using DoneSome = AnyHandler<boost::system::error_code, std::size_t>;

    /// `context` and `tcp` outlive the stream.
    [[nodiscard]] static std::unique_ptr<TlsStream> create(const TlsContext& context,
                                                           boost::beast::tcp_stream& tcp);
    virtual ~TlsStream() = default;

    virtual void async_handshake(Done done) = 0;
    virtual void async_shutdown(Done done) = 0;
    virtual void async_read_some(boost::asio::mutable_buffer buffer, DoneSome done) = 0;
    virtual void async_write_some(boost::asio::const_buffer buffer, DoneSome done) = 0;

    /// The beginning of `buffers` as one buffer, for one record. Valid until the next call.
    template <class Buffers>
    [[nodiscard]] boost::asio::const_buffer gather(const Buffers& buffers) {
        const auto begin = boost::asio::buffer_sequence_begin(buffers);
        const auto end = boost::asio::buffer_sequence_end(buffers);
        boost::asio::const_buffer only;
        std::size_t count = 0;
        for (auto it = begin; it != end; ++it) {
            const boost::asio::const_buffer buffer{*it};
            if (buffer.size() == 0) continue;
            only = buffer;
            if (++count > 1 || buffer.size() >= kRecordBytes) break;
        }
        if (count == 1) return only;
        if (gathered_ == nullptr) gathered_ = std::make_unique<std::array<char, kRecordBytes>>();
        return boost::asio::buffer(gathered_->data(),
                                   boost::asio::buffer_copy(boost::asio::buffer(*gathered_), buffers));
    }

private:
    static constexpr std::size_t kRecordBytes = 16U << 10U;  // the most that one record holds
    std::unique_ptr<std::array<char, kRecordBytes>> gathered_;
};

}  // namespace server
