// null_engine: the daemon's server with an engine that computes nothing. For measuring the server,
// and for clients that need replies word for word. A test program: assayd has no such mode.

#include "daemon/base/engine_link.hpp"
#include "daemon/base/service_state.hpp"
#include "daemon/metrics/registry.hpp"
#include "daemon/server/server.hpp"
#include "tests/system/null_engine/codec.hpp"
#include "tests/system/null_engine/engine.hpp"
#include "tests/system/null_engine/script.hpp"

#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <pthread.h>
#include <signal.h>
#include <string>
#include <thread>

namespace {

constexpr std::size_t kMaxSubmissions = 16384;

struct Arguments {
    double tokens_per_second = 20;
    std::string script;
    std::uint16_t port = 0;
    std::size_t send_high_bytes = server::Limits{}.send_high_bytes;
    std::size_t send_budget_bytes = server::Limits{}.send_budget_bytes;
    std::size_t max_connections = 20000;
};

void run(const Arguments& arguments) {
    const null_engine::Script script =
        arguments.script.empty() ? null_engine::Script{} : null_engine::Script{arguments.script};
    base::EngineLink link{kMaxSubmissions};
    base::ServiceState state;
    metrics::Registry registry;
    server::Options options;
    options.port = arguments.port;
    options.limits.max_connections = arguments.max_connections;
    options.limits.max_connections_per_address = arguments.max_connections;
    options.limits.send_high_bytes = arguments.send_high_bytes;
    options.limits.send_budget_bytes = arguments.send_budget_bytes;
    options.on_problem = [](std::string_view line) {
        std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
    };
    server::Server server{options, link, state, registry};
    server.set_model(
        {.id = "null", .created = 1790000000, .context_length = 1 << 20, .fingerprint = "fp_null"},
        std::make_shared<null_engine::Codec>(script.words(), script.format()));
    std::thread io{[&server] {
        ::pthread_setname_np(::pthread_self(), "io");
        server.run();
    }};
    {
        using Seconds = std::chrono::duration<double>;
        const auto period = arguments.tokens_per_second > 0
                                ? std::chrono::duration_cast<std::chrono::nanoseconds>(
                                      Seconds{1 / arguments.tokens_per_second})
                                : std::chrono::nanoseconds{0};
        const null_engine::Engine engine{link, script, period};
        state.set(base::ServiceState::Phase::ready, "ready");
        std::printf("listening %u\n", server.port());
        std::fflush(stdout);
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGTERM);
        sigaddset(&set, SIGINT);
        int signal = 0;
        ::sigwait(&set, &signal);
        std::printf("tokens %llu live %zu paused %zu\n",
                    static_cast<unsigned long long>(engine.num_tokens()), engine.num_live(),
                    engine.num_paused());
        server.stop();
        io.join();
    }
}

}  // namespace

int main(int argc, char** argv) try {
    CLI::App app{"The daemon's server with an engine that computes nothing."};
    Arguments arguments;
    app.add_option("--tokens-per-second", arguments.tokens_per_second,
                   "pace of each stream; 0: as fast as the server takes them")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--script", arguments.script, "replies by heart, JSON (script.hpp)");
    app.add_option("--port", arguments.port, "0: any free one, which is printed");
    app.add_option("--send-high-bytes", arguments.send_high_bytes,
                   "waiting for one socket: above it deltas merge");
    app.add_option("--send-budget-bytes", arguments.send_budget_bytes,
                   "waiting for one socket: above it streams pause");
    app.add_option("--max-connections", arguments.max_connections);
    CLI11_PARSE(app, argc, argv);
    sigset_t set;  // blocked in every thread; run() waits for them
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
    run(arguments);
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "null_engine: %s\n", error.what());
    return 1;
}
