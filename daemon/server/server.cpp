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
constexpr milliseconds kAcceptPause{100};  // after an error such as no file descriptors left
constexpr milliseconds kLeaveTime{2000};   // for last events and close frames, once all is ended

milliseconds sweep_period(const Limits& limits) {
    const milliseconds shortest =
        std::min({limits.write_stall_timeout, limits.close_timeout, limits.max_connection_age});
    return std::clamp(shortest / 4, kMinSweepPeriod, kMaxSweepPeriod);
}

tcp::acceptor listen(asio::io_context& io, const Options& options) {
    const auto fail = [&](const boost::system::error_code& error) -> base::ConfigError {
        return base::ConfigError{"server.listen: cannot listen on " + options.address + ":" +
                                 std::to_string(options.port) + ": " + error.message()};
    };
    boost::system::error_code ec;
    tcp::resolver resolver{io};
    const auto found =
        resolver.resolve(options.address, std::to_string(options.port), tcp::resolver::passive, ec);
    if (ec) throw fail(ec);
    const tcp::endpoint endpoint = found.begin()->endpoint();
    tcp::acceptor acceptor{io};
    acceptor.open(endpoint.protocol(), ec);
    if (!ec) acceptor.set_option(tcp::acceptor::reuse_address{true}, ec);
    if (!ec) acceptor.bind(endpoint, ec);
    if (!ec) acceptor.listen(asio::socket_base::max_listen_connections, ec);
    if (ec) throw fail(ec);
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
    asio::awaitable<void> sweep();
    asio::awaitable<void> drain(milliseconds deadline);
    asio::awaitable<void> wait_until_idle(Clock::time_point until);

    asio::io_context io{1};
    base::EngineLink& link;
    tcp::acceptor acceptor;
    Core core;
    Sessions sessions;
    asio::steady_timer sweep_timer;
    asio::steady_timer drain_timer;
    std::atomic<bool> is_delivery_posted{false};
    bool is_draining = false;
};

asio::awaitable<void> Server::Impl::accept() {
    const Limits& limits = core.options.limits;
    const ApiError error = overloaded("Too many connections.");
    const std::string body = error_body(error);
    const std::string full =
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: " +
        std::to_string(error.retry_after_seconds) +
        "\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
        body;
    for (;;) {
        auto [ec, socket] = co_await acceptor.async_accept(kNoThrow);
        if (ec == asio::error::operation_aborted) co_return;
        if (ec) {
            asio::steady_timer pause{io, kAcceptPause};
            co_await pause.async_wait(kNoThrow);
            continue;
        }
        boost::system::error_code ignored;
        const auto peer = socket.remote_endpoint(ignored);
        const std::string address = ignored ? std::string{} : peer.address().to_string();
        if (sessions.size() >= limits.max_connections ||
            sessions.num_from(address) >= limits.max_connections_per_address) {
            // Too many to be served one by one: an answer that fits the socket's buffer.
            socket.non_blocking(true, ignored);
            socket.write_some(asio::buffer(full), ignored);
            socket.shutdown(tcp::socket::shutdown_send, ignored);
            continue;
        }
        start_http_session(core, sessions, std::move(socket));
    }
}

asio::awaitable<void> Server::Impl::sweep() {
    const milliseconds period = sweep_period(core.options.limits);
    for (;;) {
        sweep_timer.expires_after(period);
        const auto [ec] = co_await sweep_timer.async_wait(kNoThrow);
        if (ec) co_return;
        sessions.for_each([now = Clock::now()](Session& session) { session.sweep(now); });
    }
}

asio::awaitable<void> Server::Impl::wait_until_idle(Clock::time_point until) {
    while (sessions.is_any_busy() && Clock::now() < until) {
        drain_timer.expires_after(kDrainPoll);
        co_await drain_timer.async_wait(kNoThrow);
    }
}

asio::awaitable<void> Server::Impl::drain(milliseconds deadline) {
    core.state.set(base::ServiceState::Phase::draining, "draining");
    const auto until = Clock::now() + deadline;
    sessions.for_each([](Session& session) { session.drain(); });
    // New connections are still answered, with 503, so that balancers see why.
    co_await wait_until_idle(until);
    boost::system::error_code ignored;
    acceptor.close(ignored);
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
    // Whatever is still open goes, and with it what it asked for; cancels are the last words.
    impl.sessions.for_each([](Session& session) { session.drop(); });
    impl.io.restart();
    impl.sweep_timer.cancel();
    impl.drain_timer.cancel();
    boost::system::error_code ignored;
    impl.acceptor.close(ignored);
    impl.io.poll();
}

void Server::drain(milliseconds deadline) {
    asio::post(impl_->io, [impl = impl_.get(), deadline] {
        if (std::exchange(impl->is_draining, true)) return;
        asio::co_spawn(impl->io, impl->drain(deadline), asio::detached);
    });
}

void Server::stop() {
    impl_->io.stop();
}

}  // namespace server
