// assayctl inspect and audit: what a file holds, and whether it is the model that it says it is.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>

#include "daemon/app/backends.hpp"
#include "daemon/app/cli/commands.hpp"
#include "daemon/app/cli/progress.hpp"
#include "daemon/app/tokenizer.hpp"
#include "daemon/base/error.hpp"
#include "daemon/model/audit.hpp"

namespace app::cli {
namespace {

constexpr std::size_t kMaxValue = 100;

std::string quoted(const std::string& value) {
    std::string text;
    for (const char c : value.substr(0, kMaxValue)) {
        if (c == '\n') text += "\\n";
        else if (static_cast<unsigned char>(c) < 0x20) text += '?';
        else text += c;
    }
    return '"' + text + '"' + (value.size() > kMaxValue ? " … " + std::to_string(value.size()) + " bytes" : "");
}

struct ValueText {
    std::string operator()(std::int64_t v) const { return std::to_string(v); }
    std::string operator()(double v) const {
        char text[32];
        std::snprintf(text, sizeof text, "%.9g", v);
        return text;
    }
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(const std::string& v) const { return quoted(v); }
    template <class T>
    std::string operator()(const std::vector<T>& items) const {
        std::string text = "[";
        for (std::size_t i = 0; i < items.size(); ++i) {
            if (i == 8) {
                text += ", …";
                break;
            }
            text += (i == 0 ? "" : ", ") + (*this)(static_cast<T>(items[i]));
        }
        return text + "] (" + std::to_string(items.size()) + ")";
    }
};

std::unique_ptr<model::ModelFile> open_file(const ModelOptions& options, std::unique_ptr<plugin::Registry>& registry) {
    const config::Config config = options.to_config();
    registry = open_registry(config, {});
    return open_model(*registry, config);
}

void inspect(const ModelOptions& options, bool tensors) {
    std::unique_ptr<plugin::Registry> registry;
    const auto file = open_file(options, registry);
    for (const auto& part : file->files()) std::printf("file      %s\n", part.c_str());
    std::printf("loader    %s\n\n%zu metadata entries\n", file->loader_id().c_str(), file->metadata().all().size());
    for (const auto& [key, value] : file->metadata().all())
        std::printf("  %-48s %-18s %s\n", key.c_str(), std::string{base::type_name(value)}.c_str(),
                    std::visit(ValueText{}, value).c_str());

    struct Sum {
        std::size_t count = 0;
        std::uint64_t bytes = 0;
    };
    std::map<std::string, Sum> by_format;
    std::uint64_t total = 0;
    for (const auto& t : file->tensors()) {
        Sum& sum = by_format[t.format];
        ++sum.count;
        sum.bytes += t.bytes;
        total += t.bytes;
    }
    std::printf("\n%zu tensors, %.1f MB\n", file->tensors().size(), static_cast<double>(total) / 1e6);
    for (const auto& [format, sum] : by_format)
        std::printf("  %-10s %6zu tensors %12.1f MB  %5.1f %%\n", format.c_str(), sum.count,
                    static_cast<double>(sum.bytes) / 1e6,
                    total == 0 ? 0.0 : 100.0 * static_cast<double>(sum.bytes) / static_cast<double>(total));
    if (!tensors) return;
    std::printf("\n");
    for (const auto& t : file->tensors())
        std::printf("  %-48s %-8s %-24s %12llu bytes at %llu\n", t.name.c_str(), t.format.c_str(),
                    model::shape_text(t.shape).c_str(), static_cast<unsigned long long>(t.bytes),
                    static_cast<unsigned long long>(t.offset));
}

struct AuditOptions {
    ModelOptions model;
    std::vector<std::string> allow_unused;
    bool check_weights = false;
};

void audit(const AuditOptions& options) {
    const config::Config config = options.model.to_config();
    StartDisplay display;
    StackOptions stack;
    display.attach(stack);
    plugin::WorkerLanes lanes{{plugin::WorkerLanes::num_processors(), std::chrono::microseconds{0}, "control"}};
    stack.services.control_lanes = lanes.abi();
    const auto registry = open_registry(config, stack.services);
    const auto file = open_model(*registry, config);
    std::vector<std::string> allowed = config.model.allow_unused_tensors;
    allowed.insert(allowed.end(), options.allow_unused.begin(), options.allow_unused.end());
    const model::AuditReport report = model::audit(*file, allowed);
    if (!report.passed()) throw base::ModelError{file->path() + ": " + report.to_text()};
    const model::Hparams& h = report.hparams;
    const auto tokenizer = open_tokenizer(*file, config, h.vocab_size);
    if (options.check_weights) (void)open_model(*registry, config, true);
    display.done();
    std::printf("%s: passed\n", file->path().c_str());
    std::printf("  architecture %s: %lld layers%s, hidden %lld, vocabulary %lld, context %lld\n", h.arch.c_str(),
                static_cast<long long>(h.num_layers),
                h.num_nextn_layers > 0 ? (" and " + std::to_string(h.num_nextn_layers) + " NextN").c_str() : "",
                static_cast<long long>(h.hidden_size), static_cast<long long>(h.vocab_size),
                static_cast<long long>(h.context_length));
    std::printf("  tensors: %zu used, %zu skipped, none missing, none unread\n", report.num_used, report.num_skipped);
    for (const auto& note : report.notes) std::printf("  %s\n", note.c_str());
    std::printf("  tokenizer: %d tokens, bos %d, %zu end-of-generation tokens\n", tokenizer->vocab_size(),
                tokenizer->special().bos, tokenizer->eog_ids().size());
}

}  // namespace

void add_inspect(CLI::App& cli) {
    auto* command = cli.add_subcommand("inspect", "Show what a model file holds: metadata, tensors, sizes per type");
    auto options = std::make_shared<ModelOptions>();
    auto all = std::make_shared<bool>(false);
    command->add_option("file", options->model, "Model file")->required();
    command->add_option("--plugins", options->plugin_folders, "Plugin folder (absolute)");
    command->add_flag("--tensors", *all, "List every tensor");
    command->callback([=] { inspect(*options, *all); });
}

void add_audit(CLI::App& cli) {
    auto* command = cli.add_subcommand(
        "audit", "Check that every parameter of the model is in the file, and every tensor of the file is used");
    command->footer(
        "Reads no weight, unless asked to. Exit code 0 when the file passes, 65 with all defects listed when not.\n"
        "Example: assayctl audit model.gguf --allow-unused 'v.*' --allow-unused 'mm.*' --weights");
    auto options = std::make_shared<AuditOptions>();
    command->add_option("file", options->model.model, "Model file")->required();
    command->add_option("-c,--config", options->model.config, "Configuration whose model.allow_unused_tensors applies");
    command
        ->add_option("--allow-unused", options->allow_unused,
                     "Pattern (* and ?) of tensors that nothing needs to read; may be given several times")
        ->allow_extra_args(false);
    command->add_flag("--weights", options->check_weights, "Also look at every weight and scale for NaN and Inf");
    command->add_option("--plugins", options->model.plugin_folders, "Plugin folder (absolute)");
    command->callback([=] { audit(*options); });
}

}  // namespace app::cli
