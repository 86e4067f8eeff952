#include "daemon/server/protocol/json_text.hpp"

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>

#include <charconv>
#include <cmath>
#include <cstddef>

namespace server {
namespace json = boost::json;
namespace {

constexpr std::size_t kMaxDepth = 128;

/// Counts the keys of the outermost object.
struct KeyCounter {
    static constexpr std::size_t max_object_size = static_cast<std::size_t>(-1);
    static constexpr std::size_t max_array_size = static_cast<std::size_t>(-1);
    static constexpr std::size_t max_key_size = static_cast<std::size_t>(-1);
    static constexpr std::size_t max_string_size = static_cast<std::size_t>(-1);
    using Ec = json::error_code;

    int depth = 0;
    std::size_t keys = 0;

    bool on_document_begin(Ec&) { return true; }
    bool on_document_end(Ec&) { return true; }
    bool on_object_begin(Ec&) { return ++depth, true; }
    bool on_object_end(std::size_t, Ec&) { return --depth, true; }
    bool on_array_begin(Ec&) { return ++depth, true; }
    bool on_array_end(std::size_t, Ec&) { return --depth, true; }
    bool on_key_part(json::string_view, std::size_t, Ec&) { return true; }
    bool on_key(json::string_view, std::size_t, Ec&) {
        if (depth == 1) ++keys;
        return true;
    }
    bool on_string_part(json::string_view, std::size_t, Ec&) { return true; }
    bool on_string(json::string_view, std::size_t, Ec&) { return true; }
    bool on_number_part(json::string_view, Ec&) { return true; }
    bool on_int64(std::int64_t, json::string_view, Ec&) { return true; }
    bool on_uint64(std::uint64_t, json::string_view, Ec&) { return true; }
    bool on_double(double, json::string_view, Ec&) { return true; }
    bool on_bool(bool, Ec&) { return true; }
    bool on_null(Ec&) { return true; }
    bool on_comment_part(json::string_view, Ec&) { return true; }
    bool on_comment(json::string_view, Ec&) { return true; }
};

json::parse_options options() {
    json::parse_options out;
    out.max_depth = kMaxDepth;
    return out;
}

}  // namespace

Parsed<json::object> parse_object(std::string_view text, bool refuse_duplicates) {
    json::error_code ec;
    json::value value = json::parse(text, ec, {}, options());
    if (ec) return invalid_json("The message is not valid JSON: " + ec.message() + ".");
    if (!value.is_object()) return invalid_json("The message is not a JSON object.");
    if (refuse_duplicates) {
        json::basic_parser<KeyCounter> counter{options()};
        counter.write_some(false, text.data(), text.size(), ec);
        if (counter.handler().keys != value.get_object().size())
            return invalid_json("A key stands twice in the message.");
    }
    return std::move(value.get_object());
}

void append_escaped(std::string& out, std::string_view text) {
    constexpr char kHex[] = "0123456789abcdef";
    std::size_t begin = 0;  // of the stretch that needs no escape
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto c = static_cast<unsigned char>(text[i]);
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        out.append(text, begin, i - begin);
        begin = i + 1;
        switch (c) {
            case '"':
                out += "\\\"";
                break;
            case '\\':
                out += "\\\\";
                break;
            case '\n':
                out += "\\n";
                break;
            case '\r':
                out += "\\r";
                break;
            case '\t':
                out += "\\t";
                break;
            default:
                out += "\\u00";
                out += kHex[c >> 4U];
                out += kHex[c & 15U];
        }
    }
    out.append(text, begin, text.size() - begin);
}

void append_string(std::string& out, std::string_view text) {
    out += '"';
    append_escaped(out, text);
    out += '"';
}

void append_string_or_null(std::string& out, std::string_view text) {
    if (text.empty())
        out += "null";
    else
        append_string(out, text);
}

void append_number(std::string& out, float value) {
    if (std::isnan(value)) {
        out += "null";
        return;
    }
    if (std::isinf(value)) value = value < 0 ? -9999.0F : 9999.0F;
    char digits[32];
    const auto [end, ec] = std::to_chars(digits, digits + sizeof digits, value);
    out.append(digits, end);
}

}  // namespace server
