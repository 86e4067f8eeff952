#include "daemon/metrics/families.hpp"

#include <array>

namespace metrics {
namespace {

using Words = std::string_view[];

constexpr Words kApi = {"responses", "chat", "completions"};
constexpr Words kTransport = {"ws", "http", "sse"};
constexpr Words kOutcome = {"ok",        "length", "stop",     "tool",
                            "cancelled", "error",  "rejected", "deadline"};
constexpr Words kRejection = {"queue_full", "context",      "memory", "auth",
                              "draining",   "not_verified", "invalid"};
constexpr Words kDirection = {"in", "out"};
constexpr Words kStage = {"parse",   "template", "tokenize", "schedule",
                          "prefill", "decode",   "detok",    "send"};
constexpr Words kPhase = {"prefill", "decode"};
constexpr Words kPromptSource = {"computed", "prefix_hit", "external"};
constexpr Words kWaste = {"disconnect", "preempt", "stop_overrun"};
constexpr Words kBlockState = {"used", "cached", "free"};
constexpr Words kSlowClient = {"paused", "dropped"};

constexpr Label kRequestLabels[] = {
    {"api", kApi}, {"transport", kTransport}, {"outcome", kOutcome}};
constexpr Label kRejectionLabels[] = {{"reason", kRejection}};
constexpr Label kTransportLabels[] = {{"transport", kTransport}};
constexpr Label kDirectionLabels[] = {{"dir", kDirection}};
constexpr Label kCloseLabels[] = {{"code"}};
constexpr Label kStageLabels[] = {{"stage", kStage}};
constexpr Label kPhaseLabels[] = {{"phase", kPhase}};
constexpr Label kPromptLabels[] = {{"source", kPromptSource}};
constexpr Label kWasteLabels[] = {{"reason", kWaste}};
constexpr Label kBlockLabels[] = {{"state", kBlockState}};
constexpr Label kSlowClientLabels[] = {{"action", kSlowClient}};
constexpr Label kVerificationLabels[] = {{"component"}, {"plugin"}};
constexpr Label kPluginLabels[] = {{"plugin"}, {"abi"}, {"build_id"}, {"component"}};
constexpr Label kPlanLabels[] = {{"layer_class"}, {"phase"}, {"plugin"}, {"dtype"}};
constexpr Label kMemoryLabels[] = {{"device"}, {"kind"}};
constexpr Label kDeviceLabels[] = {{"device"}};
constexpr Label kKeyLabels[] = {{"key"}};
constexpr Label kKeyTokenLabels[] = {{"key"}, {"kind"}};
constexpr Label kKeyRejectionLabels[] = {{"key"}, {"reason"}};
constexpr Words kLog = {"log", "access"};
constexpr Label kLogLabels[] = {{"log", kLog}};
constexpr Label kBuildLabels[] = {{"version"}, {"commit"}};
constexpr Label kHashLabels[] = {{"hash"}};

// Seconds. 0.32, 0.64, 2.56 and 5.12 s are the usual limits of service objectives.
constexpr double kTtft[] = {.001, .0025, .005, .01,  .02,   .04,   .08,   .16,   .32,
                            .64,  1.28,  2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84};
constexpr double kItl[] = {.0005, .001, .002, .003, .004, .006, .008, .01, .015, .02, .03,
                           .04,   .06,  .08,  .1,   .15,  .2,   .4,   .8,  1.6,  3.2};

template <std::size_t n>
constexpr std::array<double, n> doubling(double first) {
    std::array<double, n> out{};
    for (double& bound : out) {
        bound = first;
        first *= 2;
    }
    return out;
}
constexpr auto kRequest = doubling<20>(.01);      // to 5243 s
constexpr auto kStep = doubling<18>(50e-6);       // to 6.6 s
constexpr auto kBatch = doubling<11>(1);          // to 1024 sequences
constexpr auto kQueueBytes = doubling<14>(1024);  // to 8 MiB
constexpr double kLength[] = {1,    2,    5,    10,    20,    50,    100,    200,   500,
                              1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000};

constexpr double kNanoseconds = 1e-9;

// clang-format off
constexpr std::array<FamilyRow, kNumFamilies> kFamilies = {{
    // ---- traffic
    {Family::requests_total, "requests_total", Type::counter,
     "Requests answered, by how they ended.", kRequestLabels, {}, 1, true},
    {Family::requests_rejected_total, "requests_rejected_total", Type::counter,
     "Requests refused before they reached the engine, by reason.", kRejectionLabels},
    {Family::requests_running, "requests_running", Type::gauge,
     "Sequences that hold KV blocks.", {}, {}, 1, true},
    {Family::requests_waiting, "requests_waiting", Type::gauge,
     "Requests that wait for admission.", {}, {}, 1, true},
    {Family::connections, "connections", Type::gauge,
     "Open connections; sse counts the http ones that stream.", kTransportLabels},
    {Family::ws_streams, "ws_streams", Type::gauge,
     "Responses in flight on WebSocket connections."},
    {Family::ws_messages_total, "ws_messages_total", Type::counter,
     "WebSocket messages.", kDirectionLabels},
    {Family::ws_close_total, "ws_close_total", Type::counter,
     "WebSocket connections ended, by close code; 1006 stands for no close frame.", kCloseLabels},
    // ---- latency
    {Family::time_to_first_token_seconds, "time_to_first_token_seconds", Type::histogram,
     "From the request received whole to its first token handed to the socket.", {}, kTtft, 1, true},
    {Family::inter_token_latency_seconds, "inter_token_latency_seconds", Type::histogram,
     "Between two tokens of one sequence.", {}, kItl, 1, true},
    {Family::time_per_output_token_seconds, "time_per_output_token_seconds", Type::histogram,
     "Mean time between tokens of one request, first token excluded.", {}, kItl, 1, true},
    {Family::request_duration_seconds, "request_duration_seconds", Type::histogram,
     "From the request received whole to its last event.", {}, kRequest, 1, true},
    {Family::queue_duration_seconds, "queue_duration_seconds", Type::histogram,
     "From the request received whole to its admission by the engine.", {}, kTtft, 1, true},
    {Family::stage_duration_seconds, "stage_duration_seconds", Type::histogram,
     "Time in one stage of a request.", kStageLabels, kTtft},
    {Family::step_duration_seconds, "step_duration_seconds", Type::histogram,
     "One engine step; phase prefill when it held any prompt chunk.", kPhaseLabels, kStep},
    // ---- tokens
    {Family::prompt_tokens_total, "prompt_tokens_total", Type::counter,
     "Prompt tokens admitted, by where their KV came from.", kPromptLabels, {}, 1, true},
    {Family::generation_tokens_total, "generation_tokens_total", Type::counter,
     "Tokens generated.", {}, {}, 1, true},
    {Family::wasted_tokens_total, "wasted_tokens_total", Type::counter,
     "Tokens computed that nobody received.", kWasteLabels},
    {Family::prompt_length_tokens, "prompt_length_tokens", Type::histogram,
     "Prompt tokens of a request.", {}, kLength, 1, true},
    {Family::generation_length_tokens, "generation_length_tokens", Type::histogram,
     "Generated tokens of a request.", {}, kLength, 1, true},
    // ---- KV cache and scheduler
    {Family::kv_cache_usage_ratio, "kv_cache_usage_ratio", Type::gauge,
     "KV blocks held by sequences, as a share of all."},
    {Family::kv_blocks, "kv_blocks", Type::gauge,
     "KV blocks by state.", kBlockLabels},
    {Family::kv_block_size_tokens, "kv_block_size_tokens", Type::gauge,
     "Tokens in one KV block."},
    {Family::prefix_cache_queries_tokens_total, "prefix_cache_queries_tokens_total", Type::counter,
     "Prompt tokens looked up in the prefix cache."},
    {Family::prefix_cache_hits_tokens_total, "prefix_cache_hits_tokens_total", Type::counter,
     "Prompt tokens found in the prefix cache."},
    {Family::preemptions_total, "preemptions_total", Type::counter,
     "Sequences whose blocks were taken, to be prefilled again."},
    {Family::batch_tokens, "batch_tokens", Type::histogram,
     "Tokens in one step, prefill and decode together.", {}, kLength},
    {Family::batch_sequences, "batch_sequences", Type::histogram,
     "Sequences in one step.", {}, kBatch},
    // ---- back-pressure
    {Family::stream_send_queue_bytes, "stream_send_queue_bytes", Type::histogram,
     "Bytes waiting for a client's socket when an event was added.", {}, kQueueBytes},
    {Family::stream_stalls_total, "stream_stalls_total", Type::counter,
     "Times a client's queue passed its high mark."},
    {Family::stream_stall_seconds_total, "stream_stall_seconds_total", Type::counter,
     "Time that clients' queues spent above the high mark.", {}, {}, kNanoseconds},
    {Family::slow_client_actions_total, "slow_client_actions_total", Type::counter,
     "What was done about clients that do not read.", kSlowClientLabels},
    {Family::cancel_latency_seconds, "cancel_latency_seconds", Type::histogram,
     "From a client's leaving to the engine's freeing what the request held.", {}, kTtft},
    // ---- verification
    {Family::verification_state, "verification_state", Type::gauge,
     "0 not run, 1 running, 2 passed, 3 failed.", kVerificationLabels, {}, 1, true},
    {Family::verification_duration_seconds, "verification_duration_seconds", Type::histogram,
     "One run of the assay.", {}, kRequest},
    // ---- plugins
    {Family::plugin_info, "plugin_info", Type::gauge,
     "Loaded plugins; always 1.", kPluginLabels},
    {Family::backend_plan_info, "backend_plan_info", Type::gauge,
     "Which plugin serves what; always 1.", kPlanLabels, {}, 1, true},
    // ---- resources and process
    {Family::device_memory_bytes, "device_memory_bytes", Type::gauge,
     "Device memory by use.", kMemoryLabels},
    {Family::load_bytes_total, "load_bytes_total", Type::counter,
     "Model bytes read."},
    {Family::load_duration_seconds, "load_duration_seconds", Type::gauge,
     "Time the last model load took."},
    {Family::device_errors_total, "device_errors_total", Type::counter,
     "Errors that a device plugin reported."},
    // ---- API keys, by label; those beyond the first 50 labels of the file are "other"
    {Family::key_requests_running, "key_requests_running", Type::gauge,
     "Answers of a key's that run or wait.", kKeyLabels},
    {Family::key_requests_total, "key_requests_total", Type::counter,
     "Answers begun for a key.", kKeyLabels},
    {Family::key_tokens_total, "key_tokens_total", Type::counter,
     "Tokens of a key's prompts and answers.", kKeyTokenLabels},
    {Family::key_rejected_total, "key_rejected_total", Type::counter,
     "Requests refused for a limit of their key.", kKeyRejectionLabels},
    {Family::log_lines_dropped_total, "log_lines_dropped_total", Type::counter,
     "Log lines that could not be written in time, or not at all.", kLogLabels},
    {Family::build_info, "build_info", Type::gauge,
     "This build; always 1.", kBuildLabels},
    {Family::config_hash_info, "config_hash_info", Type::gauge,
     "The configuration in effect; always 1.", kHashLabels},
    {Family::ready, "ready", Type::gauge,
     "1 while requests are accepted."},
    {Family::uptime_seconds, "uptime_seconds", Type::gauge,
     "Time since the process started."},
    {Family::metrics_errors_total, "metrics_errors_total", Type::counter,
     "Values that made no sense and were not counted."},
}};
// clang-format on

constexpr bool rows_are_in_order() {
    for (std::size_t i = 0; i < kFamilies.size(); ++i)
        if (static_cast<std::size_t>(kFamilies[i].family) != i) return false;
    return true;
}
static_assert(rows_are_in_order());

constexpr Alias kVllmAliases[] = {
    {"vllm:num_requests_running", Family::requests_running},
    {"vllm:num_requests_waiting", Family::requests_waiting},
    {"vllm:kv_cache_usage_perc", Family::kv_cache_usage_ratio},
    {"vllm:time_to_first_token_seconds", Family::time_to_first_token_seconds},
    {"vllm:inter_token_latency_seconds", Family::inter_token_latency_seconds},
    {"vllm:e2e_request_latency_seconds", Family::request_duration_seconds},
    {"vllm:request_queue_time_seconds", Family::queue_duration_seconds},
    {"vllm:generation_tokens_total", Family::generation_tokens_total},
    {"vllm:num_preemptions_total", Family::preemptions_total},
};

}  // namespace

std::span<const FamilyRow, kNumFamilies> families() {
    return kFamilies;
}

const FamilyRow& row(Family family) {
    return kFamilies[static_cast<std::size_t>(family)];
}

std::size_t num_closed_series(const FamilyRow& row) {
    std::size_t product = 1;
    for (const Label& label : row.labels) product *= label.values.size();
    return product;
}

bool is_open(const FamilyRow& row) {
    return num_closed_series(row) == 0;
}

std::span<const Alias> vllm_aliases() {
    return kVllmAliases;
}

}  // namespace metrics
