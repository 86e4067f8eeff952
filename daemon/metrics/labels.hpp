#pragma once

#include <cstdint>

/// The values of the labels that are closed sets. Order is that of the words in families.cpp.
namespace metrics {

enum class Api : std::uint8_t { responses, chat, completions };
enum class Transport : std::uint8_t { ws, http, sse };
enum class Outcome : std::uint8_t { ok, length, stop, tool, cancelled, error, rejected, deadline };
enum class Rejection : std::uint8_t {
    queue_full,
    context,
    memory,
    auth,
    draining,
    not_verified,
    invalid
};
enum class Direction : std::uint8_t { in, out };
enum class Stage : std::uint8_t {
    parse,
    template_,
    tokenize,
    schedule,
    prefill,
    decode,
    detok,
    send
};
enum class Phase : std::uint8_t { prefill, decode };
enum class PromptSource : std::uint8_t { computed, prefix_hit, external };
enum class Waste : std::uint8_t { disconnect, preempt, stop_overrun };
enum class BlockState : std::uint8_t { used, cached, free };
enum class SlowClient : std::uint8_t { paused, dropped };

}  // namespace metrics
