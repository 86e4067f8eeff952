#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace reply {
struct Format;
}

namespace grammar {

/// How a reply begins, and how its family writes.
struct ReplyForm {
    const reply::Format* format = nullptr;  ///< null: plain text, without reasoning or calls
    bool in_reasoning = false;              ///< the prompt leaves the reasoning open
};

/// Why rules cannot be enforced, for the client.
struct Refusal {
    enum class Part : std::uint8_t {
        schema,  ///< of the answer's form
        tool,    ///< the parameters of a tool
        model,   ///< the model, not the request
    };
    Part part = Part::schema;
    std::size_t tool = 0;  ///< with `tool`: index in OutputRules::tools
    std::string message;   ///< a sentence; names the place in the schema and the keyword
};

}  // namespace grammar
