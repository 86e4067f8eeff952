#include "daemon/base/metadata.hpp"

#include "daemon/base/error.hpp"

namespace base {
namespace {

[[noreturn]] void wrong_type(std::string_view key, std::string_view want, const MetaValue& got) {
    throw ModelError{"metadata key \"" + std::string{key} + "\": expected " + std::string{want} +
                     ", found " + std::string{type_name(got)}};
}

[[noreturn]] void missing(std::string_view key, std::string_view want) {
    throw ModelError{"metadata key \"" + std::string{key} + "\" is missing (expected " +
                     std::string{want} + ")"};
}

}  // namespace

std::string_view type_name(const MetaValue& value) {
    constexpr std::string_view kNames[] = {
        "integer",           "float",           "bool",           "string",
        "array of integers", "array of floats", "array of bools", "array of strings"};
    return kNames[value.index()];
}

const MetaValue* Metadata::find(std::string_view key) const {
    const auto it = values_.find(key);
    return it == values_.end() ? nullptr : &it->second;
}

std::optional<std::int64_t> Metadata::find_int(std::string_view key) const {
    const auto* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (const auto* v = std::get_if<std::int64_t>(value)) return *v;
    wrong_type(key, "integer", *value);
}

std::optional<double> Metadata::find_float(std::string_view key) const {
    const auto* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (const auto* v = std::get_if<double>(value)) return *v;
    if (const auto* v = std::get_if<std::int64_t>(value)) return static_cast<double>(*v);
    wrong_type(key, "float", *value);
}

std::optional<bool> Metadata::find_bool(std::string_view key) const {
    const auto* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (const auto* v = std::get_if<bool>(value)) return *v;
    wrong_type(key, "bool", *value);
}

const std::string* Metadata::find_string(std::string_view key) const {
    const auto* value = find(key);
    if (value == nullptr) return nullptr;
    if (const auto* v = std::get_if<std::string>(value)) return v;
    wrong_type(key, "string", *value);
}

const std::vector<std::string>* Metadata::find_strings(std::string_view key) const {
    const auto* value = find(key);
    if (value == nullptr) return nullptr;
    if (const auto* v = std::get_if<std::vector<std::string>>(value)) return v;
    wrong_type(key, "array of strings", *value);
}

std::optional<std::vector<std::int64_t>> Metadata::find_ints(std::string_view key) const {
    const auto* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (const auto* v = std::get_if<std::vector<std::int64_t>>(value)) return *v;
    if (const auto* v = std::get_if<std::vector<bool>>(value))
        return std::vector<std::int64_t>(v->begin(), v->end());
    wrong_type(key, "array of integers", *value);
}

std::optional<std::vector<double>> Metadata::find_floats(std::string_view key) const {
    const auto* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (const auto* v = std::get_if<std::vector<double>>(value)) return *v;
    if (const auto* v = std::get_if<std::vector<std::int64_t>>(value))
        return std::vector<double>(v->begin(), v->end());
    wrong_type(key, "array of floats", *value);
}

std::int64_t Metadata::get_int(std::string_view key) const {
    if (auto v = find_int(key)) return *v;
    missing(key, "integer");
}

double Metadata::get_float(std::string_view key) const {
    if (auto v = find_float(key)) return *v;
    missing(key, "float");
}

const std::string& Metadata::get_string(std::string_view key) const {
    if (const auto* v = find_string(key)) return *v;
    missing(key, "string");
}

}  // namespace base
