#include "daemon/server/server.hpp"

#include "daemon/base/engine_link.hpp"
#include "daemon/base/error.hpp"
#include "daemon/base/service_state.hpp"
#include "daemon/server/core.hpp"
#include "daemon/server/session/http_session.hpp"
#include "daemon/server/session/session.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <utility>

namespace server {
namespace asio = boost::asio;
using tcp = asio::ip::tcp;
using Clock = base::Clock;

namespace {

constexpr auto kNoThrow = asio::as_tuple(asio::use_awaitable);
constexpr milliseconds kMaxSweepPeriod{1000};
constexpr milliseconds kMinSweepPeriod{20};
constexpr milliseconds kDrainPoll{10};
constexpr std::size_t kMaxRefusing = 64;     // connections being told that there is no room for them
constexpr milliseconds kRefusalTime{2000};
constexpr milliseconds kAcceptPause{100};  // after an error such as no file descriptors left
constexpr milliseconds kLeaveTime{2000};   // for last events and close frames, once all is ended

/// Counts something for as long as it lives.
class Counted {
public:
    explicit Counted(std::size_t& count) : count_{count} { ++count_; }
    ~Counted() { --count_; }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;

private:
    std::size_t& count_;
};

milliseconds sweep_period(const Limits& limits) {
    const milliseconds shortest =
        std::min({limits.write_stall_timeout, limits.close_timeout, limits.max_connection_age});
    return std::clamp(shortest / 4, kMinSweepPeriod, kMaxSweepPeriod);
}

base::ConfigError cannot_listen(const Options& options, const boost::system::error_code& error) {
    return base::ConfigError{"server.listen: cannot listen on " + options.address + ":" +
                             std::to_string(options.port) + ": " + error.message()};
}

tcp::endpoint resolve(asio::io_context& io, const Options& options) {
    boost::system::error_code ec;
    tcp::resolver resolver{io};
    const auto found =
        resolver.resolve(options.address, std::to_string(options.port), tcp::resolver::passive, ec);
    if (ec) throw cannot_listen(options, ec);
    return found.begin()->endpoint();
}

tcp::acceptor listen(asio::io_context& io, const Options& options) {
    boost::system::error_code ec;
    const tcp::endpoint endpoint = resolve(io, options);
    tcp::acceptor acceptor{io};
    acceptor.open(endpoint.protocol(), ec);
    if (!ec) acceptor.set_option(tcp::acceptor::reuse_address{true}, ec);
    if (!ec) acceptor.bind(endpoint, ec);
    if (!ec) acceptor.listen(asio::socket_base::max_listen_connections, ec);
    if (ec) throw cannot_listen(options, ec);
    return acceptor;
}

}  // namespace

struct Server::Impl {
    Impl(Options options, base::EngineLink& engine_link, base::ServiceState& state,
         metrics::Registry& registry)
        : link{engine_link},
          acceptor{listen(io, options)},
          core{std::move(options), io, engine_link, state, registry},
          sweep_timer{io},
          drain_timer{io} {
        if (core.tls && !core.tls->warning().empty()) core.report(core.tls->warning());
        link.on_events([this] {
            // One post for everything published until the io thread gets to it.
            if (!is_delivery_posted.exchange(true, std::memory_order_acq_rel)) post_delivery();
        });
    }

    void post_delivery() {
        asio::post(io, [this] {
            // An exchange, not a store: whoever still saw `true` published before this, and what it
            // published is seen below. A plain store could pass the reads of deliver().
            is_delivery_posted.exchange(false, std::memory_order_acq_rel);
            if (core.dispatcher.deliver() &&
                !is_delivery_posted.exchange(true, std::memory_order_acq_rel))
                post_delivery();
        });
    }

    asio::awaitable<void> accept();
    asio::awaitable<void> refuse(Transport transport, std::string answer);
    asio::awaitable<void> sweep();
    asio::awaitable<void> drain(milliseconds deadline);
    asio::awaitable<void> wait_until_idle(Clock::time_point until);

