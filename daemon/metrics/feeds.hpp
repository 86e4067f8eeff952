#pragma once

#include "daemon/metrics/labels.hpp"
#include "daemon/metrics/registry.hpp"

namespace metrics {

/// The series that the engine feeds, looked up once. Thread: engine (any, in fact).
struct Engine {
    explicit Engine(Registry& registry);

    Gauge& requests_running;
    Gauge& requests_waiting;
    Histogram& queue_seconds;
    Histogram& step_prefill_seconds;  ///< a step that held any prompt chunk
    Histogram& step_decode_seconds;
    Counter& prompt_tokens_computed;
    Counter& prompt_tokens_prefix_hit;
    Counter& generation_tokens;
    Counter& wasted_tokens_preempt;
    Gauge& kv_usage_ratio;
    Gauge& kv_blocks_used;
    Gauge& kv_blocks_cached;
    Gauge& kv_blocks_free;
    Gauge& kv_block_size_tokens;
    Counter& prefix_cache_queries_tokens;
    Counter& prefix_cache_hits_tokens;
    Counter& preemptions;
    Histogram& batch_tokens;
    Histogram& batch_sequences;
    Counter& device_errors;
};

/// The series that the server feeds. Thread: io.
struct Server {
    explicit Server(Registry& registry);

    Counter& requests(Api api, Transport transport, Outcome outcome);
    Counter& rejected(Rejection reason);
    Gauge& connections(Transport transport);
    Counter& ws_messages(Direction direction);
    void ws_closed(int code);
    Histogram& stage_seconds(Stage stage);

    Gauge& ws_streams;
    Histogram& time_to_first_token_seconds;
    Histogram& inter_token_latency_seconds;
    Histogram& time_per_output_token_seconds;
    Histogram& request_seconds;
    Histogram& prompt_length;
    Histogram& generation_length;
    Counter& wasted_tokens_disconnect;
    Counter& wasted_tokens_stop_overrun;
    Histogram& send_queue_bytes;
    Counter& stream_stalls;
    Counter& stream_stall_nanoseconds;
    Counter& slow_clients_paused;
    Counter& slow_clients_dropped;
    Histogram& cancel_seconds;

private:
    Registry& registry_;
};

/// What the process says about itself. Any thread.
struct Process {
    explicit Process(Registry& registry)
        : registry_{registry},
          load_bytes{registry.counter(Family::load_bytes_total)},
          load_seconds{registry.gauge(Family::load_duration_seconds)} {}

    void set_build(std::string version, std::string commit) {
        registry_.set_series(Family::build_info, {std::move(version), std::move(commit)}, 1);
    }

private:
    Registry& registry_;

public:
    Counter& load_bytes;
    Gauge& load_seconds;
};

}  // namespace metrics
