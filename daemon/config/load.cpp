#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <tuple>

#include "daemon/config/assign.hpp"
#include "daemon/config/mistakes.hpp"
#include "daemon/config/text_file.hpp"
#include "daemon/config/toml_file.hpp"

namespace config {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxFileBytes = 1 << 20;
constexpr std::string_view kVariablePrefix = "ASSAY_";

void read_environment(const Environment& environment, const Folders& folders, Config& config,
                      std::vector<Mistake>& mistakes) {
    std::vector<std::string> known;
    for (const Key& key : keys()) known.push_back(key.variable());

    for (const auto& [name, text] : environment.variables) {
        if (!name.starts_with(kVariablePrefix)) continue;
        const auto found = std::ranges::find(known, name);
        if (found == known.end()) {
            const auto close = nearest(name, known);
            mistakes.push_back({"environment", 0, 0, is_plain_text(name) ? name : toml_quoted(name),
                                "an unknown variable",
                                close.empty()
                                    ? "ASSAY_<SECTION>_<KEY> of a key of the configuration file"
                                    : "a known one; did you mean " + std::string{close} + '?'});
            continue;
        }
        const Key& key = keys()[static_cast<std::size_t>(found - known.begin())];
        if (auto rejected = assign(key, value_from_text(key, text), folders, config)) {
            mistakes.push_back({"environment", 0, 0, name, std::move(rejected->found),
                                std::move(rejected->expected)});
        } else {
            config.origins[key.full_name()] = {Origin::Source::environment, 0};
        }
    }
}

/// The line that set a key, for mistakes that several keys make together.
Mistake mistake_about(std::string_view key, const Config& config, const std::string& source,
                      std::string found, std::string expected) {
    Mistake mistake{source, 0, 0, std::string{key}, std::move(found), std::move(expected)};
    const auto origin = config.origins.find(key);
    if (origin != config.origins.end()) {
        mistake.line = origin->second.line;
        mistake.column = mistake.line > 0 ? 1 : 0;
        if (origin->second.source == Origin::Source::environment) mistake.source = "environment";
    }
    return mistake;
}

void check_together(const Config& config, const std::string& source, bool has_mistakes,
                    std::vector<Mistake>& mistakes) {
    const auto add = [&](std::string_view key, std::string found, std::string expected) {
        mistakes.push_back(
            mistake_about(key, config, source, std::move(found), std::move(expected)));
    };
    const bool has_path_mistake =
        std::ranges::any_of(mistakes, [](const Mistake& m) {
            return m.key == "model.path" || m.key == "ASSAY_MODEL_PATH" || m.key.empty();
        });
    if (config.model.path.empty() && !has_path_mistake) {
        add("model.path", "nothing", "the path of a GGUF file");
    }
    // The others compare keys of which one may have been refused, and then say something wrong.
    if (has_mistakes) return;

    const Scheduler& scheduler = config.scheduler;
    if (scheduler.max_num_batched_tokens < scheduler.max_num_seqs) {
        add("scheduler.max_num_batched_tokens", std::to_string(scheduler.max_num_batched_tokens),
            "at least scheduler.max_num_seqs (" + std::to_string(scheduler.max_num_seqs) +
                "), one token for each sequence");
    }
    if (config.kv.max_tokens != 0 && config.kv.max_tokens < config.kv.block_size) {
        add("kv.max_tokens", std::to_string(config.kv.max_tokens),
            "0, or at least one block of kv.block_size (" + std::to_string(config.kv.block_size) +
                ") tokens");
    }
    const Tls& tls = config.tls;
    if (tls.certificate.empty() != tls.key.empty()) {
        add(tls.certificate.empty() ? "tls.certificate" : "tls.key", "nothing",
            std::string{"a PEM file, since tls."} + (tls.certificate.empty() ? "key" : "certificate") + " is set");
    }
    if (config.log.messages && config.log.access_file.empty()) {
        add("log.messages", "true", "log.access_file to be set, or false");
    }
    if (config.server.api_keys_file.empty() && !is_loopback(config.server.listen)) {
        add("server.listen", toml_quoted(config.server.listen.host),
            "a loopback address (127.0.0.1, [::1], localhost), or server.api_keys_file to be set: "
            "whoever reaches the port could use the model");
    }
}

}  // namespace

Config parse(std::string_view text, const fs::path& file_name, const Environment& environment) {
    Config config;
    config.file = file_name;
    std::vector<Mistake> mistakes;
    const std::string source =
        is_plain_text(file_name.string()) ? file_name.string() : toml_quoted(file_name.string());

    fs::path folder = file_name.parent_path();
    if (!folder.is_absolute()) folder = environment.working_folder / folder;
    const Folders of_file{folder, environment.executable_folder};
    const Folders of_variables{environment.working_folder, environment.executable_folder};

    const Key& plugin_folders = *find_key("plugins.folders");
    if (assign(plugin_folders, std::vector<std::string>{std::string{kDefaultPluginFolder}}, of_file,
               config)) {
        mistakes.push_back({source, 0, 0, "plugins.folders", "no folder of the executable",
                            "/proc to be mounted, so that $ORIGIN can be found"});
    }
    read_toml(text, source, of_file, config, mistakes);
    std::ranges::stable_sort(mistakes, {}, [](const Mistake& mistake) {
        return std::tuple{mistake.line, mistake.column};
    });
    read_environment(environment, of_variables, config, mistakes);
    check_together(config, source, !mistakes.empty(), mistakes);
    if (!mistakes.empty()) throw Mistakes{std::move(mistakes)};
    return config;
}

std::string read_text_file(const fs::path& file) {
    const auto refuse = [&](const std::string& found) {
        throw Mistakes{{{toml_quoted(file.string(), 500), 0, 0, "", found,
                         "a readable TOML file of at most 1 MiB"}}};
    };
    std::error_code error;
    if (!fs::exists(file, error)) refuse(error ? error.message() : "no such file");
    if (fs::is_directory(file, error)) refuse("a folder");
    std::ifstream stream{file, std::ios::binary};
    if (!stream) refuse(std::strerror(errno));
    std::string text(kMaxFileBytes + 1, '\0');
    stream.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (stream.bad()) refuse("a read error");
    text.resize(static_cast<std::size_t>(stream.gcount()));
    if (text.size() > kMaxFileBytes) refuse("more than 1 MiB");
    return text;
}

Config load(const fs::path& file, const Environment& environment) {
    return parse(read_text_file(file), file, environment);
}

}  // namespace config
