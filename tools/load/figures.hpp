#pragma once

#include "histogram.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

namespace load {

/// What a run measures. Only what happens between warm-up and end counts.
struct Figures {
    Histogram ttft;       ///< from the request (open loop: from when it was due) to its first delta
    Histogram itl;        ///< between two deltas of one stream
    Histogram duration;   ///< of whole responses
    Histogram token_age;  ///< with time stamps: from the engine's step to the client, each token
    Histogram
        last_byte;  ///< with time stamps: from the engine's step to the last client it reached

    std::uint64_t num_completed = 0;  ///< incomplete ones, which end at max_output_tokens, included
    std::uint64_t num_aborted = 0;    ///< the client dropped its connection
    std::uint64_t num_cancelled = 0;  ///< the client sent response.cancel
    std::map<std::string, std::uint64_t> failures;  ///< by code
    std::uint64_t num_deltas = 0;
    std::uint64_t num_tokens = 0;  ///< with time stamps each is counted, otherwise one a delta
    std::uint64_t num_frames = 0;
    std::uint64_t num_bytes = 0;
    std::vector<std::uint64_t> tokens_by_second;

    double seconds = 0;               ///< between warm-up and end
    double cpu_seconds = 0;           ///< what this program itself took meanwhile
    std::uint64_t num_connected = 0;  ///< handshakes that succeeded, in the whole run

    /// Steps of the engine seen so far: how many tokens of it arrived, and when the last did.
    struct Step {
        std::uint64_t num_tokens = 0;
        std::int64_t last_age_ns = 0;
    };
    std::unordered_map<std::int64_t, Step> steps;
};

/// As one JSON object. @param settings  a JSON object that is repeated in it
[[nodiscard]] std::string to_json(const Figures& figures, const std::string& settings);

/// Three panels: the distributions of TTFT and ITL, and throughput over time.
[[nodiscard]] std::string to_svg(const Figures& figures, const std::string& title);

}  // namespace load
