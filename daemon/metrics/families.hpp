#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace metrics {

enum class Type : std::uint8_t { counter, gauge, histogram };

/// One row of the table of everything that is exported; see families.cpp.
enum class Family : std::uint8_t {
    requests_total,
    requests_rejected_total,
    requests_running,
    requests_waiting,
    connections,
    ws_streams,
    ws_messages_total,
    ws_close_total,
    time_to_first_token_seconds,
    inter_token_latency_seconds,
    time_per_output_token_seconds,
    request_duration_seconds,
    queue_duration_seconds,
    stage_duration_seconds,
    step_duration_seconds,
    prompt_tokens_total,
    generation_tokens_total,
    wasted_tokens_total,
    prompt_length_tokens,
    generation_length_tokens,
    kv_cache_usage_ratio,
    kv_blocks,
    kv_block_size_tokens,
    prefix_cache_queries_tokens_total,
    prefix_cache_hits_tokens_total,
    preemptions_total,
    batch_tokens,
    batch_sequences,
    stream_send_queue_bytes,
    stream_stalls_total,
    stream_stall_seconds_total,
    slow_client_actions_total,
    cancel_latency_seconds,
    verification_state,
    verification_duration_seconds,
    plugin_info,
    backend_plan_info,
    device_memory_bytes,
    load_bytes_total,
    load_duration_seconds,
    device_errors_total,
    key_requests_running,
    key_requests_total,
    key_tokens_total,
    key_rejected_total,
    log_lines_dropped_total,
    build_info,
    config_hash_info,
    ready,
    uptime_seconds,
    metrics_errors_total,
};
inline constexpr std::size_t kNumFamilies =
    static_cast<std::size_t>(Family::metrics_errors_total) + 1;

/// A label: its values are a closed set known here, or open (empty) and then bounded in number.
struct Label {
    std::string_view name;
    std::span<const std::string_view> values = {};
};

struct FamilyRow {
    Family family;
    std::string_view name;  ///< without the prefix "assay_"
    Type type;
    std::string_view help;
    std::span<const Label> labels = {};
    std::span<const double> bounds = {};  ///< histograms: inclusive upper bounds
    double scale = 1;                     ///< counters: exported value per counted unit
    bool of_model = false;                ///< carries the label `model`, the served name
};

/// All rows, in the order of Family.
[[nodiscard]] std::span<const FamilyRow, kNumFamilies> families();
[[nodiscard]] const FamilyRow& row(Family family);

/// Series of a family whose labels are closed sets: the product of their sizes.
[[nodiscard]] std::size_t num_closed_series(const FamilyRow& row);
/// Whether a label's values are set at run time (Registry::set_series).
[[nodiscard]] bool is_open(const FamilyRow& row);

/// Names that gateways and autoscalers know from vLLM, and the family each stands for.
struct Alias {
    std::string_view name;
    Family family;
};
[[nodiscard]] std::span<const Alias> vllm_aliases();

}  // namespace metrics
