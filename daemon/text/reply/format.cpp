#include "daemon/text/reply/format.hpp"

#include "daemon/text/reply/json_calls.hpp"
#include "daemon/text/reply/marked_calls.hpp"
#include "daemon/text/reply/tagged_calls.hpp"

#include <algorithm>

namespace reply {

namespace {

template <class Reader, auto... Arguments>
std::unique_ptr<CallReader> make() {
    return std::make_unique<Reader>(Arguments...);
}

constexpr Mark kGlm[] = {{"<tool_call>", make<GlmReader>}};
constexpr Mark kFunction[] = {{"<tool_call>", make<FunctionReader, false>},
                              {"<function=", make<FunctionReader, true>}};
constexpr Mark kHermes[] = {{"<tool_call>", make<JsonCallsReader, false>}};
constexpr Mark kDeepseek[] = {{"<｜tool▁calls▁begin｜>", make<DeepseekReader, false>},
                              {"<｜tool▁call▁begin｜>", make<DeepseekReader, true>}};
constexpr Mark kDsml[] = {{"<｜DSML｜function_calls>", make<DsmlReader>}};
constexpr Mark kLlama[] = {{"<|python_tag|>", make<PythonTagReader>}};
constexpr Mark kMistral[] = {{"[TOOL_CALLS]", make<MistralReader>}};
constexpr Mark kHarmony[] = {{"<|channel|>", make<HarmonyHeaderReader>},
                             {"<|start|>", make<HarmonyHeaderReader>},
                             {"<|end|>", make<HarmonyEndReader>},
                             {"<|return|>", make<HarmonyEndReader>},
                             {"<|call|>", make<HarmonyEndReader>}};

constexpr std::string_view kGlmInner[] = {"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"};
constexpr std::string_view kFunctionInner[] = {"</function>", "<parameter=", "</parameter>"};
constexpr std::string_view kDeepseekInner[] = {"<｜tool▁sep｜>", "<｜tool▁call▁end｜>"};
constexpr std::string_view kMistralInner[] = {"[ARGS]", "[CALL_ID]"};
constexpr std::string_view kHarmonyInner[] = {"<|message|>", "<|constrain|>"};

// The first whose mark a template contains; the more telling marks come first.
constexpr Format kFormats[] = {
    {.name = "dsml",
     .template_mark = "DSML",
     .calls = kDsml,
     .close_mark = "</｜DSML｜function_calls>"},
    {.name = "deepseek",
     .template_mark = "<｜tool▁call",
     .calls = kDeepseek,
     .close_mark = "<｜tool▁calls▁end｜>",
     .inner_marks = kDeepseekInner},
    {.name = "glm",
     .template_mark = "<arg_key>",
     .calls = kGlm,
     .close_mark = "</tool_call>",
     .inner_marks = kGlmInner},
    {.name = "qwen3-coder",
     .template_mark = "<function=",
     .calls = kFunction,
     .close_mark = "</tool_call>",
     .inner_marks = kFunctionInner},
    {.name = "mistral",
     .template_mark = "[TOOL_CALLS]",
     .think_open = "[THINK]",
     .think_close = "[/THINK]",
     .calls = kMistral,
     .inner_marks = kMistralInner},
    {.name = "harmony",
     .template_mark = "<|channel|>",
     .calls = kHarmony,
     .close_mark = "<|call|>",
     .inner_marks = kHarmonyInner,
     .has_channels = true},
    {.name = "hermes",
     .template_mark = "<tool_call>",
     .calls = kHermes,
     .close_mark = "</tool_call>"},
    {.name = "llama",
     .template_mark = R"({"name": function name, "parameters")",
     .calls = kLlama,
     .bare_object = make<JsonCallsReader, true>},
    {.name = "plain", .template_mark = ""},
};

}  // namespace

std::span<const Format> formats() {
    return kFormats;
}

const Format& detect_format(std::string_view template_source) {
    for (const Format& format : kFormats)
        if (template_source.find(format.template_mark) != template_source.npos) return format;
    return kFormats[std::size(kFormats) - 1];  // not reached: the last mark is in every text
}

bool belongs_to_mark(const Format& format, std::string_view piece) {
    constexpr std::size_t kMinBytes = 3;  // of a token that can be nothing else
    if (piece.size() < kMinBytes) return false;
    const auto is_in = [piece](std::string_view mark) { return mark.find(piece) != mark.npos; };
    return is_in(format.think_open) || is_in(format.think_close) || is_in(format.close_mark) ||
           std::ranges::any_of(format.inner_marks, is_in) ||
           std::ranges::any_of(format.calls, is_in, &Mark::text);
}

bool opens_reasoning(const Format& format, std::string_view prompt) {
    const std::size_t end = prompt.find_last_not_of(" \t\r\n");
    return end != prompt.npos && prompt.substr(0, end + 1).ends_with(format.think_open);
}

}  // namespace reply
