#include "daemon/text/grammar/call_syntax.hpp"

namespace grammar {

namespace {

constexpr CallSyntax::Tagged kGlm{.before_key = "<arg_key>",
                                  .before_value = "</arg_key>\n<arg_value>",
                                  .close = "</arg_value>",
                                  .after_close = "\n"};
constexpr CallSyntax::Tagged kFunction{.before_key = "<parameter=",
                                       .before_value = ">\n",
                                       .before_close = "\n",
                                       .close = "</parameter>",
                                       .after_close = "\n"};
constexpr CallSyntax::Tagged kDsml{.before_key = "<｜DSML｜parameter name=\"",
                                   .before_value = "\" string=\"false\">",
                                   .close = "</｜DSML｜parameter>",
                                   .after_close = "\n",
                                   .before_string = "\" string=\"true\">"};

constexpr CallSyntax kSyntaxes[] = {
    {.format = "hermes",
     .before_name = "<tool_call>\n{\"name\": \"",
     .before_arguments = "\", \"arguments\": ",
     .after_call = "}\n</tool_call>",
     .between = "\n"},
    {.format = "llama",
     .before_name = "{\"name\": \"",
     .before_arguments = "\", \"parameters\": ",
     .after_call = "}",
     .is_single = true},
    {.format = "mistral",
     .open = "[TOOL_CALLS][",
     .before_name = "{\"name\": \"",
     .before_arguments = "\", \"arguments\": ",
     .after_call = "}",
     .between = ", ",
     .close = "]"},
    {.format = "mistral", .before_name = "[TOOL_CALLS]", .before_arguments = "[ARGS]"},
    {.format = "deepseek",
     .open = "<｜tool▁calls▁begin｜>",
     .before_name = "<｜tool▁call▁begin｜>",
     .before_arguments = "<｜tool▁sep｜>",
     .after_call = "<｜tool▁call▁end｜>",
     .close = "<｜tool▁calls▁end｜>"},
    {.format = "deepseek",
     .open = "<｜tool▁calls▁begin｜>",
     .before_name = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
     .before_arguments = "\n```json\n",
     .after_call = "\n```<｜tool▁call▁end｜>",
     .between = "\n",
     .close = "<｜tool▁calls▁end｜>"},
    {.format = "glm",
     .before_name = "<tool_call>",
     .before_arguments = "\n",
     .after_call = "</tool_call>",
     .between = "\n",
     .tagged = &kGlm},
    {.format = "qwen3-coder",
     .before_name = "<tool_call>\n<function=",
     .before_arguments = ">\n",
     .after_call = "</function>\n</tool_call>",
     .between = "\n",
     .tagged = &kFunction},
    {.format = "dsml",
     .open = "<｜DSML｜function_calls>\n",
     .before_name = "<｜DSML｜invoke name=\"",
     .before_arguments = "\">\n",
     .after_call = "</｜DSML｜invoke>\n",
     .close = "</｜DSML｜function_calls>",
     .tagged = &kDsml},
    // Names stand in the header of a message, whose end is an end-of-generation token.
    {.format = "harmony",
     .before_name = " to=functions.",
     .before_arguments = " <|constrain|>json<|message|>",
     .is_single = true},
    {.format = "harmony",
     .before_name = " to=functions.",
     .before_arguments = "<|channel|>commentary json<|message|>",
     .is_single = true},
    {.format = "harmony",
     .before_name = " to=functions.",
     .before_arguments = "<|message|>",
     .is_single = true},
};

}  // namespace

std::vector<const CallSyntax*> call_syntaxes(std::string_view format) {
    std::vector<const CallSyntax*> out;
    for (const CallSyntax& syntax : kSyntaxes)
        if (syntax.format == format) out.push_back(&syntax);
    return out;
}

}  // namespace grammar
