#include "daemon/text/reply/format.hpp"

#include "daemon/text/reply/json_calls.hpp"
#include "daemon/text/reply/marked_calls.hpp"
#include "daemon/text/reply/tagged_calls.hpp"

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

// The first whose mark a template contains; the more telling marks come first.
constexpr Format kFormats[] = {
    {.name = "dsml",
     .template_mark = "DSML",
     .calls = kDsml,
     .close_mark = "</｜DSML｜function_calls>"},
    {.name = "deepseek",
     .template_mark = "<｜tool▁call",
     .calls = kDeepseek,
     .close_mark = "<｜tool▁calls▁end｜>"},
    {.name = "glm", .template_mark = "<arg_key>", .calls = kGlm, .close_mark = "</tool_call>"},
    {.name = "qwen3-coder",
     .template_mark = "<function=",
     .calls = kFunction,
     .close_mark = "</tool_call>"},
    {.name = "mistral",
     .template_mark = "[TOOL_CALLS]",
     .think_open = "[THINK]",
     .think_close = "[/THINK]",
     .calls = kMistral},
    {.name = "harmony",
     .template_mark = "<|channel|>",
     .calls = kHarmony,
     .close_mark = "<|call|>",
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

bool opens_reasoning(const Format& format, std::string_view prompt) {
    const std::size_t end = prompt.find_last_not_of(" \t\r\n");
    return end != prompt.npos && prompt.substr(0, end + 1).ends_with(format.think_open);
}

}  // namespace reply
