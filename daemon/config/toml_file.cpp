#include "daemon/config/toml_file.hpp"

#include <algorithm>
#include <iterator>
#include <optional>

namespace config {
namespace {

/// toml++ takes some malformed texts ("[[[") for impossible: it asserts, and where asserts are off
/// goes on regardless. Here such a text is a mistake like any other.
struct Impossible {};
[[noreturn]] void refuse_text() { throw Impossible{}; }

}  // namespace
}  // namespace config

// The only place that sees toml++: its headers cost seconds of compile time.
#define TOML_HEADER_ONLY 1
#define TOML_ENABLE_FORMATTERS 0
#define TOML_ASSERT(condition) ((condition) ? void() : ::config::refuse_text())
#pragma push_macro("NDEBUG")
#undef NDEBUG  // with it, toml++ would replace our TOML_ASSERT
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wconversion"
#include <toml++/toml.h>
#pragma GCC diagnostic pop
#pragma pop_macro("NDEBUG")

namespace config {
namespace {

constexpr std::string_view kOptions = "backends.options";

std::string_view type_words(toml::node_type type) {
    switch (type) {
        case toml::node_type::table: return "a table";
        case toml::node_type::array: return "a list";
        case toml::node_type::string: return "a string";
        case toml::node_type::integer: return "an integer";
        case toml::node_type::floating_point: return "a float";
        case toml::node_type::boolean: return "a boolean";
        case toml::node_type::date: return "a date";
        case toml::node_type::time: return "a time";
        case toml::node_type::date_time: return "a date and time";
        case toml::node_type::none: break;
    }
    return "nothing";
}

/// The value of a scalar or of a list of strings; nothing for the rest.
std::optional<Value> value_of(const toml::node& node) {
    if (const auto* text = node.as_string()) return text->get();
    if (const auto* whole = node.as_integer()) return whole->get();
    if (const auto* real = node.as_floating_point()) return real->get();
    if (const auto* flag = node.as_boolean()) return flag->get();
    if (const auto* array = node.as_array()) {
        std::vector<std::string> list;
        for (const toml::node& item : *array) {
            const auto* text = item.as_string();
            if (text == nullptr) return {};
            list.push_back(text->get());
        }
        return list;
    }
    return {};
}

std::string found_words(const toml::node& node) {
    if (const auto* array = node.as_array()) {
        for (std::size_t i = 0; i < array->size(); ++i) {
            if (!(*array)[i].is_string()) {
                return "a list with " + std::string{type_words((*array)[i].type())} + " in place " +
                       std::to_string(i + 1);
            }
        }
    }
    return std::string{type_words(node.type())};
}

bool is_section(std::string_view name) {
    if (name == kOptions) return true;
    return std::ranges::any_of(keys(), [&](const Key& key) {
        return key.section.starts_with(name) &&
               (key.section.size() == name.size() || key.section[name.size()] == '.');
    });
}

/// What a section may hold: its keys and the sections below it, by their names in it.
std::vector<std::string> members_of(std::string_view section) {
    std::vector<std::string> names;
    const auto add = [&](std::string_view name) {
        if (std::ranges::find(names, name) == names.end()) names.emplace_back(name);
    };
    const auto add_section_below = [&](std::string_view whole) {
        const std::size_t start = section.empty() ? 0 : section.size() + 1;
        if (whole.size() <= section.size() || !whole.starts_with(section)) return;
        if (!section.empty() && whole[section.size()] != '.') return;
        const std::string_view rest = whole.substr(start);
        add(rest.substr(0, rest.find('.')));
    };
    for (const Key& key : keys()) {
        if (key.section == section) add(key.name);
        add_section_below(key.section);
    }
    add_section_below(kOptions);
    return names;
}

/// "one of …; did you mean …?"
std::string expected_members(std::string_view section, std::string_view name) {
    const std::vector<std::string> members = members_of(section);
    std::string text = "one of ";
    for (const std::string& member : members) {
        if (&member != &members.front()) text += ", ";
        text += member;
    }
    if (const auto close = nearest(name, members); !close.empty()) {
        return text + "; did you mean " + std::string{close} + '?';
    }
    for (const Key& key : keys()) {
        if (key.name == name) return text + "; did you mean " + key.full_name() + '?';
    }
    return text;
}

class Reader {
public:
    Reader(const std::string& source, const Folders& folders, Config& config,
           std::vector<Mistake>& mistakes)
        : source_{source}, folders_{folders}, config_{config}, mistakes_{mistakes} {}

    void section(const toml::table& table, const std::string& section_name) {
        for (const auto& [key, node] : table) {
            const std::string_view name = key.str();
            // A quoted key with a dot in it is one unknown key, not a path of two.
            const bool is_bare = name.find('.') == std::string_view::npos && is_plain_text(name);
            const std::string full = joined(section_name, is_bare ? std::string{name} : toml_quoted(name));
            if (full == kOptions) {
                options(node, full);
            } else if (const Key* known = is_bare ? find_key(full) : nullptr) {
                value(*known, node, full);
            } else if (is_bare && is_section(full)) {
                if (const auto* inner = node.as_table()) {
                    section(*inner, full);
                } else {
                    add(node.source(), full, found_words(node), "a table: [" + full + ']');
                }
            } else {
                add(key.source(), full, "an unknown key", expected_members(section_name, name));
            }
        }
    }

private:
    static std::string joined(const std::string& section_name, const std::string& name) {
        return section_name.empty() ? name : section_name + '.' + name;
    }

