#include "daemon/server/protocol/fields.hpp"

#include <cmath>

namespace server {
namespace json = boost::json;
namespace {

std::string number_text(double value) {
    std::string text = std::to_string(value);
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
    return text;
}

std::string number_text(std::int64_t value) {
    return std::to_string(value);
}

template <class Number>
ApiError out_of_range(std::string_view kind, bool is_above, std::string_view param, Number bound) {
    return invalid_request(std::string{kind} + (is_above ? "_above_max_value" : "_below_min_value"),
                           param,
                           "Invalid '" + std::string{param} + "': expected a value " +
                               (is_above ? "<= " : ">= ") + number_text(bound) + ".");
}

}  // namespace

bool FieldReader::integer(const json::value& value, std::string_view param, std::int64_t min,
                          std::int64_t max, std::int64_t& out) {
    constexpr double kTwo63 = 9223372036854775808.0;
    std::int64_t number = 0;
    if (value.is_int64()) {
        number = value.get_int64();
    } else if (value.is_uint64()) {
        return fail(out_of_range("integer", true, param, max));
    } else if (value.is_double()) {
        const double d = value.get_double();
        if (d != std::floor(d)) return fail(wrong_type(param, "an integer"));
        if (d >= kTwo63 || d < -kTwo63)
            return fail(out_of_range("integer", d > 0, param, d > 0 ? max : min));
        number = static_cast<std::int64_t>(d);
    } else {
        return fail(wrong_type(param, "an integer"));
    }
    if (number < min) return fail(out_of_range("integer", false, param, min));
    if (number > max) return fail(out_of_range("integer", true, param, max));
    out = number;
    return true;
}

bool FieldReader::integer(const json::value& value, std::string_view param, std::int32_t min,
                          std::int32_t max, std::int32_t& out) {
    std::int64_t wide = 0;
    if (!integer(value, param, std::int64_t{min}, std::int64_t{max}, wide)) return false;
    out = static_cast<std::int32_t>(wide);
    return true;
}

bool FieldReader::decimal(const json::value& value, std::string_view param, double min, double max,
                          float& out) {
    if (!value.is_number()) return fail(wrong_type(param, "a number"));
    const double number = value.to_number<double>();
    if (number < min) return fail(out_of_range("decimal", false, param, min));
    if (number > max) return fail(out_of_range("decimal", true, param, max));
    out = static_cast<float>(number);
    return true;
}

bool FieldReader::boolean(const json::value& value, std::string_view param, bool& out) {
    if (!value.is_bool()) return fail(wrong_type(param, "a boolean"));
    out = value.get_bool();
    return true;
}

bool FieldReader::string(const json::value& value, std::string_view param, std::string& out,
                         std::size_t max_bytes) {
    if (!value.is_string()) return fail(wrong_type(param, "a string"));
    const json::string& text = value.get_string();
    if (text.size() > max_bytes) {
        return fail(invalid_request("string_above_max_length", param,
                                    "Invalid '" + std::string{param} + "': longer than " +
                                        std::to_string(max_bytes) + " bytes."));
    }
    out.assign(text.data(), text.size());
    return true;
}

bool FieldReader::word(const json::value& value, std::string_view param,
                       std::span<const std::string_view> words, std::string& out) {
    std::string text;
    if (!string(value, param, text)) return false;
    std::string known;
    for (const std::string_view word : words) {
        if (word == text) {
            out = std::move(text);
            return true;
        }
        known += (known.empty() ? "'" : ", '") + std::string{word} + "'";
    }
    return fail(invalid_value(param, "Invalid value for '" + std::string{param} +
                                         "': supported values are " + known + "."));
}

const json::object* FieldReader::object(const json::value& value, std::string_view param) {
    if (!value.is_object()) {
        fail(wrong_type(param, "an object"));
        return nullptr;
    }
    return &value.get_object();
}

const json::array* FieldReader::array(const json::value& value, std::string_view param) {
    if (!value.is_array()) {
        fail(wrong_type(param, "an array"));
        return nullptr;
    }
    return &value.get_array();
}

std::string indexed(std::string_view name, std::size_t index) {
    return std::string{name} + "[" + std::to_string(index) + "]";
}

}  // namespace server
