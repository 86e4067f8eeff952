#pragma once

#include "daemon/text/reply/calls.hpp"
#include "daemon/text/reply/json_scanner.hpp"

#include <optional>

namespace reply {

/// Streams one JSON object as the arguments of the open call.
class ObjectReader {
public:
    [[nodiscard]] Progress read(Cursor& in, Calls& out);

private:
    JsonScanner scanner_;
    bool begun_ = false;
};

/// Reads one call that is a JSON object: {"name": …, "arguments": {…}}, the keys in any order,
/// "parameters" for "arguments", and arguments that are JSON text in a string.
class JsonCall {
public:
    /// @param strict  another key than these makes it no call
    explicit JsonCall(bool strict) : strict_{strict} {}

    [[nodiscard]] Progress read(Cursor& in, Calls& out);

private:
    enum class Phase { open, first_key, key, key_text, colon, value_begin, value, after_value };
    enum class Field { name, arguments, id, type, other };

    [[nodiscard]] Progress begin_value(Cursor& in, Calls& out);
    [[nodiscard]] Progress read_value(Cursor& in, Calls& out);
    [[nodiscard]] Progress end_value(Calls& out);
    [[nodiscard]] Progress take_name(Calls& out);
    [[nodiscard]] Progress take_arguments(Calls& out);
    [[nodiscard]] Progress finish(Calls& out);

    bool strict_;
    Phase phase_ = Phase::open;
    Field field_ = Field::other;
    JsonScanner scanner_;
    std::string key_, value_;  // JSON strings and values as they stand
    std::string id_;
    bool begun_ = false;                    // the name is known
    bool streaming_ = false;                // this value's bytes are the call's arguments
    bool has_other_ = false;                // a key that says nothing here
    std::optional<std::string> arguments_;  // read; "" once they were sent
};

/// Reads calls as JsonCall does: one, several after another, or an array of them.
class JsonCallsReader final : public CallReader {
public:
    explicit JsonCallsReader(bool strict) : strict_{strict} {}
    [[nodiscard]] Progress read(Cursor& in, Calls& out) override;

private:
    bool strict_;
    bool in_array_ = false;
    std::optional<JsonCall> call_;
    bool between_ = false;  // a call has been read
};

}  // namespace reply
