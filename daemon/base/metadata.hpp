#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace base {

/// One metadata value of a model file. Integers of every width and sign are held as int64 (u64
/// beyond its range is refused by the loader); floats as double; arrays keep one item type.
using MetaValue =
    std::variant<std::int64_t, double, bool, std::string, std::vector<std::int64_t>,
                 std::vector<double>, std::vector<bool>, std::vector<std::string>>;

/// The key-value metadata of a model, as the loader read it (keys as the file spells them).
///
/// The typed getters throw ModelError naming key, expected and found type when the key is present
/// with another type; a missing key is nullopt from find_* and a ModelError from the get_* forms.
/// Integers are accepted where a float is asked for, never the other way round.
class Metadata {
public:
    void set(std::string key, MetaValue value) { values_[std::move(key)] = std::move(value); }

    [[nodiscard]] const MetaValue* find(std::string_view key) const;
    [[nodiscard]] bool contains(std::string_view key) const { return find(key) != nullptr; }

    [[nodiscard]] std::optional<std::int64_t> find_int(std::string_view key) const;
    [[nodiscard]] std::optional<double> find_float(std::string_view key) const;
    [[nodiscard]] std::optional<bool> find_bool(std::string_view key) const;
    [[nodiscard]] const std::string* find_string(std::string_view key) const;
    [[nodiscard]] const std::vector<std::string>* find_strings(std::string_view key) const;
    /// Arrays of integers; a bool array is read as 0 and 1.
    [[nodiscard]] std::optional<std::vector<std::int64_t>> find_ints(std::string_view key) const;
    [[nodiscard]] std::optional<std::vector<double>> find_floats(std::string_view key) const;

    [[nodiscard]] std::int64_t get_int(std::string_view key) const;
    [[nodiscard]] double get_float(std::string_view key) const;
    [[nodiscard]] const std::string& get_string(std::string_view key) const;

    [[nodiscard]] const std::map<std::string, MetaValue, std::less<>>& all() const { return values_; }

private:
    std::map<std::string, MetaValue, std::less<>> values_;
};

/// "string", "integer", "array of strings" …: the words used in error messages.
[[nodiscard]] std::string_view type_name(const MetaValue& value);

}  // namespace base
