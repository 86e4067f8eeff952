#include "daemon/app/backends.hpp"

#include <filesystem>

#include "cxx/plugin.hpp"
#include "daemon/base/error.hpp"
#include "daemon/plugin/boundary.hpp"

namespace app {

std::unique_ptr<plugin::Registry> open_registry(const config::Config& config,
                                                const plugin::HostServices& services) {
    plugin::Registry::Settings settings;
    settings.folders = config.plugins.folders;
    settings.probe_timeout = config.plugins.probe_timeout;
    settings.services = services;
    return std::make_unique<plugin::Registry>(std::move(settings));
}

namespace {

plugin::Options to_options(const config::PluginOptions& options) {
    return {options.begin(), options.end()};
}

plugin::Options options_of(const config::Config& config, const std::string& id) {
    const auto it = config.backends.options.find(id);
    return it == config.backends.options.end() ? plugin::Options{} : to_options(it->second);
}

}  // namespace

std::unique_ptr<model::ModelFile> open_model(plugin::Registry& registry, const config::Config& config,
                                             bool check_weights) {
    const std::string path = config.model.path.string();
    // "no such file" is not what keeps a daemon from a file in a folder that it may not enter.
    std::error_code ec;
    if (!std::filesystem::exists(config.model.path, ec))
        throw base::ModelError{path + ": " + (ec ? ec.message() : "no such file") + " (model.path)"};

    std::shared_ptr<plugin::Module> best;
    std::int32_t best_score = 0;
    for (const std::string& id : registry.ids(ASSAY_KIND_LOADER)) {
        auto module = registry.open(id, ASSAY_KIND_LOADER);
        const std::int32_t score = module->table<assay_loader>()->probe(path.c_str());
        if (score > best_score) {
            best = std::move(module);
            best_score = score;
        }
    }
    if (registry.ids(ASSAY_KIND_LOADER).empty())
        throw base::ConfigError{"loader: no usable plugin of kind loader/1\n" + registry.describe()};
    // One loader that does not recognise the file still says best what is wrong with it.
    if (!best) {
        const auto ids = registry.ids(ASSAY_KIND_LOADER);
        best = registry.open(ids.front(), ASSAY_KIND_LOADER);
    }
    plugin::Options options = options_of(config, best->id());
    if (check_weights) options.emplace_back("check_weights", "true");
    return std::make_unique<model::ModelFile>(best->source(), best->table<assay_loader>(), path, options);
}

void use_reference_backends(config::Config& config) {
    config.backends.options.clear();
    config.backends.device = {"cpu"};
    config.backends.device_ordinal = 0;
    config.backends.quant = {"ggml"};
    config.backends.attention = {{"reference"}, {"reference"}};
    config.backends.options["cpu"] = {{"tier", "reference"}};
    config.backends.options["ggml"] = {{"tier", "reference"}};
    config.kv.dtype = config::KvDtype::f32;
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
            throw base::ConfigError{"attention plugin \"" + module.id() + "\": " + plugin::words(err)};
        out.push_back(layout);
    }
    return out;
}

plugin::Requirements requirements(const config::Config& config) {
    plugin::Requirements r;
    r.device = config.backends.device;
    r.device_ordinal = config.backends.device_ordinal;
    r.quant = config.backends.quant;
    r.attention_prefill = config.backends.attention.prefill;
    r.attention_decode = config.backends.attention.decode;
    for (const auto& [id, options] : config.backends.options) r.options.emplace(id, to_options(options));
    switch (config.kv.dtype) {
        case config::KvDtype::automatic: r.kv_dtype = ASSAY_DTYPE_NONE; break;
        case config::KvDtype::f32: r.kv_dtype = ASSAY_F32; break;
        case config::KvDtype::f16: r.kv_dtype = ASSAY_F16; break;
        case config::KvDtype::bf16: r.kv_dtype = ASSAY_BF16; break;
    }
    r.page_tokens = static_cast<std::uint32_t>(config.kv.block_size);
    return r;
}

}  // namespace app
