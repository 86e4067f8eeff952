#include "daemon/app/stack.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <mutex>

#include "cxx/plugin.hpp"
#include "cxx/progress.hpp"
#include "daemon/app/tokenizer.hpp"
#include "daemon/base/error.hpp"
#include "daemon/model/needs.hpp"
#include "daemon/model/residency.hpp"

namespace app {
namespace {

std::string gib(std::uint64_t bytes) {
    char text[32];
    if (bytes >= (1ULL << 30U))
        std::snprintf(text, sizeof text, "%.2f GiB", static_cast<double>(bytes) / (1ULL << 30U));
    else
        std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / (1ULL << 20U));
    return text;
}

std::uint32_t num_lanes(const config::Config& config) {
    return config.engine.threads > 0 ? static_cast<std::uint32_t>(config.engine.threads)
                                     : plugin::WorkerLanes::num_processors();
}

/// Options and attention configuration live as long as the calls that borrow them.
std::unique_ptr<plugin::Attention> make_attention(const plugin::Requirements& requirements,
                                                  const plugin::Device& device, plugin::Module& module,
                                                  const std::vector<assay_attn_layer>& layers) {
    std::vector<assay_option> options;
    const assay_attn_config config =
        plugin::attention_config(requirements, module.id(), &device.ref(), options);
    std::vector<const assay_attn_layer*> pointers;
    for (const auto& layer : layers) pointers.push_back(&layer);
    return std::make_unique<plugin::Attention>(module.source(), module.table<assay_attention>(), config,
                                               pointers);
}

std::vector<assay_kv_layout> kv_layouts(const plugin::Requirements& requirements,
                                        const plugin::Device& device, plugin::Module& module,
                                        const std::vector<assay_attn_layer>& layers) {
    std::vector<assay_option> options;
    const assay_attn_config config =
        plugin::attention_config(requirements, module.id(), &device.ref(), options);
    std::vector<assay_kv_layout> out;
    for (const auto& layer : layers) {
        assay_kv_layout layout{};
        layout.size = sizeof layout;
        assay_error err = sdk::make_error();
        if (module.table<assay_attention>()->kv_layout(&config, &layer, &layout, &err) != ASSAY_OK)
            throw base::ConfigError{"attention plugin \"" + module.id() + "\": " + err.text};
        out.push_back(layout);
    }
    return out;
}

}  // namespace

std::string served_name(const config::Config& config, const base::Metadata& metadata) {
    if (!config.model.alias.empty()) return config.model.alias;
    const auto* name = metadata.find_string("general.name");
    return name != nullptr && !name->empty() ? *name : config.model.path.stem().string();
}

Stack::Stack(const config::Config& config, StackOptions options) : options_{std::move(options)} {
    open_file(config);
    if (options_.depth == Depth::audit) return;
    resolve(config);
    if (options_.depth == Depth::resolve) return;
    load(config);
}

Stack::~Stack() = default;

void Stack::stage(const std::string& line) const {
    if (!options_.on_stage) return;
    const std::lock_guard lock{stage_mutex_};  // lanes report too
    options_.on_stage(line);
}

void Stack::open_file(const config::Config& config) {
    stage("examining plugins");
    control_lanes = std::make_unique<plugin::WorkerLanes>(
        plugin::WorkerLanes::Settings{num_lanes(config), std::chrono::microseconds{0}, "control"});
    options_.services.control_lanes = control_lanes->abi();
    registry = open_registry(config, options_.services);
    stage("opening " + config.model.path.filename().string());
    file = open_model(*registry, config);
    stage("auditing tensors");
    audit = model::audit(*file, config.model.allow_unused_tensors);
    if (!audit.passed()) throw base::ModelError{file->path() + ": " + audit.to_text()};
    stage("checking the tokenizer");
    tokenizer = open_tokenizer(*file, config, audit.hparams.vocab_size);
    const std::int64_t trained = audit.hparams.context_length;
    const std::int64_t wanted = config.model.context_length;
    if (wanted > trained)
        throw base::ConfigError{"model.context_length: got " + std::to_string(wanted) +
                                ", want at most the " + std::to_string(trained) +
                                " that the model was trained for"};
    context_length_ = static_cast<std::int32_t>(wanted > 0 ? wanted : trained);
}

void Stack::resolve(const config::Config& config) {
    stage("resolving backends");
    if (options_.max_tokens == 0) options_.max_tokens = config.scheduler.max_num_batched_tokens;
    if (options_.max_seqs == 0) options_.max_seqs = config.scheduler.max_num_seqs;
    options_.max_tokens = std::max(options_.max_tokens, options_.max_seqs);
    if (options_.max_logit_rows == 0) options_.max_logit_rows = options_.max_seqs;
    requirements_ = requirements(config);
    requirements_.quant_needs = model::quant_needs(*file, audit, options_.max_tokens);
    requirements_.attention_needs = model::attention_needs(audit.hparams);
    resolution = plugin::resolve(*registry, requirements_);
}

