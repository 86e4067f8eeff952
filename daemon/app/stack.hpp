#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "daemon/app/backends.hpp"
#include "daemon/config/config.hpp"
#include "daemon/model/audit.hpp"
#include "daemon/model/kv_cache.hpp"
#include "daemon/model/model_file.hpp"
#include "daemon/model/runner.hpp"
#include "daemon/model/step_driver.hpp"
#include "daemon/model/weights.hpp"
#include "daemon/plugin/lanes.hpp"
#include "daemon/plugin/registry.hpp"
#include "daemon/plugin/resolve.hpp"
#include "daemon/text/tokenizer.hpp"

namespace app {

/// How much of a model is brought up.
enum class Depth {
    audit,    ///< file, tensors, tokenizer: reads no weight
    resolve,  ///< and the plan: which plugin computes what
    run,      ///< and weights, cache and program: ready to compute
};

struct StackOptions {
    Depth depth = Depth::run;
    /// Steps that the program is sized for; 0 = as the configuration says.
    std::int32_t max_tokens = 0;
    std::int32_t max_seqs = 0;
    std::int32_t max_logit_rows = 0;
    std::int64_t min_kv_tokens = 0;  ///< the cache holds at least this many tokens
    /// One line per stage, for the terminal and /readyz: "loading weights: 120 of 402 GB".
    std::function<void(const std::string&)> on_stage;
    /// The files of the model, before anything of them is mapped.
    std::function<void(const std::vector<std::string>&)> on_files;
    plugin::HostServices services;
};

/// A model with its backends, from configuration to something that computes. Members are in the
/// order they are made; they are destroyed in reverse.
///
/// Throws base::StartError of the kind that fits: configuration and backends 78, model file 65.
class Stack {
public:
    Stack(const config::Config& config, StackOptions options);
    ~Stack();
    Stack(const Stack&) = delete;
    Stack& operator=(const Stack&) = delete;

    // Depth::audit
    std::unique_ptr<plugin::WorkerLanes> control_lanes;
    std::unique_ptr<plugin::Registry> registry;
    std::unique_ptr<model::ModelFile> file;
    model::AuditReport audit;
    std::unique_ptr<text::Tokenizer> tokenizer;
    // Depth::resolve
    plugin::Resolution resolution;
    // Depth::run
    std::unique_ptr<plugin::WorkerLanes> lanes;
    std::unique_ptr<plugin::Stream> stream;
    std::unique_ptr<model::Weights> weights;
    std::unique_ptr<plugin::Attention> prefill;
    std::unique_ptr<plugin::Attention> decode_own;  ///< null when one instance serves both phases
    std::unique_ptr<model::KvCache> cache;
    std::unique_ptr<model::Runner> runner;

    [[nodiscard]] const plugin::Attention& decode() const { return decode_own ? *decode_own : *prefill; }
    [[nodiscard]] const model::Hparams& hparams() const { return audit.hparams; }
    /// Tokens of the longest sequence: what the configuration or the model says, and no more than the KV
    /// cache holds.
    [[nodiscard]] std::int32_t context_length() const { return context_length_; }
    /// Drives the runner by hand. Throws as the driver's constructor does.
    [[nodiscard]] model::StepDriver driver(std::int32_t num_seqs, std::int32_t max_len) const {
        return {*runner, *cache, *resolution.device, *stream, num_seqs, max_len};
    }
    /// What an operator should know although it hinders nothing. One line each.
    [[nodiscard]] std::vector<std::string> warnings() const;
    /// The plan for people: backends, fused forms, memory.
    [[nodiscard]] std::string plan_text() const;

private:
    void stage(const std::string& line) const;
    void open_file(const config::Config& config);
    void resolve(const config::Config& config);
    void bring_in(const config::Config& config);
    void load(const config::Config& config);
    void note_loader_and_template(const config::Config& config);
    /// Free memory of the device, less weights that it does not count as used.
    [[nodiscard]] std::uint64_t free_bytes(std::uint64_t uncounted_bytes) const;
    /// Blocks of the KV cache; limits the context to what they hold.
    [[nodiscard]] std::int32_t size_cache(const config::Config& config, std::uint64_t free);

    StackOptions options_;
    mutable std::mutex stage_mutex_;
    plugin::Requirements requirements_;
    std::vector<assay_kv_layout> kv_layouts_;  // [num_layers], with Depth::resolve
    std::int32_t context_length_ = 0;
    bool has_own_template_ = true;
    std::vector<std::string> notes_;
};

/// The served name: the configured alias, general.name, or the file's stem.
[[nodiscard]] std::string served_name(const config::Config& config, const base::Metadata& metadata);

}  // namespace app
