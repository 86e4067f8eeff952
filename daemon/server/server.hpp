#pragma once

#include "daemon/server/options.hpp"
#include "daemon/server/text_codec.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace base {
class EngineLink;
class ServiceState;
}  // namespace base
namespace metrics {
class Registry;
}

namespace server {

/// The daemon's front: one io_context on the thread that calls run(), HTTP and WebSocket sessions,
/// and the io end of the EngineLink.
///
/// It listens from construction on: /healthz answers 200 and /readyz 503 with the reason that the
/// ServiceState gives, until set_model was called and the state is ready.
class Server {
public:
    /// Binds and listens. Throws base::ConfigError when it cannot, naming the address, or the file of
    /// options.tls.
    /// All references must outlive the server. `link` gets its on_events hook set here: the engine
    /// is started afterwards, and stopped before the server is destroyed.
    Server(Options options, base::EngineLink& link, base::ServiceState& state,
           metrics::Registry& registry);
    ~Server();
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    /// The port that is bound.
    [[nodiscard]] std::uint16_t port() const;

    /// What is served from now on. Called before the state becomes ready, and again after a reload.
    /// Any thread.
    void set_model(ModelCard card, std::shared_ptr<const TextCodec> codec);

    /// Serves on the calling thread until drained or stopped.
    void run();

    /// Begins to leave, and makes run() return when done: new requests are refused with 503, idle
    /// connections are closed, what runs may finish for `deadline`; what is left then is ended with
    /// an error. The state is set to draining, unless it says that the engine failed. Any thread; not
    /// from a signal handler.
    void drain(std::chrono::milliseconds deadline);

    /// Makes run() return at once; open connections are dropped and their requests cancelled.
    /// Any thread.
    void stop();

    /// Answers that were ended by the deadline of drain() or by stop(). After run().
    [[nodiscard]] std::size_t num_cut() const;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

/// What stops a start of these options, short of a port that is taken: throws base::ConfigError naming a host
/// that cannot be resolved or a file of options.tls.
void check_listener(const Options& options);

}  // namespace server
