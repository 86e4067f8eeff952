#pragma once

#include "figures.hpp"

#include <cstdint>
#include <string>

namespace load {

/// What the clients do. Times in seconds; each `mean` is the mean of an exponential distribution.
struct Settings {
    std::string host = "127.0.0.1";
    std::string port = "8080";
    std::string api_key;  ///< "": none
    std::string model;
    std::string prompt = "Tell me a story about a fox.";
    int max_output_tokens = 64;
    bool greedy = false;  ///< temperature 0

    int num_clients = 8;          ///< connections at once
    double rate = 0;              ///< open loop: requests a second over all clients; 0: closed loop
    double mean_think_time = 0;   ///< closed loop: between an answer and the next request
    int requests_per_client = 0;  ///< 0: until the end
    double warm_up = 1;
    double duration = 10;        ///< behind the warm-up
    double connect_rate = 2000;  ///< handshakes begun a second

    double abort_share = 0;       ///< of requests whose client drops the connection in the middle
    double cancel_share = 0;      ///< of requests that are cancelled in the middle
    double slow_share = 0;        ///< of clients that read slowly
    double slow_bytes_per_s = 0;  ///< how slowly; 0: not at all once they have asked
    bool idle = false;            ///< connect, and ask for nothing
    bool stamps = false;          ///< texts are time stamps of null_engine
    std::uint64_t seed = 1;
};

/// Runs the clients on the calling thread until the end. Failures of requests and connections are
/// figures, not errors. Throws std::runtime_error when the host cannot be resolved.
[[nodiscard]] Figures run(const Settings& settings);

}  // namespace load
