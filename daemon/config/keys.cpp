#include "daemon/config/keys.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <type_traits>

namespace config {
namespace {

template <auto... Path>
auto& write_member(Config& config) {
    return (config.*....*Path);
}

template <auto... Path>
const auto& read_member(const Config& config) {
    return (config.*....*Path);
}

/// at<&Config::kv, &Kv::block_size>(): that member, whatever its type.
template <auto... Path>
constexpr auto at() {
    using T = std::remove_reference_t<decltype(write_member<Path...>(std::declval<Config&>()))>;
    return Ref<T>{&write_member<Path...>, &read_member<Path...>};
}

template <auto... Path>
constexpr ChoiceRef choice(std::span<const std::string_view> names) {
    using T = std::remove_reference_t<decltype(write_member<Path...>(std::declval<Config&>()))>;
    return {names, [](const Config& config) { return static_cast<int>(read_member<Path...>(config)); },
            [](Config& config, int index) { write_member<Path...>(config) = static_cast<T>(index); }};
}

// In the order of the enumerators.
constexpr std::string_view kKvDtypes[] = {"auto", "f32", "f16", "bf16"};
constexpr std::string_view kAssayDepths[] = {"full", "quick"};
constexpr std::string_view kLogLevels[] = {"trace", "debug", "info", "warn", "error"};
constexpr std::string_view kLogFormats[] = {"text", "json"};
constexpr std::string_view kTlsVersions[] = {"1.2", "1.3"};

constexpr double kMiB = 1 << 20;
constexpr double kTiB = kMiB * kMiB;
constexpr double kDayMs = 86'400'000;
constexpr double kMaxInt = std::numeric_limits<int>::max();
constexpr bool kLive = true;      // a reload changes it while serving
constexpr bool kAtStart = false;  // only a restart does

// clang-format off
constexpr Key kKeys[] = {
    {"server", "listen", at<&Config::server, &Server::listen>(), "", 0, 0, Rule::none, kAtStart,
     "Address and port for WebSocket and HTTP; an IPv6 address stands in brackets, port 0 lets the system choose. "
     "Without server.api_keys_file only loopback addresses are accepted."},
    {"server", "max_connections", at<&Config::server, &Server::max_connections>(), "connections", 1, 1'000'000, Rule::none, kLive,
     "Open connections; further ones are answered with 503. Too small: clients are turned away while the device is idle. "
     "Too large: the limit of open files of the process is reached first."},
    {"server", "max_connections_per_address", at<&Config::server, &Server::max_connections_per_address>(), "connections", 1, 1'000'000, Rule::none, kLive,
     "Open connections from one address; further ones are answered with 429. Behind a proxy on this machine all come from one: keep it at "
     "max_connections there. Too small: users behind one gateway lock each other out. Too large: one client may take every place."},
    {"server", "max_frame_bytes", at<&Config::server, &Server::max_frame_bytes>(), "bytes", 1024, 1024 * kMiB, Rule::none, kLive,
     "One incoming WebSocket message, all its fragments together; a longer one closes the connection with 1009. "
     "Too small: long histories are cut off. Too large: each connection may hold this much memory."},
    {"server", "max_body_bytes", at<&Config::server, &Server::max_body_bytes>(), "bytes", 1024, 1024 * kMiB, Rule::none, kLive,
     "Body of one HTTP request; a longer one is answered with 413. Sizing as for max_frame_bytes."},
    {"server", "max_head_bytes", at<&Config::server, &Server::max_head_bytes>(), "bytes", 1024, kMiB, Rule::none, kLive,
     "Request line and headers of one HTTP request; a longer head is answered with 431. Too small: proxies that add "
     "headers are refused. Too large: half-open connections cost more memory."},
    {"server", "read_timeout_ms", at<&Config::server, &Server::read_timeout>(), "ms", 100, kDayMs, Rule::none, kLive,
     "How long a peer may take to send one request or finish a handshake. Too small: slow uplinks fail. "
     "Too large: silent peers hold connections."},
    {"server", "send_budget_bytes", at<&Config::server, &Server::send_budget_bytes>(), "bytes", 4096, 1024 * kMiB, Rule::none, kLive,
     "Bytes that may wait for one connection's socket before its streams pause; they go on at half of it. Too small: streams "
     "over slow links stop and go. Too large: each stalled reader holds this much memory."},
    {"server", "pause_timeout_ms", at<&Config::server, &Server::pause_timeout>(), "ms", 100, kDayMs, Rule::none, kLive,
     "How long the streams of a connection may stay paused before it is closed with 1008. Too small: a laptop that sleeps "
     "loses its answer. Too large: readers that stalled hold KV blocks until others need them."},
    {"server", "drain_timeout_ms", at<&Config::server, &Server::drain_timeout>(), "ms", 0, kDayMs, Rule::none, kLive,
     "How long running responses may go on after SIGTERM before they are ended. Too small: answers are cut off. "
     "Too large: a restart waits; keep it below the supervisor's own stop time."},
    {"server", "request_timeout_ms", at<&Config::server, &Server::request_timeout>(), "ms", 0, kDayMs, Rule::none, kLive,
     "Time from a request's arrival to its end, after which it is ended with an error; 0: none. Too small: long answers are cut "
     "off. Too large: a model that never stops holds its place until the token limit."},
    {"server", "store_bytes", at<&Config::server, &Server::store_bytes>(), "bytes", 0, 1024 * kMiB, Rule::none, kAtStart,
     "Memory for responses that outlive their connection, so that previous_response_id and item references find them; 0: none do. "
     "Too small: clients that rely on it get previous_response_not_found. Too large: that much memory."},
    {"server", "store_age_ms", at<&Config::server, &Server::store_age>(), "ms", 1000, 30 * kDayMs, Rule::none, kAtStart,
     "How long such a response is kept. Too small: pauses in a conversation lose it. Too large: what users said stays in memory."},
    {"server", "api_keys_file", at<&Config::server, &Server::api_keys_file>(), "", 0, 0, Rule::none, kLive,
     "File (TOML) of API keys, each with its label and limits; conf/keys.toml is an example. Empty: no key is asked for, and only loopback "
     "addresses may be listened on."},
    {"server", "key_in_subprotocol", at<&Config::server, &Server::key_in_subprotocol>(), "", 0, 0, Rule::none, kLive,
     "Whether a page may send its key as the WebSocket subprotocol openai-insecure-api-key.KEY, as browsers can set no header. Such a key "
     "can be read by whoever can read the page."},
    {"server", "allowed_origins", at<&Config::server, &Server::allowed_origins>(), "", 0, 0, Rule::origin, kLive,
     "Web origins, as scheme://host[:port], whose pages may connect besides those served from the same host and port."},
    {"server", "allowed_hosts", at<&Config::server, &Server::allowed_hosts>(), "", 0, 0, Rule::none, kLive,
     "Names under which the daemon may be addressed while no key is asked for, besides loopback ones; \"*\" is any. Too few: a proxy that passes "
     "its own name on gets 403. Too many: a page may reach the daemon under a name of its own (DNS rebinding)."},

    {"tls", "certificate", at<&Config::tls, &Tls::certificate>(), "", 0, 0, Rule::none, kAtStart,
     "PEM file with the server's certificate and those of its issuers, the server's own first. With tls.key; empty: the port speaks plain HTTP."},
    {"tls", "key", at<&Config::tls, &Tls::key>(), "", 0, 0, Rule::none, kAtStart,
     "PEM file with the private key of the certificate, not encrypted."},
    {"tls", "min_version", choice<&Config::tls, &Tls::min_version>(kTlsVersions), "", 0, 0, Rule::none, kAtStart,
     "Oldest version of TLS that is spoken."},

    {"model", "path", at<&Config::model, &Model::path>(), "", 0, 0, Rule::required, kAtStart,
     "The GGUF file to serve; of a split model, any of its parts."},
    {"model", "alias", at<&Config::model, &Model::alias>(), "", 0, 0, Rule::none, kAtStart,
     "The name that clients ask for. Empty: general.name of the file, or the file's name without its ending."},
    {"model", "context_length", at<&Config::model, &Model::context_length>(), "tokens", 0, kMaxInt, Rule::none, kAtStart,
     "Longest prompt and answer together. 0: as long as the model was trained for. Too small: long chats are refused. "
     "Too large: one request may take most of the KV cache."},
    {"model", "chat_template_file", at<&Config::model, &Model::chat_template_file>(), "", 0, 0, Rule::none, kAtStart,
     "A Jinja2 chat template to use in place of the one in the model file. Empty: the model's own."},
    {"model", "pre_tokenizer", at<&Config::model, &Model::pre_tokenizer>(), "", 0, 0, Rule::none, kAtStart,
     "How a BPE model whose file has no tokenizer.ggml.pre, or one that is not known, cuts text into words: the name of a known one. "
     "Empty: such a file is refused, since another one than the model was trained with makes every answer worse without any error."},
    {"model", "allow_unused_tensors", at<&Config::model, &Model::allow_unused_tensors>(), "", 0, 0, Rule::none, kAtStart,
     "Patterns (with * and ?) of tensor names that the model file may hold although nothing uses them. Any other unused tensor refuses the start."},
    {"model", "check_weights", at<&Config::model, &Model::check_weights>(), "", 0, 0, Rule::none, kAtStart,
     "Whether every weight and quantization scale is looked at before serving: a NaN or an infinity refuses the start. Reads the whole file, "
     "at the speed of the disk, which loading does anyway."},
    {"model", "lock_memory", at<&Config::model, &Model::lock_memory>(), "", 0, 0, Rule::none, kAtStart,
     "Whether the weights are locked in memory, so that nothing else can push them out. Needs a limit of locked memory "
     "(LimitMEMLOCK in systemd, ulimit -l) above the size of the model. For devices that compute in host memory."},

    {"plugins", "folders", at<&Config::plugins, &Plugins::folders>(), "", 0, 0, Rule::none, kAtStart,
     "Trusted folders that are searched for plugins. Each is absolute or begins with $ORIGIN, the folder of the executable "
     "(links followed), so that the same line works in a build tree and where the package was installed."},
    {"plugins", "probe_timeout_ms", at<&Config::plugins, &Plugins::probe_timeout>(), "ms", 100, 600'000, Rule::none, kLive,
     "How long a plugin may take to open in a child process before it counts as hanging. Too small: a slow disk or a device "
     "that wakes up makes a good plugin unfit. Too large: a hanging plugin delays the start."},

    {"backends", "device", at<&Config::backends, &Backends::device>(), "", 0, 0, Rule::alternatives, kAtStart,
     "Plugin of the device that computes. A list names alternatives in order of preference."},
    {"backends", "device_ordinal", at<&Config::backends, &Backends::device_ordinal>(), "", 0, 1023, Rule::none, kAtStart,
     "Which device of that kind, counted from 0."},
    {"backends", "quant", at<&Config::backends, &Backends::quant>(), "", 0, 0, Rule::plugin_id, kLive,
     "Plugins of weight formats. All of them are used; the first that knows a format computes with it."},
    {"backends.attention", "prefill", at<&Config::backends, &Backends::attention, &Attention::prefill>(), "", 0, 0, Rule::alternatives, kLive,
     "Attention plugin for queries of several tokens. A list names alternatives in order of preference."},
    {"backends.attention", "decode", at<&Config::backends, &Backends::attention, &Attention::decode>(), "", 0, 0, Rule::alternatives, kLive,
     "Attention plugin for queries of one token. A list names alternatives in order of preference."},

    {"kv", "block_size", at<&Config::kv, &Kv::block_size>(), "tokens", 1, 1024, Rule::power_of_two, kAtStart,
     "Tokens in one block of the KV cache; the attention plugin must support it. Too small: longer block tables and more "
     "bookkeeping a step. Too large: the last block of each sequence wastes more, and shorter prefixes are shared."},
    {"kv", "max_tokens", at<&Config::kv, &Kv::max_tokens>(), "tokens", 0, kTiB, Rule::none, kAtStart,
     "Tokens that the KV cache holds, over all sequences. 0: as many as memory_bytes or memory_fraction allow. Too small: sequences "
     "wait or are computed again. Too large: the start fails for lack of memory."},
    {"kv", "memory_bytes", at<&Config::kv, &Kv::memory_bytes>(), "bytes", 0, kTiB, Rule::none, kAtStart,
     "Memory of the KV cache when max_tokens is 0. 0: memory_fraction decides. Sizing as for max_tokens."},
    {"kv", "memory_fraction", at<&Config::kv, &Kv::memory_fraction>(), "", 0.01, 1, Rule::none, kAtStart,
     "Share of the device memory left after the weights that the KV cache may take when max_tokens and memory_bytes are 0. "
     "Too small: sequences wait. Too large: nothing is left for workspaces and for other programs."},
    {"kv", "dtype", choice<&Config::kv, &Kv::dtype>(kKvDtypes), "", 0, 0, Rule::none, kAtStart,
     "Type of cached keys and values. auto: what the attention plugin prefers. f32 is the most exact, the two others take half its memory."},

    {"scheduler", "max_num_seqs", at<&Config::scheduler, &Scheduler::max_num_seqs>(), "sequences", 1, 65'536, Rule::none, kAtStart,
     "Sequences in one step. Too small: the device is not filled. Too large: each sequence gets its tokens more slowly."},
    {"scheduler", "max_num_batched_tokens", at<&Config::scheduler, &Scheduler::max_num_batched_tokens>(), "tokens", 1, 1'048'576, Rule::none, kAtStart,
     "Tokens in one step, prefill and decode together; at least max_num_seqs. Too small: long prompts take many steps. "
     "Too large: a long prompt delays the next token of everybody else."},
    {"scheduler", "max_waiting", at<&Config::scheduler, &Scheduler::max_waiting>(), "requests", 1, 1'000'000, Rule::none, kLive,
     "Requests that may wait for a place; further ones are answered with 503 and Retry-After. Too small: bursts are turned away. "
     "Too large: requests wait longer than their clients do."},
    {"scheduler", "queue_timeout_ms", at<&Config::scheduler, &Scheduler::queue_timeout>(), "ms", 0, kDayMs, Rule::none, kLive,
     "How long a request may wait for a place before it is answered with 503. 0: for ever. Too small: short peaks cause errors. "
     "Too large: answers come after the client has given up."},
    {"scheduler", "prefix_cache", at<&Config::scheduler, &Scheduler::prefix_cache>(), "", 0, 0, Rule::none, kAtStart,
     "Whether prompts that begin alike are computed once: blocks of the KV cache that nobody holds keep their content until "
     "they are needed. false: every prompt is computed whole."},

    {"engine", "threads", at<&Config::engine, &Engine::threads>(), "threads", 0, 1024, Rule::none, kAtStart,
     "Threads that compute on the CPU. 0: all cores. Too small: cores idle. Too large: threads compete, and a step waits for the slowest."},
    {"engine", "capture_graphs", at<&Config::engine, &Engine::capture_graphs>(), "", 0, 0, Rule::none, kAtStart,
     "Whether decode steps are recorded as graphs and launched as one, where the device can (GPUs). false: every op is launched "
     "by itself, which is slower and gives the same results."},

    {"sampling", "temperature", at<&Config::sampling, &Sampling::temperature>(), "", 0, 2, Rule::none, kLive,
     "For requests that name none. 0 always takes the likeliest token; higher is more varied, and above about 1.2 often incoherent."},
    {"sampling", "top_p", at<&Config::sampling, &Sampling::top_p>(), "", 0, 1, Rule::none, kLive,
     "For requests that name none: only the likeliest tokens that together reach this probability are drawn from. 1 is off."},
    {"sampling", "top_k", at<&Config::sampling, &Sampling::top_k>(), "tokens", 0, kMaxInt, Rule::none, kLive,
     "For requests that name none: only this many of the likeliest tokens are drawn from. 0 is off."},
    {"sampling", "min_p", at<&Config::sampling, &Sampling::min_p>(), "", 0, 1, Rule::none, kLive,
     "For requests that name none: tokens less likely than this share of the likeliest are left out. 0 is off."},
    {"sampling", "max_tokens", at<&Config::sampling, &Sampling::max_tokens>(), "tokens", 0, kMaxInt, Rule::none, kLive,
     "Longest answer of a request that names no limit. 0: up to the end of the context. Too small: answers end in mid-sentence. "
     "Too large: an answer that never ends keeps its place."},

    {"log", "level", choice<&Config::log, &Log::level>(kLogLevels), "", 0, 0, Rule::none, kLive,
     "Least level that is written. debug and trace grow with the number of requests."},
    {"log", "format", choice<&Config::log, &Log::format>(kLogFormats), "", 0, 0, Rule::none, kAtStart,
     "text for people, json (one object a line) for collectors."},
    {"log", "file", at<&Config::log, &Log::file>(), "", 0, 0, Rule::none, kAtStart,
     "File that log lines are appended to; SIGHUP opens it anew. Empty: standard error."},
    {"log", "access_file", at<&Config::log, &Log::access_file>(), "", 0, 0, Rule::none, kAtStart,
     "File that one JSON object is appended to for each HTTP request and each WebSocket connection that ended; SIGHUP opens it anew. Empty: none is kept."},
    {"log", "messages", at<&Config::log, &Log::messages>(), "", 0, 0, Rule::none, kAtStart,
     "Whether the access log also holds what clients send, prompts included. Needs access_file."},

    {"metrics", "enabled", at<&Config::metrics, &Metrics::enabled>(), "", 0, 0, Rule::none, kAtStart,
     "Whether /metrics is served."},
    {"metrics", "need_key", at<&Config::metrics, &Metrics::need_key>(), "", 0, 0, Rule::none, kAtStart,
     "Whether /metrics asks for a key as the API does."},
    {"metrics", "vllm_aliases", at<&Config::metrics, &Metrics::vllm_aliases>(), "", 0, 0, Rule::none, kAtStart,
     "Whether the metrics that have a counterpart there are also served under vLLM's names, for existing dashboards."},

    {"assay", "depth", choice<&Config::assay, &Assay::depth>(kAssayDepths), "", 0, 0, Rule::none, kLive,
     "How much is asked before serving. quick: fewer rows and decode steps, no run of the whole model by definition; all levels in either."},
    {"assay", "cache", at<&Config::assay, &Assay::cache>(), "", 0, 0, Rule::none, kLive,
     "Whether a passing result that was obtained with the very same programs, plugins, device, model and settings stands for a run. "
     "false: every start proves again."},
    {"assay", "cache_folder", at<&Config::assay, &Assay::cache_folder>(), "", 0, 0, Rule::none, kLive,
     "Folder of results. Empty: systemd's CacheDirectory, else assay below the user's cache folder. One that others may write to is not used."},
    {"assay", "calibration", at<&Config::assay, &Assay::calibration>(), "", 0, 0, Rule::none, kLive,
     "Calibration that judges the model, made by assayctl calibrate. Empty: the file beside the model with .assay.json behind its name, where "
     "there is one, else the built-in probes."},
    {"assay", "probes_file", at<&Config::assay, &Assay::probes_file>(), "", 0, 0, Rule::none, kLive,
     "JSON file of further probes: a list of objects with name, prompt, expected and floor (natural log-probability a token). Empty: none."},
    {"assay", "timeout_ms", at<&Config::assay, &Assay::timeout>(), "ms", 1000, kDayMs, Rule::none, kLive,
     "How long one call of a backend may take while it is proven, before it counts as hanging and the start ends. Too small: slow devices are "
     "refused. Too large: a hanging backend delays the diagnosis."},
    {"assay", "seed", at<&Config::assay, &Assay::seed>(), "", 0, kTiB, Rule::none, kLive,
     "Seed of the random inputs, to replay a failure; every report prints its own. 0: a fresh one each time."},

    {"template", "timeout_ms", at<&Config::chat_template, &Template::timeout>(), "ms", 10, 600'000, Rule::none, kLive,
     "How long one chat template may take to render before its request fails. Too small: long chats fail on a busy machine. "
     "Too large: a hostile template holds a worker."},
    {"template", "memory_bytes", at<&Config::chat_template, &Template::memory_bytes>(), "bytes", 64 * kMiB, 1024 * 1024 * kMiB, Rule::none, kLive,
     "Memory of one template worker. Too small: the worker cannot start or long chats fail. Too large: a hostile template may take this much."},
    {"template", "workers", at<&Config::chat_template, &Template::workers>(), "processes", 1, 64, Rule::none, kAtStart,
     "Template workers. Too small: chats wait for each other's rendering. Too large: each costs about 20 MB."},
};
// clang-format on

std::string number(double value) {
    char buffer[64];
    const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed);
    return {buffer, end.ptr};
}

std::string listed(std::span<const std::string_view> names) {
    std::string text;
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (i > 0) text += i + 1 == names.size() ? " or " : ", ";
        text += '"' + std::string{names[i]} + '"';
    }
    return text;
}

