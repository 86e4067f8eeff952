#include "daemon/config/assign.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "daemon/config/mistakes.hpp"

namespace config {
namespace {

namespace fs = std::filesystem;
using Milliseconds = std::chrono::milliseconds;

bool is_alnum(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

std::optional<Address> parse_address(std::string_view text) {
    const auto colon = text.rfind(':');
    if (colon == std::string_view::npos || colon == 0) return {};
    std::string_view host = text.substr(0, colon);
    const std::string_view port = text.substr(colon + 1);
    if (host.front() == '[') {
        if (host.size() < 3 || host.back() != ']') return {};
        host = host.substr(1, host.size() - 2);
        const auto is_ipv6 = [](char c) { return is_alnum(c) || c == ':' || c == '.' || c == '%'; };
        if (!std::ranges::all_of(host, is_ipv6)) return {};
    } else {
        const auto is_host = [](char c) { return is_alnum(c) || c == '.' || c == '-' || c == '_'; };
        if (!std::ranges::all_of(host, is_host)) return {};
    }
    Address address{std::string{host}, 0};
    const auto [end, error] =
        std::from_chars(port.data(), port.data() + port.size(), address.port);
    if (error != std::errc{} || port.empty() || end != port.data() + port.size()) return {};
    return address;
}

bool is_web_origin(std::string_view text) {
    const auto colon = text.find("://");
    if (colon == std::string_view::npos || colon == 0) return false;
    const auto is_scheme = [](char c) { return is_alnum(c) || c == '+' || c == '-' || c == '.'; };
    if (!std::ranges::all_of(text.substr(0, colon), is_scheme)) return false;
    std::string host{text.substr(colon + 3)};
    if (host.empty()) return false;
    const bool has_port = host.back() != ']' && host.rfind(':') != std::string::npos;
    if (!has_port) host += ":0";
    return parse_address(host).has_value();
}

/// Absolute and normal; nothing for a relative path when `must_be_absolute`.
std::optional<fs::path> resolved(const std::string& text, const Folders& folders,
                                 bool must_be_absolute) {
    constexpr std::string_view kOrigin = "$ORIGIN";
    if (text.starts_with(kOrigin)) {
        const std::string_view rest = std::string_view{text}.substr(kOrigin.size());
        if (!rest.empty() && rest.front() != '/') return {};
        if (!folders.executable.is_absolute()) return {};
        fs::path whole = folders.executable;
        whole += rest;
        return whole.lexically_normal();
    }
    const fs::path path{text};
    if (path.is_absolute()) return path.lexically_normal();
    if (must_be_absolute) return {};
    return (folders.relative_to / path).lexically_normal();
}

/// Puts the value into the member; false when it is not what the key wants.
struct Assign {
    const Key& key;
    const Value& value;
    const Folders& folders;
    Config& config;

    [[nodiscard]] bool is_in_range(double number) const {
        return number >= key.min && number <= key.max;  // false for NaN
    }

    template <class Integer>
    [[nodiscard]] bool integer(Integer& out) const {
        const auto* number = std::get_if<std::int64_t>(&value);
        if (number == nullptr || !is_in_range(static_cast<double>(*number))) return false;
        if (key.rule == Rule::power_of_two && (*number <= 0 || (*number & (*number - 1)) != 0)) {
            return false;
        }
        out = static_cast<Integer>(*number);
        return true;
    }

    bool operator()(const Ref<bool>& ref) const {
        const auto* flag = std::get_if<bool>(&value);
        if (flag == nullptr) return false;
        ref.write(config) = *flag;
        return true;
    }
    bool operator()(const Ref<int>& ref) const { return integer(ref.write(config)); }
    bool operator()(const Ref<std::int64_t>& ref) const { return integer(ref.write(config)); }
    bool operator()(const Ref<Milliseconds>& ref) const {
        std::int64_t count = 0;
        if (!integer(count)) return false;
        ref.write(config) = Milliseconds{count};
        return true;
    }
    bool operator()(const Ref<double>& ref) const {
        double number = 0;
        if (const auto* whole = std::get_if<std::int64_t>(&value)) {
            number = static_cast<double>(*whole);
        } else if (const auto* real = std::get_if<double>(&value)) {
            number = *real;
        } else {
            return false;
        }
        if (!is_in_range(number)) return false;
        ref.write(config) = number;
        return true;
    }
    bool operator()(const Ref<std::string>& ref) const {
        const auto* text = std::get_if<std::string>(&value);
        if (text == nullptr || !is_plain_text(*text)) return false;
        ref.write(config) = *text;
        return true;
    }
    bool operator()(const Ref<fs::path>& ref) const {
        const auto* text = std::get_if<std::string>(&value);
        if (text == nullptr || !is_plain_text(*text)) return false;
        if (text->empty()) {
            if (key.rule == Rule::required) return false;
            ref.write(config).clear();
            return true;
        }
        auto path = resolved(*text, folders, false);
        if (!path) return false;
        ref.write(config) = *std::move(path);
        return true;
    }
    bool operator()(const Ref<Address>& ref) const {
        const auto* text = std::get_if<std::string>(&value);
        if (text == nullptr) return false;
        auto address = parse_address(*text);
        if (!address) return false;
        ref.write(config) = *std::move(address);
        return true;
    }
    bool operator()(const Ref<std::vector<std::string>>& ref) const {
        std::vector<std::string> list;
        if (const auto* many = std::get_if<std::vector<std::string>>(&value)) {
            list = *many;
        } else if (const auto* one = std::get_if<std::string>(&value);
                   one != nullptr && key.rule == Rule::alternatives) {
            list = {*one};
        } else {
            return false;
        }
        const bool are_ids = key.rule == Rule::plugin_id || key.rule == Rule::alternatives;
        if (are_ids && list.empty()) return false;
        for (auto item = list.begin(); item != list.end(); ++item) {
            if (!is_plain_text(*item) || item->empty()) return false;
            if (are_ids && !is_plugin_id(*item)) return false;
            if (key.rule == Rule::origin && !is_web_origin(*item)) return false;
            if (std::find(list.begin(), item, *item) != item) return false;  // named twice
        }
        ref.write(config) = std::move(list);
        return true;
    }
    bool operator()(const Ref<std::vector<fs::path>>& ref) const {
        const auto* list = std::get_if<std::vector<std::string>>(&value);
        if (list == nullptr || list->empty()) return false;
        std::vector<fs::path> paths;
        for (const std::string& item : *list) {
            if (!is_plain_text(item) || item.empty()) return false;
            auto path = resolved(item, folders, true);
            if (!path) return false;
            paths.push_back(*std::move(path));
        }
        ref.write(config) = std::move(paths);
        return true;
    }
    bool operator()(const ChoiceRef& choice) const {
        const auto* text = std::get_if<std::string>(&value);
        if (text == nullptr) return false;
        const auto found = std::ranges::find(choice.names, std::string_view{*text});
        if (found == choice.names.end()) return false;
        choice.set(config, static_cast<int>(found - choice.names.begin()));
        return true;
    }
};

template <class Number>
std::optional<Number> parse_number(std::string_view text) {
    Number number{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || end != text.data() + text.size() || text.empty()) return {};
    return number;
}

}  // namespace

std::optional<Rejection> assign(const Key& key, const Value& value, const Folders& folders,
                                Config& config) {
    if (std::visit(Assign{key, value, folders, config}, key.target)) return {};
    return Rejection{shown(value), expectation(key)};
}

Value value_from_text(const Key& key, std::string_view text) {
    if (std::holds_alternative<Ref<bool>>(key.target)) {
        if (text == "true" || text == "false") return text == "true";
    } else if (std::holds_alternative<Ref<int>>(key.target) ||
               std::holds_alternative<Ref<std::int64_t>>(key.target) ||
               std::holds_alternative<Ref<Milliseconds>>(key.target)) {
        if (const auto number = parse_number<std::int64_t>(text)) return *number;
    } else if (std::holds_alternative<Ref<double>>(key.target)) {
        if (const auto number = parse_number<double>(text)) return *number;
    } else if (std::holds_alternative<Ref<std::vector<std::string>>>(key.target) ||
               std::holds_alternative<Ref<std::vector<fs::path>>>(key.target)) {
        std::vector<std::string> list;
        while (!text.empty()) {
            const auto comma = text.find(',');
            list.emplace_back(text.substr(0, comma));
            text = comma == std::string_view::npos ? "" : text.substr(comma + 1);
        }
        return list;
    }
    return std::string{text};
}

std::string shown(const Value& value) {
    if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
    if (const auto* whole = std::get_if<std::int64_t>(&value)) return std::to_string(*whole);
    if (const auto* text = std::get_if<std::string>(&value)) return toml_quoted(*text);
    if (const auto* real = std::get_if<double>(&value)) {
        char buffer[64];
        const auto end = std::to_chars(buffer, buffer + sizeof buffer, *real);
        std::string text{buffer, end.ptr};
        // TOML tells a float from an integer by the point or the exponent.
        if (text.find_first_of(".en") == std::string::npos) text += ".0";
        return text;
    }
    std::string text = "[";
    for (const std::string& item : std::get<std::vector<std::string>>(value)) {
        if (text.size() > 1) text += ", ";
        if (text.size() > 200) return text + "...]";
        text += toml_quoted(item);
    }
    return text + ']';
}

bool is_loopback(const Address& address) {
    return address.host == "localhost" || address.host == "::1" ||
           (address.host.starts_with("127.") &&
            std::ranges::count(address.host, '.') == 3 &&
            address.host.find_first_not_of("0123456789.") == std::string::npos);
}

bool is_plain_text(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    for (std::size_t i = 0; i < text.size();) {
        if (byte(i) < 0x80) {
            if (byte(i) < 0x20 || byte(i) == 0x7f) return false;
            ++i;
            continue;
        }
        const std::size_t length = byte(i) >= 0xf0 ? 4 : byte(i) >= 0xe0 ? 3 : 2;
        if (byte(i) < 0xc2 || byte(i) > 0xf4 || i + length > text.size()) return false;
        std::uint32_t code = byte(i) & (0xffU >> (length + 1));
        for (std::size_t k = 1; k < length; ++k) {
            if ((byte(i + k) & 0xc0) != 0x80) return false;
            code = code << 6 | (byte(i + k) & 0x3fU);
        }
        constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
        if (code < kLeast[length] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) {
            return false;
        }
        i += length;
    }
    return true;
}

bool is_plugin_id(std::string_view text) {
    const auto is_rest = [](char c) { return is_alnum(c) || c == '-' || c == '_' || c == '.'; };
    return !text.empty() && text.size() <= 64 && is_alnum(text.front()) &&
           std::ranges::all_of(text, is_rest);
}

}  // namespace config