std::int32_t Stack::num_blocks(const config::Config& config,
                               const std::vector<assay_kv_layout>& layouts) const {
    const std::uint64_t block_bytes = model::KvCache::block_bytes(layouts);
    const auto block_tokens = static_cast<std::int64_t>(layouts.front().page_tokens);
    std::uint64_t budget = static_cast<std::uint64_t>(config.kv.memory_bytes);
    if (budget == 0) {
        std::uint64_t free = 0, total = 0;
        const plugin::Device& device = *resolution.device;
        if (device.api().memory(device.self(), &free, &total) != ASSAY_OK)
            throw base::ConfigError{"device plugin \"" + device.id() + "\": cannot tell how much memory is free"};
        budget = static_cast<std::uint64_t>(static_cast<double>(free) * config.kv.memory_fraction);
    }
    std::int64_t blocks = static_cast<std::int64_t>(budget / block_bytes);
    // More than every sequence at full length can never be used.
    const std::int64_t per_seq = (context_length_ + block_tokens - 1) / block_tokens;
    blocks = std::min(blocks, per_seq * options_.max_seqs);
    if (config.kv.max_tokens > 0)
        blocks = std::min(blocks, (config.kv.max_tokens + block_tokens - 1) / block_tokens);
    blocks = std::max(blocks, (options_.min_kv_tokens + block_tokens - 1) / block_tokens);
    if (blocks < 1)
        throw base::ConfigError{"kv: the memory allowed holds no block of " + std::to_string(block_tokens) +
                                " tokens, which takes " + gib(block_bytes) +
                                "; raise kv.memory_bytes or kv.memory_fraction"};
    return static_cast<std::int32_t>(std::min<std::int64_t>(blocks, INT32_MAX / block_tokens));
}

/// Looks at the weights where that is wanted, and has them in memory before anything waits for them.
void Stack::bring_in(const config::Config& config) {
    if (config.model.check_weights) {
        stage("checking weights for NaN and Inf");
        // A second look at the same file, after the audit: what is not this model fails before its
        // weights are read.
        (void)open_model(*registry, config, true);
    }
    stage("reading weights");
    sdk::Progress progress{file->total_bytes()};
    model::ResidencyOptions options;
    options.lock = config.model.lock_memory;
    const model::Residency residency =
        model::make_resident(*file, audit, control_lanes->abi(), options, [&](std::uint64_t bytes) {
            const std::string text = progress.advance(bytes);
            if (!text.empty()) stage("reading weights: " + text);
        });
    if (!residency.is_resident)
        stage("weights of " + gib(residency.bytes) + " stay on the disk until they are used: there is not as much memory");
}

void Stack::load(const config::Config& config) {
    const plugin::Device& device = *resolution.device;
    lanes = std::make_unique<plugin::WorkerLanes>(
        plugin::WorkerLanes::Settings{num_lanes(config), std::chrono::microseconds{40}, "engine"});
    stream = std::make_unique<plugin::Stream>(device, lanes->abi());

    bring_in(config);
    sdk::Progress progress{file->total_bytes()};
    weights = std::make_unique<model::Weights>(
        *file, audit, device, *stream,
        [this](const std::string& format) -> const plugin::Quant& { return *resolution.quant_for(format); },
        [&, last = std::uint64_t{0}](const model::LoadProgress& p) mutable {
            const std::string text = progress.advance(p.bytes_done - last);
            last = p.bytes_done;
            if (!text.empty()) stage("loading weights: " + text);
        });

    const auto layers = model::attention_layers(audit.hparams);
    prefill = make_attention(requirements_, device, *resolution.prefill, layers);
    if (resolution.decode != resolution.prefill)
        decode_own = make_attention(requirements_, device, *resolution.decode, layers);

    stage("allocating the KV cache");
    auto layouts = kv_layouts(requirements_, device, *resolution.prefill, layers);
    const std::int32_t blocks = num_blocks(config, layouts);
    cache = std::make_unique<model::KvCache>(device, std::move(layouts), blocks);

    model::RunnerLimits limits;
    limits.max_seqs = options_.max_seqs;
    limits.max_tokens = options_.max_tokens;
    limits.max_logit_rows = options_.max_logit_rows;
    limits.max_kv_len = context_length_;
    limits.capture_graphs = config.engine.capture_graphs;
    runner = std::make_unique<model::Runner>(
        audit.hparams, *weights, device,
        model::AttentionBackends{prefill.get(), &decode(), resolution.plan.mixed && !decode_own}, *cache,
        *stream, limits);
}

std::string Stack::plan_text() const {
    std::string text = resolution.plan.to_text();
    if (weights)
        for (const auto& note : weights->notes()) text += "  " + note + "\n";
    if (runner)
        text += "  " + runner->fusion_text() + "\n  memory: weights " + gib(weights->total_bytes()) + ", kv " +
                gib(cache->bytes()) + " (" + std::to_string(cache->num_blocks()) + " blocks of " +
                std::to_string(cache->block_size()) + " tokens), activations " + gib(runner->workspace_bytes()) +
                "\n";
    return text;
}

}  // namespace app