/// The words for the type alone.
struct TypeWords {
    const Key& key;

    std::string operator()(const Ref<bool>&) const { return "true or false"; }
    std::string operator()(const Ref<int>&) const { return "an integer"; }
    std::string operator()(const Ref<std::int64_t>&) const { return "an integer"; }
    std::string operator()(const Ref<double>&) const { return "a number"; }
    std::string operator()(const Ref<std::chrono::milliseconds>&) const { return "an integer"; }
    std::string operator()(const Ref<std::string>&) const { return "a string"; }
    std::string operator()(const Ref<std::filesystem::path>&) const {
        return "a string with the path of a file";
    }
    std::string operator()(const Ref<Address>&) const {
        return "a string \"host:port\" with a port from 0 to 65535";
    }
    std::string operator()(const Ref<std::vector<std::string>>&) const {
        switch (key.rule) {
            case Rule::plugin_id: return "a list of plugin ids, at least one";
            case Rule::alternatives: return "a plugin id, or a list of them in order of preference";
            case Rule::origin: return "a list of strings \"scheme://host[:port]\"";
            default: return "a list of strings";
        }
    }
    std::string operator()(const Ref<std::vector<std::filesystem::path>>&) const {
        return "a list of paths, at least one, each absolute or beginning with $ORIGIN";
    }
    std::string operator()(const ChoiceRef& choice) const { return listed(choice.names); }
};

}  // namespace

std::string Key::full_name() const { return std::string{section} + '.' + std::string{name}; }

std::string Key::variable() const {
    std::string text = "ASSAY_" + full_name();
    for (char& c : text) {
        c = c == '.' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
    return text;
}

std::span<const Key> keys() { return kKeys; }

const Key* find_key(std::string_view full_name) {
    const auto found = std::ranges::find_if(kKeys, [&](const Key& key) {
        return full_name.size() == key.section.size() + 1 + key.name.size() &&
               full_name.starts_with(key.section) && full_name[key.section.size()] == '.' &&
               full_name.ends_with(key.name);
    });
    return found == std::end(kKeys) ? nullptr : found;
}

std::string expectation(const Key& key) {
    std::string text = std::visit(TypeWords{key}, key.target);
    if (key.max > 0) text += " from " + number(key.min) + " to " + number(key.max);
    if (key.rule == Rule::power_of_two) text += ", a power of two";
    if (!key.unit.empty()) text += " (" + std::string{key.unit} + ')';
    return text;
}

}  // namespace config