    void add(const toml::source_region& where, std::string key, std::string found,
             std::string expected) {
        mistakes_.push_back({source_, static_cast<int>(where.begin.line),
                             static_cast<int>(where.begin.column), std::move(key),
                             std::move(found), std::move(expected)});
    }

    void note_origin(const std::string& full, const toml::node& node) {
        config_.origins[full] = {Origin::Source::file,
                                 static_cast<int>(node.source().begin.line)};
    }

    void value(const Key& key, const toml::node& node, const std::string& full) {
        const std::optional<Value> value = value_of(node);
        if (!value) {
            add(node.source(), full, found_words(node), expectation(key));
        } else if (auto rejected = assign(key, *value, folders_, config_)) {
            add(node.source(), full, std::move(rejected->found), std::move(rejected->expected));
        } else {
            note_origin(full, node);
        }
    }

    /// [backends.options.<plugin id>]: whatever the plugin understands, as text.
    void options(const toml::node& node, const std::string& full) {
        const auto* plugins = node.as_table();
        if (plugins == nullptr) return add(node.source(), full, found_words(node), "a table");
        for (const auto& [plugin_key, plugin_node] : *plugins) {
            const std::string plugin{plugin_key.str()};
            const std::string shown = is_plugin_id(plugin) ? plugin : toml_quoted(plugin);
            const std::string prefix = joined(full, shown);
            if (!is_plugin_id(plugin)) {
                add(plugin_key.source(), prefix, "no plugin id",
                    "letters, digits, '-', '_' and '.', at most 64 of them");
                continue;
            }
            const auto* table = plugin_node.as_table();
            if (table == nullptr) {
                add(plugin_node.source(), prefix, found_words(plugin_node), "a table of options");
                continue;
            }
            for (const auto& [key, option] : *table) plugin_option(plugin, prefix, key, option);
        }
    }

    void plugin_option(const std::string& plugin, const std::string& prefix, const toml::key& key,
                       const toml::node& node) {
        const std::string name{key.str()};
        const bool is_plain = is_plugin_id(name);  // the same letters will do
        const std::string full = joined(prefix, is_plain ? name : toml_quoted(name));
        if (!is_plain) {
            return add(key.source(), full, "no option name",
                       "letters, digits, '-', '_' and '.', at most 64 of them");
        }
        const std::optional<Value> value = value_of(node);
        if (!value || std::holds_alternative<std::vector<std::string>>(*value)) {
            return add(node.source(), full, found_words(node),
                       "a string, an integer, a float, true or false");
        }
        const auto* text = std::get_if<std::string>(&*value);
        if (text != nullptr && !is_plain_text(*text)) {
            return add(node.source(), full, toml_quoted(*text), "text without control characters");
        }
        config_.backends.options[plugin][name] = text != nullptr ? *text : shown(*value);
        note_origin(full, node);
    }

    const std::string& source_;
    const Folders& folders_;
    Config& config_;
    std::vector<Mistake>& mistakes_;
};

/// The first line with which the text becomes Impossible. The parser reads front to back, so that
/// every longer prefix is so too.
int line_of_impossible(std::string_view text) {
    std::vector<std::size_t> ends;  // of each line
    for (std::size_t at = 0; at < text.size(); ++at) {
        if (text[at] == '\n') ends.push_back(at);
    }
    ends.push_back(text.size());
    const auto is_possible = [&](std::size_t end) {
        try {
            (void)toml::parse(text.substr(0, end));
        } catch (const toml::parse_error&) {  // an unfinished value, say
        } catch (const Impossible&) {
            return false;
        }
        return true;
    };
    const auto first = std::ranges::partition_point(ends, is_possible);
    return static_cast<int>(std::min<std::ptrdiff_t>(first - ends.begin() + 1, std::ssize(ends)));
}

}  // namespace

void read_toml(std::string_view text, const std::string& source, const Folders& folders,
               Config& config, std::vector<Mistake>& mistakes) {
    try {
        const toml::table table = toml::parse(text);
        Reader{source, folders, config, mistakes}.section(table, "");
    } catch (const toml::parse_error& error) {
        std::string reason{error.description()};
        if (!is_plain_text(reason)) reason = toml_quoted(reason, 200);
        const auto where = error.source().begin;
        mistakes.push_back({source, static_cast<int>(where.line), static_cast<int>(where.column),
                            "", "no valid TOML (" + reason + ')', "TOML 1.0"});
    } catch (const Impossible&) {
        mistakes.push_back({source, line_of_impossible(text), 1, "",
                            "no valid TOML (a key is missing)", "TOML 1.0"});
    }
}

}  // namespace config
