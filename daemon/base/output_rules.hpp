#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace base {

/// A function that a model may call, as the request declares it.
struct CallableTool {
    std::string name;        ///< 1 to 64 of A-Z a-z 0-9 _ -
    std::string parameters;  ///< JSON schema of the arguments object; keys in the client's order
    bool strict = false;     ///< the arguments must be valid under the schema, not only should
};

/// What a request demands of the text that is generated for it: `text.format`, `response_format`,
/// `tools` and `tool_choice`, in the one form that all surfaces share. Reasoning is free of it.
struct OutputRules {
    enum class Form : std::uint8_t {
        text,         ///< anything
        json_object,  ///< one JSON object
        json_schema,  ///< one JSON value that is valid under `schema`
    };
    enum class Calls : std::uint8_t {
        none,      ///< nothing is a call
        allowed,   ///< the model decides
        required,  ///< at least one, and no other answer
    };

    Form form = Form::text;
    std::string schema_name;  ///< with json_schema
    std::string schema;       ///< with json_schema: JSON text, keys in the client's order
    bool strict = false;      ///< with json_schema: keywords that cannot be enforced are refused

    Calls calls = Calls::none;
    std::vector<CallableTool> tools;  ///< those that may be called; none with Calls::none
    bool parallel_calls = true;       ///< false: at most one call

    /// Whether any text at all would do.
    [[nodiscard]] bool is_free() const noexcept {
        if (form != Form::text || calls == Calls::required) return false;
        for (const CallableTool& tool : tools)
            if (tool.strict) return false;
        return true;
    }
};

}  // namespace base
