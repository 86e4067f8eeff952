// load: WebSocket clients of /v1/responses, open or closed loop, polite or not; see --help.

#include "run.hpp"

#include <CLI/CLI.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include <cstdio>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>
#include <sys/resource.h>

namespace {

/// Every connection is a file descriptor.
void raise_file_limit() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
}

void write_file(const std::string& path, const std::string& text) {
    std::ofstream out{path};
    out << text;
    if (!out.flush()) throw std::runtime_error{path + ": cannot be written"};
}

std::string settings_json(const load::Settings& s) {
    return boost::json::serialize(boost::json::object{{"clients", s.num_clients},
                                                      {"rate", s.rate},
                                                      {"think_time", s.mean_think_time},
                                                      {"max_output_tokens", s.max_output_tokens},
                                                      {"duration", s.duration},
                                                      {"warm_up", s.warm_up},
                                                      {"abort_share", s.abort_share},
                                                      {"cancel_share", s.cancel_share},
                                                      {"slow_share", s.slow_share},
                                                      {"slow_bytes_per_s", s.slow_bytes_per_s},
                                                      {"idle", s.idle},
                                                      {"seed", s.seed}});
}

}  // namespace

int main(int argc, char** argv) try {
    load::Settings s;
    std::string address = "127.0.0.1:8080";
    std::string json_file;
    std::string svg_file;
    CLI::App app{
        "WebSocket clients of /v1/responses: closed loop (each client asks again when it has its "
        "answer), or\n"
        "open loop with --rate (requests fall due by a Poisson process, and wait where no client "
        "is free).\n"
        "Prints TTFT, ITL and throughput as JSON."};
    app.add_option("--address", address, "HOST:PORT")->capture_default_str();
    app.add_option("--api-key", s.api_key);
    app.add_option("--model", s.model, "its served name")->required();
    app.add_option("--prompt", s.prompt)->capture_default_str();
    app.add_option("--max-output-tokens", s.max_output_tokens)->capture_default_str();
    app.add_flag("--greedy", s.greedy, "temperature 0");
    app.add_option("--clients", s.num_clients, "connections")
        ->capture_default_str()
        ->check(CLI::PositiveNumber);
    app.add_option("--rate", s.rate, "open loop: requests/s of all clients")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--think-time", s.mean_think_time,
                   "closed loop: mean seconds from answer to next request");
    app.add_option("--requests", s.requests_per_client, "each client's; 0: until the end");
    app.add_option("--duration", s.duration, "seconds that count")
        ->capture_default_str()
        ->check(CLI::PositiveNumber);
    app.add_option("--warm-up", s.warm_up, "seconds before them")
        ->capture_default_str()
        ->check(CLI::NonNegativeNumber);
    app.add_option("--connect-rate", s.connect_rate, "handshakes/s")
        ->capture_default_str()
        ->check(CLI::PositiveNumber);
    app.add_option("--abort", s.abort_share, "share of requests dropped in the middle")
        ->check(CLI::Range(0.0, 1.0));
    app.add_option("--cancel", s.cancel_share, "share of requests cancelled in the middle")
        ->check(CLI::Range(0.0, 1.0));
    app.add_option("--slow", s.slow_share, "share of clients that read slowly")
        ->check(CLI::Range(0.0, 1.0));
    app.add_option("--slow-bytes-per-s", s.slow_bytes_per_s, "how slowly; 0: not at all");
    app.add_flag("--idle", s.idle, "connect and ask for nothing");
    app.add_flag("--stamps", s.stamps, "the texts are time stamps of null_engine");
    app.add_option("--seed", s.seed);
    app.add_option("--json", json_file, "where the figures go; default: standard output");
    app.add_option("--svg", svg_file, "where a plot goes");
    CLI11_PARSE(app, argc, argv);
    const auto colon = address.rfind(':');
    if (colon == std::string::npos)
        throw std::runtime_error{"--address: expected HOST:PORT, found " + address};
    s.host = address.substr(0, colon);
    s.port = address.substr(colon + 1);

    raise_file_limit();
    const load::Figures figures = load::run(s);
    const std::string json = load::to_json(figures, settings_json(s));
    if (json_file.empty())
        std::fputs(json.c_str(), stdout);
    else
        write_file(json_file, json);
    if (!svg_file.empty())
        write_file(svg_file, load::to_svg(figures, std::to_string(s.num_clients) + " clients of " +
                                                       address + ", model " + s.model));
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "load: %s\n", error.what());
    return 1;
}
