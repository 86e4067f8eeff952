#pragma once

#include "daemon/server/protocol/error.hpp"

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace server {

/// Reads typed values out of a client's message and keeps the first mistake.
///
/// Every read returns false after a mistake, and leaves `out` alone.
class FieldReader {
public:
    bool fail(ApiError error) {
        if (!error_) error_ = std::move(error);
        return false;
    }
    [[nodiscard]] bool failed() const { return error_.has_value(); }
    [[nodiscard]] ApiError take_error() { return std::move(*error_); }

    /// Integers may be written as 2.0 or 2e0; a fraction is a wrong type.
    bool integer(const boost::json::value& value, std::string_view param, std::int64_t min,
                 std::int64_t max, std::int64_t& out);
    bool integer(const boost::json::value& value, std::string_view param, std::int32_t min,
                 std::int32_t max, std::int32_t& out);
    bool decimal(const boost::json::value& value, std::string_view param, double min, double max,
                 float& out);
    bool boolean(const boost::json::value& value, std::string_view param, bool& out);
    bool string(const boost::json::value& value, std::string_view param, std::string& out,
                std::size_t max_bytes = std::numeric_limits<std::size_t>::max());
    /// One of a closed set of words.
    bool word(const boost::json::value& value, std::string_view param,
              std::span<const std::string_view> words, std::string& out);
    const boost::json::object* object(const boost::json::value& value, std::string_view param);
    const boost::json::array* array(const boost::json::value& value, std::string_view param);

private:
    std::optional<ApiError> error_;
};

/// What is done about one field of a message.
template <class Target>
struct Field {
    std::string_view name;
    bool (*read)(const boost::json::value& value, Target& target, FieldReader& reader);
};

/// Reads the fields of `message` in the order in which the client wrote them, so that the first
/// mistake reported is the first in the document. null counts as not given.
/// @param unknown  called for names that no table has; false stops
template <class Target, class Unknown>
bool read_fields(const boost::json::object& message, std::span<const Field<Target>> fields,
                 Target& target, FieldReader& reader, Unknown unknown) {
    for (const auto& [key, value] : message) {
        if (value.is_null()) continue;
        const Field<Target>* found = nullptr;
        for (const Field<Target>& field : fields)
            if (field.name == std::string_view{key}) found = &field;
        if (found == nullptr) {
            if (!unknown(std::string_view{key}, value)) return false;
        } else if (found->read != nullptr && !found->read(value, target, reader)) {
            return false;
        }
    }
    return true;
}

[[nodiscard]] std::string indexed(std::string_view name, std::size_t index);

}  // namespace server
