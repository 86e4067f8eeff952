#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/config/environment.hpp"

/// The operator's settings: one TOML file and the ASSAY_* variables, checked whole and then frozen.
///
/// What each setting means, its unit, range and default is one row of the table in keys.cpp; the
/// comments here only say what a reader of the code needs.
namespace config {

struct Address {
    std::string host;        ///< a name, an IPv4 address, or an IPv6 address without brackets
    std::uint16_t port = 0;  ///< 0 lets the system choose

    friend bool operator==(const Address&, const Address&) = default;
};

/// Plugin ids in the order of preference. More than one only where the operator wrote a list; what
/// was chosen is logged and part of the plan.
using Alternatives = std::vector<std::string>;

struct Server {
    Address listen{"127.0.0.1", 8080};
    int max_connections = 1024;
    int max_connections_per_address = 1024;
    std::int64_t max_frame_bytes = 16 << 20;
    std::int64_t max_body_bytes = 16 << 20;
    std::int64_t max_head_bytes = 16 << 10;
    std::chrono::milliseconds read_timeout{30'000};
    std::int64_t send_budget_bytes = 256 << 10;
    std::chrono::milliseconds pause_timeout{300'000};
    std::chrono::milliseconds drain_timeout{30'000};
    std::chrono::milliseconds request_timeout{0};  ///< 0: none
    std::int64_t store_bytes = 64 << 20;           ///< 0: nothing is stored
    std::chrono::milliseconds store_age{3'600'000};
    std::filesystem::path api_keys_file;  ///< empty: no authentication, loopback only
    std::vector<std::string> allowed_origins;
    std::vector<std::string> allowed_hosts;  ///< besides loopback names; needed only without keys
    bool key_in_subprotocol = false;
};

enum class TlsVersion { v1_2, v1_3 };

struct Tls {
    std::filesystem::path certificate;  ///< empty, as is `key`: plain HTTP
    std::filesystem::path key;
    TlsVersion min_version = TlsVersion::v1_2;
};

struct Model {
    std::filesystem::path path;
    std::string alias;       ///< empty: the file's own name
    int context_length = 0;  ///< tokens; 0: the model's
    std::filesystem::path chat_template_file;  ///< empty: the template in the model file
    std::string pre_tokenizer;  ///< for files that name none that is known; empty: refuse them
    std::vector<std::string> allow_unused_tensors;
    bool check_weights = true;  ///< look for NaN and Inf before serving
    bool lock_memory = false;   ///< weights cannot be paged out
};

struct Plugins {
    /// Absolute and normal; `$ORIGIN` is already replaced.
    std::vector<std::filesystem::path> folders;
    std::chrono::milliseconds probe_timeout{10'000};
};

struct Attention {
    Alternatives prefill{"cpu-flash"};
    Alternatives decode{"cpu-flash"};
};

/// What one plugin is told beyond the ABI: key to value, values as text. The plugin refuses keys
/// that it does not know.
using PluginOptions = std::map<std::string, std::string, std::less<>>;

struct Backends {
    Alternatives device{"cpu"};
    int device_ordinal = 0;
    std::vector<std::string> quant{"ggml"};  ///< all of them; the first that knows a format has it
    Attention attention;
    std::map<std::string, PluginOptions, std::less<>> options;  ///< by plugin id
};

enum class KvDtype { automatic, f32, f16, bf16 };

struct Kv {
    int block_size = 32;             ///< tokens
    std::int64_t max_tokens = 0;     ///< 0: as many as the memory holds
    std::int64_t memory_bytes = 0;   ///< 0: memory_fraction
    double memory_fraction = 0.5;
    KvDtype dtype = KvDtype::automatic;
};

struct Scheduler {
    int max_num_seqs = 64;
    int max_num_batched_tokens = 512;
    int max_waiting = 256;
    std::chrono::milliseconds queue_timeout{60'000};
    bool prefix_cache = true;
};

struct Engine {
    int threads = 0;  ///< 0: all cores
    bool capture_graphs = true;  ///< decode steps run as recorded graphs where the device has them
};

/// What a request gets for the fields that it leaves out.
struct Sampling {
    double temperature = 1.0;
    double top_p = 1.0;
    int top_k = 0;  ///< 0: off
    double min_p = 0.0;
    int max_tokens = 0;  ///< 0: up to the end of the context
};

enum class LogLevel { trace, debug, info, warn, error };
enum class LogFormat { text, json };

struct Log {
    LogLevel level = LogLevel::info;
    LogFormat format = LogFormat::text;
    std::filesystem::path file;  ///< empty: standard error
    std::filesystem::path access_file;  ///< empty: no access log
    bool messages = false;              ///< the access log holds what clients send
};

struct Metrics {
    bool enabled = true;
    bool need_key = false;
    bool vllm_aliases = false;
};

struct Template {
    std::chrono::milliseconds timeout{2'000};
    std::int64_t memory_bytes = 256 << 20;
    int workers = 1;
};

enum class AssayDepth { full, quick };

struct Assay {
    AssayDepth depth = AssayDepth::full;
    bool cache = true;                   ///< a passing result of the very same may stand for a run
    std::filesystem::path cache_folder;  ///< empty: the user's cache folder
    std::filesystem::path calibration;   ///< empty: beside the model, where there is one
    std::filesystem::path probes_file;   ///< empty: none beside the built-in
    std::chrono::milliseconds timeout{60'000};
    std::int64_t seed = 0;  ///< 0: a fresh one
};

/// Where an effective value came from.
struct Origin {
    enum class Source { default_value, file, environment };
    Source source = Source::default_value;
    int line = 0;  ///< of the file, from 1
};

/// One snapshot. Nothing changes it; a reload makes another, with the next generation.
struct Config {
    Server server;
    Tls tls;
    Model model;
    Plugins plugins;
    Backends backends;
    Kv kv;
    Scheduler scheduler;
    Engine engine;
    Sampling sampling;
    Log log;
    Metrics metrics;
    Assay assay;
    Template chat_template;  ///< section [template]

    std::uint64_t generation = 1;
    std::filesystem::path file;  ///< what was read

    /// By full key ("kv.block_size"); a key that is absent has its default.
    std::map<std::string, Origin, std::less<>> origins;
};

/// Reads and checks a file.
/// @throws Mistakes (exit 78) with every mistake of the file and of the environment.
[[nodiscard]] Config load(const std::filesystem::path& file, const Environment& environment);

/// The same for text at hand. `file_name` is what mistakes are reported under, and its folder is
/// what relative paths are relative to; it need not exist.
[[nodiscard]] Config parse(std::string_view text, const std::filesystem::path& file_name,
                           const Environment& environment);

/// Every effective value with its origin, one a line, in TOML: parsing it gives the same values.
[[nodiscard]] std::string describe(const Config& config);

}  // namespace config
