#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "daemon/app/backends.hpp"
#include "daemon/app/cli/commands.hpp"
#include "daemon/base/error.hpp"
#include "daemon/config/environment.hpp"

namespace app::cli {

void ModelOptions::add_to(CLI::App& command) {
    command.add_option("-m,--model", model, "Model file (GGUF; of a split model, any part)");
    command.add_option("-c,--config", config, "Configuration file whose backends and limits apply");
    command
        .add_option("--backends", backends,
                    "Backends by name: 'reference' computes every op by its definition (slow, exact), 'cpu' "
                    "with vector code, 'cuda' on a GPU. Default: the configuration, else cpu")
        ->check(CLI::IsMember({"reference", "cpu", "cuda"}));
    command.add_option("--plugins", plugin_folders, "Plugin folder (absolute); may be given several times");
    command.add_option("-t,--threads", threads, "Worker lanes; 0 = one per processor");
}

void apply_backends(config::Config& config, const std::string& preset) {
    if (preset.empty()) return;
    config.backends.options.clear();
    if (preset == "reference") {
        use_reference_backends(config);
    } else if (preset == "cpu") {
        config.backends.device = {"cpu"};
        config.backends.quant = {"ggml"};
        config.backends.attention = {{"cpu-flash"}, {"cpu-flash"}};
    } else {
        config.backends.device = {"cuda"};
        config.backends.quant = {"cuda-ggml"};
        config.backends.attention = {{"cuda-gqa", "cuda-mla"}, {"cuda-gqa", "cuda-mla"}};
    }
}

config::Config ModelOptions::to_config() const {
    const config::Environment environment = config::Environment::of_process();
    config::Config c;
    if (!config.empty()) {
        c = config::load(config, environment);
    } else {
        if (model.empty()) throw base::StartError{base::ExitCode::usage, "--model or --config is required"};
        std::string quoted;
        for (const char ch : std::filesystem::absolute(model).string())
            quoted += ch == '\'' ? std::string{"''"} : std::string(1, ch);
        c = config::parse("[model]\npath = '" + quoted + "'\n", "command line", environment);
    }
    if (!model.empty()) c.model.path = std::filesystem::absolute(model);
    if (!plugin_folders.empty()) {
        c.plugins.folders.clear();
        for (const auto& folder : plugin_folders) c.plugins.folders.emplace_back(folder);
    }
    if (threads > 0) c.engine.threads = threads;
    apply_backends(c, backends);
    return c;
}

std::vector<std::int32_t> read_tokens(const std::string& path) {
    std::ifstream in{path, std::ios::binary};
    if (!in) throw base::StartError{base::ExitCode::usage, path + ": cannot be read: " + std::strerror(errno)};
    const std::string bytes{std::istreambuf_iterator<char>{in}, {}};
    if (bytes.empty() || bytes.size() % 4 != 0)
        throw base::StartError{base::ExitCode::usage, path + ": expected a sequence of 32-bit token ids, found " +
                                                          std::to_string(bytes.size()) + " bytes"};
    std::vector<std::int32_t> tokens(bytes.size() / 4);
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(tokens.data()));
    return tokens;
}

}  // namespace app::cli
