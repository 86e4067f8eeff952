#include "daemon/config/keys_file.hpp"

#include <algorithm>
#include <fstream>
#include <limits>

#include "daemon/config/assign.hpp"
#include "daemon/config/mistakes.hpp"
#include "daemon/config/text_file.hpp"
#include "daemon/config/toml_file.hpp"

namespace config {
namespace {

constexpr std::size_t kMaxKeys = 1000;
constexpr std::size_t kMinSecretBytes = 16, kMaxSecretBytes = 512;
constexpr std::size_t kMaxLabelBytes = 64;

bool is_printable_ascii(std::string_view text) {
    return std::ranges::all_of(text, [](char c) { return c > 0x20 && c < 0x7f; });
}

bool is_hexadecimal(std::string_view text) {
    return std::ranges::all_of(text, [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
    });
}

/// One [[key]] read member by member.
class Reader {
public:
    Reader(const std::string& source, std::vector<Mistake>& mistakes) : source_{source}, mistakes_{mistakes} {}

    ApiKeyEntry read(const TableRow& row) {
        ApiKeyEntry entry;
        for (const TableMember& member : row.members) {
            if (member.name == "label")
                text(member, entry.label, "1 to 64 bytes of text",
                     [](const std::string& v) { return !v.empty() && v.size() <= kMaxLabelBytes; });
            else if (member.name == "secret")
                text(member, entry.secret, "16 to 512 printable ASCII characters without spaces",
                     [](const std::string& v) {
                         return v.size() >= kMinSecretBytes && v.size() <= kMaxSecretBytes && is_printable_ascii(v);
                     });
            else if (member.name == "sha256")
                text(member, entry.sha256, "64 hexadecimal digits",
                     [](const std::string& v) { return v.size() == 64 && is_hexadecimal(v); });
            else if (member.name == "max_in_flight")
                number(member, entry.max_in_flight);
            else if (member.name == "tokens_per_minute")
                number(member, entry.tokens_per_minute);
            else
                add(member.line, member.column, "key." + shown_name(member.name), "an unknown member",
                    "one of label, secret, sha256, max_in_flight, tokens_per_minute");
        }
        if (!has(row, "label")) add(row.line, row.column, "key.label", "nothing", "a label, for logs and metrics");
        if (has(row, "secret") == has(row, "sha256"))
            add(row.line, row.column, "key", has(row, "secret") ? "secret and sha256" : "neither secret nor sha256",
                "one of the two");
        return entry;
    }

    void add(int line, int column, std::string key, std::string found, std::string expected) {
        mistakes_.push_back({source_, line, column, std::move(key), std::move(found), std::move(expected)});
    }

private:
    static std::string shown_name(const std::string& name) {
        return is_plugin_id(name) ? name : toml_quoted(name);
    }
    static bool has(const TableRow& row, std::string_view name) {
        return std::ranges::any_of(row.members, [&](const TableMember& member) { return member.name == name; });
    }

    template <class Check>
    void text(const TableMember& member, std::string& out, const char* expected, Check is_right) {
        const auto* value = member.value ? std::get_if<std::string>(&*member.value) : nullptr;
        if (value == nullptr || !is_plain_text(*value) || !is_right(*value)) {
            // What was written may be a secret, or most of one.
            add(member.line, member.column, "key." + member.name,
                value == nullptr ? "no string" : "a string of " + std::to_string(value->size()) + " bytes", expected);
            return;
        }
        out = *value;
    }

    template <class Integer>
    void number(const TableMember& member, Integer& out) {
        constexpr std::int64_t kMax = 1'000'000'000;
        const auto* value = member.value ? std::get_if<std::int64_t>(&*member.value) : nullptr;
        if (value == nullptr || *value < 0 || *value > kMax)
            return add(member.line, member.column, "key." + member.name,
                       member.value ? shown(*member.value) : "no integer", "an integer from 0 to 1000000000");
        out = static_cast<Integer>(*value);
    }

    const std::string& source_;
    std::vector<Mistake>& mistakes_;
};

}  // namespace

std::vector<ApiKeyEntry> parse_api_keys(std::string_view text, const std::filesystem::path& file_name) {
    const std::string name = file_name.string();
    const std::string source = is_plain_text(name) ? name : toml_quoted(name);
    std::vector<Mistake> mistakes;
    const std::vector<TableRow> rows = read_toml_rows(text, source, "key", mistakes);
    std::vector<ApiKeyEntry> keys;
    Reader reader{source, mistakes};
    for (const TableRow& row : rows) {
        ApiKeyEntry entry = reader.read(row);
        const bool is_known = std::ranges::any_of(keys, [&](const ApiKeyEntry& other) {
            return (!entry.secret.empty() && other.secret == entry.secret) ||
                   (!entry.sha256.empty() && other.sha256 == entry.sha256);
        });
        if (is_known) reader.add(row.line, row.column, "key", "the same key a second time", "each key once");
        keys.push_back(std::move(entry));
    }
    if (mistakes.empty() && keys.empty()) reader.add(0, 0, "key", "no [[key]]", "at least one");
    if (keys.size() > kMaxKeys)
        reader.add(0, 0, "key", std::to_string(keys.size()) + " keys", "at most " + std::to_string(kMaxKeys));
    if (!mistakes.empty()) throw Mistakes{std::move(mistakes)};
    return keys;
}

std::vector<ApiKeyEntry> load_api_keys(const std::filesystem::path& file) {
    return parse_api_keys(read_text_file(file), file);
}

}  // namespace config
