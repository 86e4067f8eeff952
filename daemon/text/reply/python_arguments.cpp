#include "daemon/text/reply/python_arguments.hpp"

#include "daemon/text/reply/tools.hpp"

namespace reply {

namespace {

/// Where the value that the text begins with ends: at a comma outside of strings and brackets.
std::size_t value_end(std::string_view text) {
    char quote = '\0';
    std::size_t depth = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (quote != '\0') {
            if (c == '\\')
                ++i;
            else if (c == quote)
                quote = '\0';
        } else if (c == '"' || c == '\'') {
            quote = c;
        } else if (c == '(' || c == '[' || c == '{') {
            ++depth;
        } else if ((c == ')' || c == ']' || c == '}') && depth > 0) {
            --depth;
        } else if (c == ',' && depth == 0) {
            return i;
        }
    }
    return text.size();
}

/// The text of a string literal, or nothing when the value is no single one.
std::optional<std::string> literal_text(std::string_view value) {
    if (value.size() < 2 || (value.front() != '"' && value.front() != '\'')) return std::nullopt;
    const char quote = value.front();
    std::string out;
    for (std::size_t i = 1; i < value.size(); ++i) {
        const char c = value[i];
        if (c == quote) return i + 1 == value.size() ? std::optional{std::move(out)} : std::nullopt;
        if (c != '\\' || i + 1 == value.size()) {
            out.push_back(c);
            continue;
        }
        switch (const char escaped = value[++i]) {
            case 'n':
                out.push_back('\n');
                break;
            case 't':
                out.push_back('\t');
                break;
            case 'r':
                out.push_back('\r');
                break;
            case '\\':
            case '"':
            case '\'':
                out.push_back(escaped);
                break;
            default:  // Python keeps the backslash of what is no escape
                out.append({'\\', escaped});
        }
    }
    return std::nullopt;
}

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view kSpace = " \t\r\n";
    while (!text.empty() && kSpace.find(text.front()) != kSpace.npos) text.remove_prefix(1);
    while (!text.empty() && kSpace.find(text.back()) != kSpace.npos) text.remove_suffix(1);
    return text;
}

}  // namespace

std::optional<std::string> json_of_python_arguments(std::string_view text) {
    std::string out = "{";
    text = trimmed(text);
    while (!text.empty()) {
        const std::size_t equals = text.find('=');
        if (equals == text.npos) return std::nullopt;
        const std::string_view key = trimmed(text.substr(0, equals));
        if (key.empty() || key.find_first_of("\"'()[]{}, \t\r\n") != key.npos) return std::nullopt;
        text.remove_prefix(equals + 1);
        const std::size_t end = value_end(text);
        const std::string_view value = trimmed(text.substr(0, end));
        if (value.empty()) return std::nullopt;
        text = end < text.size() ? trimmed(text.substr(end + 1)) : std::string_view{};

        out.append(out.size() > 1 ? ", \"" : "\"");
        append_json_string(out, key);
        out.append("\": ");
        if (const auto literal = literal_text(value)) {
            out.push_back('"');
            append_json_string(out, *literal);
            out.push_back('"');
        } else {
            out.append(json_of_text(value, ParameterType::other));
        }
    }
    out.push_back('}');
    return out;
}

}  // namespace reply
