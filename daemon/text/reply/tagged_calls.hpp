#pragma once

#include "daemon/text/reply/calls.hpp"

namespace reply {

/// Writes the arguments of a call whose format tags each of them, as one JSON object.
class TaggedArguments {
public:
    /// @param trim_line_feeds  one line feed at each end of a value belongs to its tags
    TaggedArguments(std::string_view close_mark, bool trim_line_feeds)
        : close_mark_{close_mark}, trim_{trim_line_feeds} {}

    /// Begins an argument. A value that is a string is streamed; another is read to its end.
    void begin(Calls& out, std::string_view key, ParameterType type);
    /// The text between the tags; may be called before read() for what was read already.
    [[nodiscard]] Progress add(Calls& out, std::string_view text);
    /// The rest of the value, and its closing mark.
    [[nodiscard]] Progress read(Cursor& in, Calls& out);
    void close(Calls& out) { out.arguments(is_first_ ? "{}" : "}"); }

private:
    std::string_view close_mark_;
    bool trim_;
    bool is_first_ = true;
    std::string key_;
    ParameterType type_ = ParameterType::undeclared;
    bool at_start_ = false;        // of the value
    bool held_line_feed_ = false;  // of a string, at the end so far
    std::string value_;            // of another type
};

/// GLM: NAME, then <arg_key>K</arg_key><arg_value>V</arg_value> each, then </tool_call>; line feeds
/// between them or not. A lost <arg_value> is made up for.
class GlmReader final : public CallReader {
public:
    [[nodiscard]] Progress read(Cursor& in, Calls& out) override;

private:
    enum class Phase { name, first, key, value_open, value, next };
    Phase phase_ = Phase::name;
    std::string name_, key_, space_;
    TaggedArguments arguments_{"</arg_value>", false};
};

/// Qwen3-Coder: <function=NAME>, then <parameter=K> V </parameter> each, then </function>.
class FunctionReader final : public CallReader {
public:
    /// @param opened  "<function=" has been read
    explicit FunctionReader(bool opened)
        : phase_{opened ? Phase::name : Phase::open}, is_bare_{opened} {}
    [[nodiscard]] Progress read(Cursor& in, Calls& out) override;

private:
    enum class Phase { open, name, next, key, value };
    Phase phase_;
    bool is_bare_;  // without <tool_call>: only a declared tool makes it a call
    std::string name_, key_;
    TaggedArguments arguments_{"</parameter>", true};
};

/// DeepSeek V3.2: several <｜DSML｜invoke name="NAME"> with <｜DSML｜parameter name="K" string="…">
/// each.
class DsmlReader final : public CallReader {
public:
    [[nodiscard]] Progress read(Cursor& in, Calls& out) override;

private:
    enum class Phase { next_call, name, next, key, type, value };
    Phase phase_ = Phase::next_call;
    std::string name_, key_;
    TaggedArguments arguments_{kCloseValue, false};
    static constexpr std::string_view kCloseValue = "</｜DSML｜parameter>";
};

}  // namespace reply