    std::size_t num_refusing = 0;  // before io: what waits there counts itself out
    asio::io_context io{1};
    base::EngineLink& link;
    tcp::acceptor acceptor;
    Core core;
    Sessions sessions;
    asio::steady_timer sweep_timer;
    asio::steady_timer drain_timer;
    std::atomic<bool> is_delivery_posted{false};
    std::size_t num_cut = 0;
    bool is_draining = false;
};

/// The whole answer to a connection that there is no room for.
std::string refusal_text(const ApiError& error) {
    const std::string body = error_body(error);
    return "HTTP/1.1 " + std::to_string(error.status) +
           (error.status == 429 ? " Too Many Requests" : " Service Unavailable") +
           "\r\nContent-Type: application/json\r\nRetry-After: " + std::to_string(error.retry_after_seconds) +
           "\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

asio::awaitable<void> Server::Impl::accept() {
    const Limits& limits = core.options.limits;
    const ApiError full = overloaded("Too many connections.");
    const ApiError too_many = too_many_connections("Too many connections from this address.");
    for (;;) {
        auto [ec, socket] = co_await acceptor.async_accept(kNoThrow);
        if (ec == asio::error::operation_aborted) co_return;
        if (ec) {
            core.report_throttled("cannot accept a connection: " + ec.message());
            asio::steady_timer pause{io, kAcceptPause};
            co_await pause.async_wait(kNoThrow);
            continue;
        }
        boost::system::error_code ignored;
        const auto peer = socket.remote_endpoint(ignored);
        const std::string address = ignored ? std::string{} : peer.address().to_string();
        const bool is_full = sessions.size() >= limits.max_connections;
        Transport transport{std::move(socket), core.tls.get()};
        if (!is_full && sessions.num_from(address) < limits.max_connections_per_address) {
            start_http_session(core, sessions, std::move(transport));
            continue;
        }
        const ApiError& error = is_full ? full : too_many;
        core.count_rejection(error);
        core.report_throttled("refused " + address + ": " + error.message);
        if (num_refusing < kMaxRefusing)
            asio::co_spawn(io, refuse(std::move(transport), refusal_text(error)), asio::detached);
        // else closed without a word: there are too many to be served one by one
    }
}

asio::awaitable<void> Server::Impl::refuse(Transport transport, std::string answer) {
    const Counted counted{num_refusing};
    transport.expires_after(kRefusalTime);
    if (co_await transport.handshake()) co_return;
    const auto bytes = asio::buffer(answer);
    const auto [ec, n] = co_await asio::async_write(transport, bytes, kNoThrow);
    if (!ec) co_await transport.linger();
}

asio::awaitable<void> Server::Impl::sweep() {
    const milliseconds period = sweep_period(core.options.limits);
    for (;;) {
        sweep_timer.expires_after(period);
        const auto [ec] = co_await sweep_timer.async_wait(kNoThrow);
        if (ec) co_return;
        sessions.for_each([now = Clock::now()](Session& session) { session.sweep(now); });
        if (!core.options.api_keys.empty()) core.keys.publish(core.registry);
    }
}

asio::awaitable<void> Server::Impl::wait_until_idle(Clock::time_point until) {
    while (sessions.is_any_busy() && Clock::now() < until) {
        drain_timer.expires_after(kDrainPoll);
        co_await drain_timer.async_wait(kNoThrow);
    }
}

asio::awaitable<void> Server::Impl::drain(milliseconds deadline) {
    // Why it failed stays to be seen.
    if (core.state.phase() != base::ServiceState::Phase::failed)
        core.state.set(base::ServiceState::Phase::draining, "draining");
    const auto until = Clock::now() + deadline;
    sessions.for_each([](Session& session) { session.drain(); });
    // New connections are still answered, with 503, so that balancers see why.
    co_await wait_until_idle(until);
    boost::system::error_code ignored;
    acceptor.close(ignored);
    num_cut += core.dispatcher.num_awaited();
    sessions.for_each([](Session& session) { session.abort(); });
    co_await wait_until_idle(Clock::now() + kLeaveTime);
    io.stop();
}

Server::Server(Options options, base::EngineLink& link, base::ServiceState& state,
               metrics::Registry& registry)
    : impl_{std::make_unique<Impl>(std::move(options), link, state, registry)} {}

Server::~Server() {
    impl_->link.on_events(nullptr);
}

std::uint16_t Server::port() const {
    boost::system::error_code ignored;
    return impl_->acceptor.local_endpoint(ignored).port();
}

void Server::set_model(ModelCard card, std::shared_ptr<const TextCodec> codec) {
    impl_->core.set_model(std::move(card), std::move(codec));
}

void Server::run() {
    Impl& impl = *impl_;
    asio::co_spawn(impl.io, impl.accept(), asio::detached);
    asio::co_spawn(impl.io, impl.sweep(), asio::detached);
    impl.io.run();
    // Nothing of the model's text is used once this returns.
    impl.core.helper.stop();
    impl.num_cut += impl.core.dispatcher.num_awaited();
    // Whatever is still open goes, and with it what it asked for; cancels are the last words.
    impl.sessions.for_each([](Session& session) { session.drop(); });
    impl.io.restart();
    impl.sweep_timer.cancel();
    impl.drain_timer.cancel();
    boost::system::error_code ignored;
    impl.acceptor.close(ignored);
    impl.io.poll();
}

std::size_t Server::num_cut() const {
    return impl_->num_cut;
}

void Server::drain(milliseconds deadline) {
    asio::post(impl_->io, [impl = impl_.get(), deadline] {
        if (std::exchange(impl->is_draining, true)) return;
        asio::co_spawn(impl->io, impl->drain(deadline), asio::detached);
    });
}

void check_listener(const Options& options) {
    asio::io_context io;
    static_cast<void>(resolve(io, options));
    if (options.tls) static_cast<void>(TlsContext{*options.tls});
}

void Server::stop() {
    impl_->io.stop();
}

}  // namespace server
