// assayctl support: what this build and these plugins can serve. The README's table is made from it.

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <cstdio>
#include <memory>

#include "daemon/app/backends.hpp"
#include "daemon/app/cli/commands.hpp"
#include "daemon/base/error.hpp"
#include "daemon/model/architecture.hpp"
#include "daemon/plugin/instance.hpp"

namespace app::cli {
namespace {

namespace json = boost::json;

/// Whether the plugin multiplies by weights of the format, as opposed to reading them only.
bool multiplies(const plugin::Quant& quant, const assay_quant_format& format) {
    assay_quant_query query{};
    query.size = sizeof query;
    query.op = ASSAY_Q_MATMUL;
    query.format = format.id;
    query.x_dtype = query.y_dtype = ASSAY_F32;
    query.num_weights = 1;
    query.m = query.n = query.experts = 1;
    query.k = format.block_cols;
    return quant.unsupported_reason(query).empty();
}

json::array formats_of(const plugin::Quant& quant) {
    json::array formats;
    for (std::uint32_t i = 0; i < quant.api().num_formats; ++i) {
        const assay_quant_format& format = *quant.api().formats[i];
        const double weights = static_cast<double>(format.block_rows) * format.block_cols;
        formats.push_back(json::object{{"id", format.id},
                                       {"bits_per_weight", 8.0 * format.block_bytes / weights},
                                       {"multiplies", multiplies(quant, format)}});
    }
    return formats;
}

/// One entry for each pair of device and quant plugin that work together on this machine.
json::array quants(plugin::Registry& registry) {
    json::array found;
    for (const std::string& device_id : registry.ids(ASSAY_KIND_DEVICE)) {
        std::unique_ptr<plugin::Device> device;
        try {
            const auto module = registry.open(device_id, ASSAY_KIND_DEVICE);
            device = std::make_unique<plugin::Device>(module->source(), module->table<assay_device>(), 0,
                                                      plugin::Options{});
        } catch (const base::StartError& e) {
            std::fprintf(stderr, "device %s: %s\n", device_id.c_str(), e.what());
            continue;
        }
        for (const std::string& id : registry.ids(ASSAY_KIND_QUANT)) {
            const auto module = registry.open(id, ASSAY_KIND_QUANT);
            try {
                const plugin::Quant quant{module->source(), module->table<assay_quant>(), *device, {}};
                found.push_back(json::object{{"plugin", id},
                                             {"device", device_id},
                                             {"tier", quant.tier()},
                                             {"formats", formats_of(quant)}});
            } catch (const base::StartError&) {
                // Made for another device.
            }
        }
    }
    return found;
}

void print(const json::object& support) {
    std::printf("architectures:");
    for (const json::value& name : support.at("architectures").as_array()) std::printf(" %s", name.as_string().c_str());
    std::printf("\nattention:");
    for (const json::value& id : support.at("attention").as_array()) std::printf(" %s", id.as_string().c_str());
    for (const json::value& quant : support.at("quants").as_array()) {
        std::printf("\n%s on %s [%s]:", quant.at("plugin").as_string().c_str(), quant.at("device").as_string().c_str(),
                    quant.at("tier").as_string().c_str());
        for (const json::value& format : quant.at("formats").as_array())
            std::printf(" %s%s", format.at("id").as_string().c_str(), format.at("multiplies").as_bool() ? "" : "*");
    }
    std::printf("\n* read, not multiplied by\n");
}

void run(const ModelOptions& options, bool as_json) {
    const auto registry = open_registry(options.to_config(), {});
    json::array architectures, attention;
    for (const auto name : model::architecture_names()) architectures.emplace_back(name);
    for (const auto& id : registry->ids(ASSAY_KIND_ATTENTION)) attention.emplace_back(id);
    const json::object support{{"architectures", architectures}, {"attention", attention}, {"quants", quants(*registry)}};
    if (as_json)
        std::printf("%s\n", json::serialize(support).c_str());
    else
        print(support);
}

}  // namespace

void add_support(CLI::App& cli) {
    auto* command = cli.add_subcommand("support", "Show which architectures, formats and attention plugins are here");
    auto options = std::make_shared<ModelOptions>();
    options->model = "none";  // a configuration needs one; nothing here opens it
    auto as_json = std::make_shared<bool>(false);
    command->add_option("-c,--config", options->config, "Configuration file that names the plugin folders")
        ->check(CLI::ExistingFile);
    command->add_option("--plugins", options->plugin_folders, "Plugin folders in place of the configured ones");
    command->add_flag("--json", *as_json, "Print JSON");
    command->callback([options, as_json] { run(*options, *as_json); });
}

}  // namespace app::cli
