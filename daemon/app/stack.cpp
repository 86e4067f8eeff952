#include "daemon/app/stack.hpp"

#include <algorithm>
#include <chrono>
#include <mutex>

#include "cxx/plugin.hpp"
#include "cxx/progress.hpp"
#include "daemon/app/kv_budget.hpp"
#include "daemon/app/text_codec.hpp"
#include "daemon/app/tokenizer.hpp"
#include "daemon/base/error.hpp"
#include "daemon/config/mistakes.hpp"
#include "daemon/model/needs.hpp"
#include "daemon/model/residency.hpp"
#include "daemon/plugin/boundary.hpp"
#include "daemon/plugin/sha256.hpp"
#include "daemon/text/chat_request.hpp"

namespace app {
namespace {

std::uint32_t num_lanes(const config::Config& config) {
    return config.engine.threads > 0 ? static_cast<std::uint32_t>(config.engine.threads)
                                     : plugin::WorkerLanes::num_processors();
}

/// Options for a plugin that is not there are a mistake, as an unknown key is.
void check_options_have_plugins(const config::Config& config, const plugin::Registry& registry) {
    for (const auto& [id, options] : config.backends.options) {
        const auto& all = registry.candidates();
        if (std::any_of(all.begin(), all.end(), [&](const auto& c) { return c.usable() && c.facts.id == id; })) continue;
        std::vector<std::string> known;
        for (const auto& candidate : all)
            if (candidate.usable()) known.push_back(candidate.facts.id);
        const auto close = config::nearest(id, known);
        throw base::ConfigError{"backends.options." + id + ": no usable plugin has this id" +
                                (close.empty() ? "" : "; did you mean " + std::string{close} + '?') + '\n' +
                                registry.describe()};
    }
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
    if (options_.on_files) options_.on_files(file->files());
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
    check_options_have_plugins(config, *registry);
    resolution = plugin::resolve(*registry, requirements_);
    note_loader_and_template(config);
    kv_layouts_ = kv_layouts(requirements_, *resolution.device, *resolution.prefill,
                             model::attention_layers(audit.hparams));
    if (options_.depth == Depth::run) return;
    // As far as it can be told without loading.
    (void)size_cache(config, free_bytes(model::bytes_read(*file, audit)));
}

void Stack::note_loader_and_template(const config::Config& config) {
    plugin::Plan& plan = resolution.plan;
    if (const plugin::Candidate* loader = registry->find(file->loader_id(), ASSAY_KIND_LOADER))
        plan.loader = {loader->facts.id,       loader->facts.version, loader->facts.build_id,
                       loader->sha256, loader->path.string(), {}};
    const std::string own = read_chat_template(config.model.chat_template_file);
    const auto plain = text::choose_template(file->metadata(), own, false);
    const auto with_tools = text::choose_template(file->metadata(), own, true);
    const auto shown = [&](const text::TemplateChoice& choice) {
        const std::string origin{choice.name == "override" ? "model.chat_template_file" : choice.name};
        return origin + " (sha256 " + plugin::sha256_hex(choice.source).substr(0, 16) + ")";
    };
    plan.chat_template = shown(plain);
    if (with_tools.source != plain.source) plan.chat_template += ", with tools " + shown(with_tools);
    has_own_template_ = plain.name != "chatml";
}

std::uint64_t Stack::free_bytes(std::uint64_t uncounted_bytes) const {
    std::uint64_t free = 0, total = 0;
    const plugin::Device& device = *resolution.device;
    if (device.api().memory(device.self(), &free, &total) != ASSAY_OK)
        throw base::ConfigError{"device plugin \"" + device.id() + "\": cannot tell how much memory is free"};
    // Weights that do not fit stay on the disk: nothing is to be kept free for them.
    return uncounted_bytes > free ? free : free - uncounted_bytes;
}

std::int32_t Stack::size_cache(const config::Config& config, std::uint64_t free) {
    KvNeeds needs;
    needs.block_bytes = model::KvCache::block_bytes(kv_layouts_);
    needs.block_tokens = static_cast<std::int64_t>(kv_layouts_.front().page_tokens);
    needs.free_bytes = free;
    needs.context_length = context_length_;
    needs.max_seqs = options_.max_seqs;
    needs.min_tokens = options_.min_kv_tokens;
    const std::int32_t blocks = num_kv_blocks(config.kv, needs);
    // No sequence can be longer than the cache, whatever the model was trained for.
    const std::int64_t capacity = static_cast<std::int64_t>(blocks) * needs.block_tokens;
    if (capacity < context_length_) {
        if (config.model.context_length > 0)
            throw base::ConfigError{"model.context_length: got " + std::to_string(config.model.context_length) +
                                    ", and the KV cache holds " + std::to_string(capacity) + " tokens (" +
                                    size_text(static_cast<std::uint64_t>(blocks) * needs.block_bytes) +
                                    "); raise kv.max_tokens, kv.memory_bytes or kv.memory_fraction"};
        notes_.push_back("context            " + std::to_string(capacity) + " tokens, as many as the KV cache holds; the model was trained for " +
                         std::to_string(context_length_));
        context_length_ = static_cast<std::int32_t>(capacity);
    }
    return blocks;
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
    // Of the device where that is this machine's memory: it knows the limits of the control group.
    if (resolution.device->host_visible()) options.memory_bytes = free_bytes(0);
    const model::Residency residency =
        model::make_resident(*file, audit, control_lanes->abi(), options, [&](std::uint64_t bytes) {
            const std::string text = progress.advance(bytes);
            if (!text.empty()) stage("reading weights: " + text);
        });
    if (!residency.is_resident)
        stage("weights of " + size_text(residency.bytes) + " stay on the disk until they are used: there is not as much memory");
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
    const std::uint64_t free = free_bytes(weights->mapped_bytes());
    cache = std::make_unique<model::KvCache>(device, kv_layouts_, size_cache(config, free));

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
    if (cache->bytes() + runner->workspace_bytes() > free)
        throw base::ConfigError{
            "memory: the KV cache takes " + size_text(cache->bytes()) + " and activations " +
            size_text(runner->workspace_bytes()) + ", and " + size_text(free) +
            " are free beside the weights; lower kv.max_tokens (or kv.memory_bytes, kv.memory_fraction), "
            "scheduler.max_num_batched_tokens or scheduler.max_num_seqs"};
}

std::vector<std::string> Stack::warnings() const {
    std::vector<std::string> out = notes_;
    if (!has_own_template_)
        out.emplace_back("chat template      the model has none: chats are put into ChatML, which it may not have "
                         "been trained on; model.chat_template_file names another");
    // Files that look like plugins and are not used: an operator put them there for something.
    for (const plugin::Candidate& candidate : registry->candidates())
        if (!candidate.usable())
            out.push_back("plugin             " + candidate.path.string() + " refused: " + candidate.reason);
    return out;
}

std::string Stack::plan_text() const {
    std::string text = resolution.plan.to_text();
    if (weights)
        for (const auto& note : weights->notes()) text += "  " + note + "\n";
    if (runner)
        text += "  " + runner->fusion_text() + "\n  memory: weights " + size_text(weights->total_bytes()) + ", kv " +
                size_text(cache->bytes()) + " (" + std::to_string(cache->num_blocks()) + " blocks of " +
                std::to_string(cache->block_size()) + " tokens), activations " + size_text(runner->workspace_bytes()) +
                "\n";
    return text;
}

}  // namespace app
