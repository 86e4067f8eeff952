#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace grammar {

/// A schema without $ref, allOf, oneOf, const and annotations, and where it stood.
struct FlatSchema {
    boost::json::object keywords;
    std::string pointer;  ///< of the schema it was made from, for messages

    /// The value of a keyword that counts.
    [[nodiscard]] std::optional<std::int64_t> count(std::string_view keyword) const;
};

/// Resolves references and joins what must hold together. One document; one thread.
class SchemaFlattener {
public:
    /// @param root  lives longer
    explicit SchemaFlattener(const boost::json::value& root) : root_{root} {}

    /// @param pointer  of `schema`, as far as it is part of the document
    /// @return nothing when no value at all is valid
    /// Throws SchemaError on a keyword that is not supported or not understood, and on references
    /// that lead nowhere or in circles; LimitError.
    [[nodiscard]] std::optional<FlatSchema> flatten(const boost::json::value& schema,
                                                    std::string_view pointer);

private:
    [[nodiscard]] bool flatten_into(const boost::json::value& schema, const std::string& pointer,
                                    boost::json::object& out, int depth);
    [[nodiscard]] const boost::json::value& resolve(std::string_view reference,
                                                    const std::string& pointer) const;

    const boost::json::value& root_;
    std::size_t num_copied_ = 0;  // values, so that references cannot multiply without end
};

/// A pointer to a member of what a pointer leads to.
[[nodiscard]] std::string member_pointer(std::string_view pointer, std::string_view name);

}  // namespace grammar
