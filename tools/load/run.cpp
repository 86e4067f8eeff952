#include "run.hpp"

#include "client.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include <memory>
#include <stdexcept>
#include <sys/resource.h>
#include <vector>

namespace load {
namespace asio = boost::asio;
namespace json = boost::json;
namespace {

Clock::duration seconds(double value) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>{value});
}

double own_cpu_seconds() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    const auto of = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
    };
    return of(usage.ru_utime) + of(usage.ru_stime);
}

std::string create_message(const Settings& settings) {
    json::object message{{"type", "response.create"},
                         {"model", settings.model},
                         {"input", settings.prompt},
                         {"max_output_tokens", settings.max_output_tokens}};
    if (settings.greedy) message["temperature"] = 0;
    return json::serialize(message);
}

/// Open loop: requests fall due whether clients are free or not.
asio::awaitable<void> arrive(Run& run) {
    asio::steady_timer timer{run.io};
    for (Clock::time_point next = Clock::now(); next < run.end;) {
        timer.expires_at(next);
        co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
        run.due.push_back(next);
        run.is_due.cancel_one();
        next += run.exponential(1 / run.settings.rate);
    }
}

asio::ip::tcp::endpoint resolve(asio::io_context& io, const Settings& settings) {
    boost::system::error_code ec;
    const auto found = asio::ip::tcp::resolver{io}.resolve(settings.host, settings.port, ec);
    if (ec) throw std::runtime_error{settings.host + ":" + settings.port + ": " + ec.message()};
    return found.begin()->endpoint();
}

/// A step counts when a token of it has reached nearly every client.
void summarize_steps(Figures& figures, int num_clients) {
    for (const auto& [stamp, step] : figures.steps)
        if (10 * step.num_tokens >= 9 * static_cast<std::uint64_t>(num_clients))
            figures.last_byte.record(step.last_age_ns);
}

}  // namespace

Figures run(const Settings& settings) {
    asio::io_context io{1};
    const Clock::time_point now = Clock::now();
    const Clock::time_point begin = now + seconds(settings.warm_up);
    Run run{.settings = settings,
            .io = io,
            .endpoint = resolve(io, settings),
            .create = create_message(settings),
            .begin = begin,
            .end = begin + seconds(settings.duration),
            .figures = {},
            .random = std::mt19937_64{settings.seed},
            .due = {},
            .is_due = asio::steady_timer{io, Clock::time_point::max()}};
    std::vector<std::unique_ptr<Client>> clients;
    int num_open = settings.num_clients;
    double cpu_at_begin = 0;
    asio::steady_timer at_begin{io, run.begin};
    at_begin.async_wait([&](boost::system::error_code) { cpu_at_begin = own_cpu_seconds(); });
    asio::steady_timer at_end{io, run.end};
    const auto finish = [&](boost::system::error_code) {
        if (run.figures.seconds > 0) return;
        run.figures.cpu_seconds = own_cpu_seconds() - cpu_at_begin;
        run.figures.seconds =
            std::chrono::duration<double>(std::min(Clock::now(), run.end) - run.begin).count();
        run.is_due.cancel();
        for (const auto& client : clients) client->close();
    };
    at_end.async_wait(finish);
    if (settings.rate > 0) asio::co_spawn(io, arrive(run), asio::detached);
    for (int i = 0; i < settings.num_clients; ++i) {
        const bool is_slow = i < static_cast<int>(settings.slow_share * settings.num_clients);
        clients.push_back(std::make_unique<Client>(run, is_slow));
        asio::co_spawn(io, clients.back()->live(seconds(i / settings.connect_rate)),
                       [&](const std::exception_ptr& error) {
                           if (error) std::rethrow_exception(error);
                           if (--num_open == 0)
                               at_end.cancel();  // every client has done its requests
                       });
    }
    io.run();
    summarize_steps(run.figures, settings.num_clients);
    return std::move(run.figures);
}

}  // namespace load
