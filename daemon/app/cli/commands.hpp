#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "daemon/app/stack.hpp"
#include "daemon/config/config.hpp"

namespace CLI {
class App;
}

namespace app::cli {

// Each adds one subcommand of assayctl to `cli`; it runs when parsed and throws base::StartError.
void add_assay(CLI::App& cli);
void add_bisect(CLI::App& cli);
void add_calibrate(CLI::App& cli);
void add_inspect(CLI::App& cli);
void add_audit(CLI::App& cli);
void add_logits(CLI::App& cli);
void add_bench(CLI::App& cli);
void add_complete(CLI::App& cli);
void add_merge(CLI::App& cli);
void add_split(CLI::App& cli);
void add_support(CLI::App& cli);

/// Options that subcommands with a model have in common.
struct ModelOptions {
    std::string model;              ///< path of the model file
    std::string config;             ///< configuration file; empty: defaults
    std::string backends;           ///< "", "reference", "cpu" or "cuda": overrides the configuration
    std::vector<std::string> plugin_folders;
    int threads = 0;

    void add_to(CLI::App& command);
    /// The configuration these describe. Throws base::ConfigError.
    [[nodiscard]] config::Config to_config() const;
};

/// The backends of a preset written into `config`: "reference" is the definition arithmetic
/// everywhere.
void apply_backends(config::Config& config, const std::string& preset);

[[nodiscard]] std::vector<std::int32_t> read_tokens(const std::string& path);

}  // namespace app::cli
