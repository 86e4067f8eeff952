#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "daemon/config/config.hpp"

namespace config {

/// Gives a member of a Config.
template <class T>
struct Ref {
    T& (*write)(Config&);
    const T& (*read)(const Config&);
};

/// A member of an enumeration type, by position in `names`.
struct ChoiceRef {
    std::span<const std::string_view> names;
    int (*get)(const Config&);
    void (*set)(Config&, int index);
};

using Target = std::variant<Ref<bool>, Ref<int>, Ref<std::int64_t>, Ref<double>,
                            Ref<std::chrono::milliseconds>, Ref<std::string>,
                            Ref<std::filesystem::path>, Ref<Address>,
                            Ref<std::vector<std::string>>,
                            Ref<std::vector<std::filesystem::path>>, ChoiceRef>;

/// What a value must be beyond its type and range.
enum class Rule {
    none,
    power_of_two,
    required,      ///< a path that must be given
    plugin_id,     ///< each string is a plugin id; at least one
    alternatives,  ///< the same, and a single string may stand for a list of one
    origin,        ///< each string is scheme://host[:port]
};

/// One setting: what parsing, --check and the documentation know about it.
struct Key {
    std::string_view section;  ///< as in [section]
    std::string_view name;
    Target target;
    std::string_view unit;  ///< "" where there is none
    double min = 0;         ///< of numbers, in `unit`
    double max = 0;
    Rule rule = Rule::none;
    bool is_reloadable = false;  ///< whether a reload changes it while serving
    std::string_view help;

    [[nodiscard]] std::string full_name() const;  ///< "kv.block_size"
    [[nodiscard]] std::string variable() const;   ///< "ASSAY_KV_BLOCK_SIZE"
};

/// Every setting, grouped by section. Free-form [backends.options.<plugin id>] is not among them.
[[nodiscard]] std::span<const Key> keys();

/// Null when there is none.
[[nodiscard]] const Key* find_key(std::string_view full_name);

/// The default of plugins.folders: right wherever `bin/assayd` lies beside `plugins/`, as in a build
/// tree, or in an installed folder that /usr/bin/assayd is a link into.
inline constexpr std::string_view kDefaultPluginFolder = "$ORIGIN/../plugins";

/// "an integer from 1 to 1024, a power of two (tokens)": what a value of this key must be.
[[nodiscard]] std::string expectation(const Key& key);

/// The default as TOML.
[[nodiscard]] std::string default_text(const Key& key);

}  // namespace config
