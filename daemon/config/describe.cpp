#include <algorithm>
#include <limits>

#include "daemon/config/assign.hpp"
#include "daemon/config/mistakes.hpp"

namespace config {
namespace {

constexpr std::size_t kWhole = std::numeric_limits<std::size_t>::max();

template <class Items>
std::string toml_list(const Items& items) {
    std::string text;
    for (const auto& item : items) {
        text += text.empty() ? "[" : ", ";
        text += toml_quoted(std::string{item}, kWhole);
    }
    return text.empty() ? "[]" : text + ']';
}

struct Effective {
    const Config& config;

    std::string operator()(const Ref<bool>& ref) const { return shown(ref.read(config)); }
    std::string operator()(const Ref<int>& ref) const { return std::to_string(ref.read(config)); }
    std::string operator()(const Ref<std::int64_t>& ref) const {
        return std::to_string(ref.read(config));
    }
    std::string operator()(const Ref<double>& ref) const { return shown(ref.read(config)); }
    std::string operator()(const Ref<std::chrono::milliseconds>& ref) const {
        return std::to_string(ref.read(config).count());
    }
    std::string operator()(const Ref<std::string>& ref) const {
        return toml_quoted(ref.read(config), kWhole);
    }
    std::string operator()(const Ref<std::filesystem::path>& ref) const {
        return toml_quoted(ref.read(config).string(), kWhole);
    }
    std::string operator()(const Ref<Address>& ref) const {
        const Address& address = ref.read(config);
        const bool is_ipv6 = address.host.find(':') != std::string::npos;
        const std::string host = is_ipv6 ? '[' + address.host + ']' : address.host;
        return toml_quoted(host + ':' + std::to_string(address.port), kWhole);
    }
    std::string operator()(const Ref<std::vector<std::string>>& ref) const {
        return toml_list(ref.read(config));
    }
    std::string operator()(const Ref<std::vector<std::filesystem::path>>& ref) const {
        return toml_list(ref.read(config));
    }
    std::string operator()(const ChoiceRef& choice) const {
        return toml_quoted(choice.names[static_cast<std::size_t>(choice.get(config))], kWhole);
    }
};

std::string origin_text(const Config& config, const std::string& full_name,
                        const std::string& variable) {
    const auto found = config.origins.find(full_name);
    if (found == config.origins.end()) return "default";
    if (found->second.source == Origin::Source::environment) return variable;
    return config.file.filename().string() + ':' + std::to_string(found->second.line);
}

std::string line(const std::string& name, const std::string& value, const std::string& origin) {
    constexpr std::size_t kColumn = 60;
    std::string text = name + " = " + value;
    if (text.size() < kColumn) text.append(kColumn - text.size(), ' ');
    // The file's name may hold anything; a comment may not.
    std::string comment = origin;
    std::ranges::replace_if(comment, [](char c) { return static_cast<unsigned char>(c) < 0x20; }, '?');
    return text + "  # " + comment + '\n';
}

}  // namespace

std::string effective(const Key& key, const Config& config) {
    return std::visit(Effective{config}, key.target);
}

std::string default_text(const Key& key) {
    // The one default that depends on where the program lies.
    if (std::holds_alternative<Ref<std::vector<std::filesystem::path>>>(key.target)) {
        return toml_list(std::vector{kDefaultPluginFolder});
    }
    static const Config kDefaults;
    return effective(key, kDefaults);
}

std::string describe(const Config& config) {
    std::string text;
    for (const Key& key : keys()) {
        text += line(key.full_name(), effective(key, config),
                     origin_text(config, key.full_name(), key.variable()));
    }
    for (const auto& [plugin, options] : config.backends.options) {
        for (const auto& [name, value] : options) {
            const std::string prefix = "backends.options.";
            text += line(prefix + toml_quoted(plugin) + '.' + toml_quoted(name, kWhole), toml_quoted(value, kWhole),
                         origin_text(config, prefix + plugin + '.' + name, ""));
        }
    }
    return text;
}

}  // namespace config
