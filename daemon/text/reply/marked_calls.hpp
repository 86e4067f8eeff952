#pragma once

#include "daemon/text/reply/json_calls.hpp"

namespace reply {

/// DeepSeek R1 to V3.1: after <｜tool▁call▁begin｜>, either function<｜tool▁sep｜>NAME and a fenced
/// JSON object, or NAME<｜tool▁sep｜> and the object.
class DeepseekReader final : public CallReader {
public:
    /// @param opened  <｜tool▁call▁begin｜> has been read
    explicit DeepseekReader(bool opened) : phase_{opened ? Phase::head : Phase::next} {}
    [[nodiscard]] Progress read(Cursor& in, Calls& out) override;

private:
    enum class Phase { next, head, fenced_name, fence, arguments, fence_end, call_end };
    Phase phase_;
    std::string name_;
    ObjectReader arguments_;
    bool has_calls_ = false;
};

/// Mistral: after [TOOL_CALLS], an array of JSON calls; or NAME, [CALL_ID]ID or not, [ARGS] or not,
/// and the arguments as an object.
class MistralReader final : public CallReader {
public:
    [[nodiscard]] Progress read(Cursor& in, Calls& out) override;

private:
    enum class Phase { open, name, mark, id, arguments, list };
    Phase phase_ = Phase::open;
    std::string name_, id_;
    ObjectReader arguments_;
    JsonCallsReader list_{false};
};

/// Llama 3: after <|python_tag|>, a JSON call, or NAME.call(key="value", …).
class PythonTagReader final : public CallReader {
public:
    [[nodiscard]] Progress read(Cursor& in, Calls& out) override;

private:
    enum class Phase { open, json, name, arguments };
    Phase phase_ = Phase::open;
    std::string name_, text_;
    JsonCallsReader json_{true};
    char quote_ = '\0';  // the string that text_ ends in
    bool escaped_ = false;
    std::size_t depth_ = 0;  // of brackets
};

/// gpt-oss: what <|channel|> or <|start|> says of the message after <|message|>: reasoning (channel
/// analysis), content, or the arguments of a call (to=functions.NAME).
class HarmonyHeaderReader final : public CallReader {
public:
    [[nodiscard]] Progress read(Cursor& in, Calls& out) override;

private:
    std::string header_;
    bool is_call_ = false;
    ObjectReader arguments_;
};

/// The end of such a message.
class HarmonyEndReader final : public CallReader {
public:
    [[nodiscard]] Progress read(Cursor& in, Calls& out) override;
};

}  // namespace reply
