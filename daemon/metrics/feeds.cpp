#include "daemon/metrics/feeds.hpp"

#include <string>

namespace metrics {
namespace {

template <class Word>
std::size_t index(Word word) {
    return static_cast<std::size_t>(word);
}

}  // namespace

Engine::Engine(Registry& r)
    : requests_running{r.gauge(Family::requests_running)},
      requests_waiting{r.gauge(Family::requests_waiting)},
      queue_seconds{r.histogram(Family::queue_duration_seconds)},
      step_prefill_seconds{r.histogram(Family::step_duration_seconds, {index(Phase::prefill)})},
      step_decode_seconds{r.histogram(Family::step_duration_seconds, {index(Phase::decode)})},
      prompt_tokens_computed{
          r.counter(Family::prompt_tokens_total, {index(PromptSource::computed)})},
      prompt_tokens_prefix_hit{
          r.counter(Family::prompt_tokens_total, {index(PromptSource::prefix_hit)})},
      generation_tokens{r.counter(Family::generation_tokens_total)},
      wasted_tokens_preempt{r.counter(Family::wasted_tokens_total, {index(Waste::preempt)})},
      kv_usage_ratio{r.gauge(Family::kv_cache_usage_ratio)},
      kv_blocks_used{r.gauge(Family::kv_blocks, {index(BlockState::used)})},
      kv_blocks_cached{r.gauge(Family::kv_blocks, {index(BlockState::cached)})},
      kv_blocks_free{r.gauge(Family::kv_blocks, {index(BlockState::free)})},
      kv_block_size_tokens{r.gauge(Family::kv_block_size_tokens)},
      prefix_cache_queries_tokens{r.counter(Family::prefix_cache_queries_tokens_total)},
      prefix_cache_hits_tokens{r.counter(Family::prefix_cache_hits_tokens_total)},
      preemptions{r.counter(Family::preemptions_total)},
      batch_tokens{r.histogram(Family::batch_tokens)},
      batch_sequences{r.histogram(Family::batch_sequences)},
      device_errors{r.counter(Family::device_errors_total)} {}

Server::Server(Registry& r)
    : ws_streams{r.gauge(Family::ws_streams)},
      time_to_first_token_seconds{r.histogram(Family::time_to_first_token_seconds)},
      inter_token_latency_seconds{r.histogram(Family::inter_token_latency_seconds)},
      time_per_output_token_seconds{r.histogram(Family::time_per_output_token_seconds)},
      request_seconds{r.histogram(Family::request_duration_seconds)},
      prompt_length{r.histogram(Family::prompt_length_tokens)},
      generation_length{r.histogram(Family::generation_length_tokens)},
      wasted_tokens_disconnect{r.counter(Family::wasted_tokens_total, {index(Waste::disconnect)})},
      wasted_tokens_stop_overrun{
          r.counter(Family::wasted_tokens_total, {index(Waste::stop_overrun)})},
      send_queue_bytes{r.histogram(Family::stream_send_queue_bytes)},
      stream_stalls{r.counter(Family::stream_stalls_total)},
      stream_stall_nanoseconds{r.counter(Family::stream_stall_seconds_total)},
      slow_clients_paused{
          r.counter(Family::slow_client_actions_total, {index(SlowClient::paused)})},
      slow_clients_dropped{
          r.counter(Family::slow_client_actions_total, {index(SlowClient::dropped)})},
      cancel_seconds{r.histogram(Family::cancel_latency_seconds)},
      registry_{r} {}

Counter& Server::requests(Api api, Transport transport, Outcome outcome) {
    return registry_.counter(Family::requests_total,
                             {index(api), index(transport), index(outcome)});
}

Counter& Server::rejected(Rejection reason) {
    return registry_.counter(Family::requests_rejected_total, {index(reason)});
}

Gauge& Server::connections(Transport transport) {
    return registry_.gauge(Family::connections, {index(transport)});
}

Counter& Server::ws_messages(Direction direction) {
    return registry_.counter(Family::ws_messages_total, {index(direction)});
}

void Server::ws_closed(int code) {
    // A client chooses its close code: only the registered ones get a series of their own.
    const bool is_known = code >= 1000 && code <= 1015;
    registry_.add_series(Family::ws_close_total, {is_known ? std::to_string(code) : "other"}, 1);
}

Histogram& Server::stage_seconds(Stage stage) {
    return registry_.histogram(Family::stage_duration_seconds, {index(stage)});
}

}  // namespace metrics
