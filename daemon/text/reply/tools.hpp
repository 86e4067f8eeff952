#pragma once

#include <boost/json/fwd.hpp>

#include <map>
#include <string>
#include <string_view>

namespace reply {

/// What a tool's schema says of one parameter.
enum class ParameterType {
    string,      ///< the model's text is the value
    other,       ///< another type, several, or none given: JSON where it parses
    undeclared,  ///< the schema has no such parameter
};

/// The tools that a request declares, as far as reading calls needs to know them. Immutable.
class Tools {
public:
    Tools() = default;

    /// @param tools  array of {"type":"function","function":{name, parameters}} or of
    ///               {"type":"function", name, parameters}; anything else in it is passed over
    explicit Tools(const boost::json::array& tools);

    [[nodiscard]] bool empty() const noexcept { return parameters_.empty(); }
    [[nodiscard]] bool contains(std::string_view name) const {
        return parameters_.find(name) != parameters_.end();
    }
    [[nodiscard]] ParameterType type_of(std::string_view tool, std::string_view parameter) const;

private:
    using Parameters = std::map<std::string, ParameterType, std::less<>>;
    std::map<std::string, Parameters, std::less<>> parameters_;  // by tool
};

/// A value that a model wrote as plain text, as JSON.
///
/// JSON as it stands, or Python's True, False and None, or else the text as a string. An
/// undeclared parameter is JSON only where that is more than a bare word or number.
/// @param type  not string: such a text is its own value
[[nodiscard]] std::string json_of_text(std::string_view text, ParameterType type);

/// Appends a text as the inside of a JSON string: escaped, without the quotes. What is no ASCII is
/// copied, so that a text may be given in pieces.
void append_json_string(std::string& out, std::string_view text);

}  // namespace reply
