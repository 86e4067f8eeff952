#include "daemon/text/template_probe.hpp"

#include <string>

namespace text {

namespace {

// Words that no template writes by itself.
constexpr std::string_view kTools =
    R"([{"type":"function","function":{"name":"prb_function","description":"prb-description",)"
    R"("parameters":{"type":"object","properties":{"prb_key":{"type":"string"}}}}}])";

bool contains(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

/// Renders for one template; a conversation that fails is "".
class Prober {
public:
    Prober(TemplateWorker& worker, std::string_view source, std::string_view bos,
           std::string_view eos)
        : worker_{worker}, source_{source}, bos_{bos}, eos_{eos} {}

    std::string render(std::string_view messages, std::string_view tools = "",
                       std::string_view extra = "") {
        return worker_
            .render({.template_source = source_,
                     .messages_json = messages,
                     .tools_json = tools,
                     .extra_json = extra,
                     .bos_token = bos_,
                     .eos_token = eos_})
            .text;
    }

    /// A question, a tool call, its result.
    std::string render_call(bool object_arguments, bool null_content, std::string_view id) {
        std::string messages =
            R"([{"role":"user","content":"prb-question"},{"role":"assistant","content":)";
        messages += null_content ? "null" : R"("")";
        messages += R"(,"tool_calls":[{"id":")";
        messages += id;
        messages += R"(","type":"function","function":{"name":"prb_function","arguments":)";
        messages +=
            object_arguments ? R"({"prb_key":"prb-value"})" : R"("{\"prb_key\":\"prb-value\"}")";
        messages += R"(}}]},{"role":"tool","tool_call_id":")";
        messages += id;
        messages += R"(","name":"prb_function","content":"prb-result"}])";
        return render(messages, kTools);
    }

private:
    TemplateWorker& worker_;
    std::string_view source_, bos_, eos_;
};

/// The call is there, and its arguments were not quoted a second time.
bool shows_call(std::string_view text) {
    return contains(text, "prb_function") && contains(text, "prb-value") &&
           !contains(text, R"(\"prb_key)");
}

void probe_content(Prober& prober, TemplateTraits& traits) {
    traits.content_text =
        contains(prober.render(R"([{"role":"user","content":"prb-text"}])"), "prb-text");
    const std::string parts =
        prober.render(R"([{"role":"user","content":[{"type":"text","text":"prb-text"}]}])");
    // Printed as a list, the part's keys show.
    traits.content_parts =
        contains(parts, "prb-text") && !contains(parts, "'type'") && !contains(parts, "\"type\"");
    if (!traits.content_parts) traits.content_text = true;
}

void probe_tool_calls(Prober& prober, TemplateTraits& traits) {
    struct Form {
        bool object_arguments, null_content;
    };
    constexpr Form kForms[] = {{true, false}, {false, false}, {false, true}, {true, true}};
    constexpr std::string_view kNine = "prb000001", kLong = "call_prb_000001";
    // Without a call: does the name come from the description of the tools alone?
    const std::string without =
        prober.render(R"([{"role":"user","content":"prb-question"}])", kTools);
    traits.shows_tools = contains(without, "prb-description");
    traits.shows_tool_calls = false;
    traits.shows_tool_results = false;
    for (const Form form : kForms) {
        const std::string text =
            prober.render_call(form.object_arguments, form.null_content, kNine);
        if (contains(text, "prb-result")) traits.shows_tool_results = true;
        if (!shows_call(text)) continue;
        traits.object_arguments = form.object_arguments;
        traits.null_content = form.null_content;
        traits.shows_tool_calls = true;
        traits.nine_character_ids =
            !shows_call(prober.render_call(form.object_arguments, form.null_content, kLong));
        return;
    }
}

}  // namespace

TemplateTraits probe_template(TemplateWorker& worker, std::string_view source,
                              std::string_view bos_token, std::string_view eos_token) {
    Prober prober{worker, source, bos_token, eos_token};
    TemplateTraits traits;
    probe_content(prober, traits);
    probe_tool_calls(prober, traits);
    constexpr std::string_view kSystem =
        R"([{"role":"system","content":"prb-system"},{"role":"user","content":"x"}])";
    // Some templates are for requests with tools only.
    traits.system_role = contains(prober.render(kSystem), "prb-system") ||
                         contains(prober.render(kSystem, kTools), "prb-system");
    constexpr std::string_view kUser = R"([{"role":"user","content":"x"}])";
    traits.writes_bos = !bos_token.empty() && prober.render(kUser).starts_with(bos_token);
    traits.has_enable_thinking = prober.render(kUser, "", R"({"enable_thinking":true})") !=
                                 prober.render(kUser, "", R"({"enable_thinking":false})");
    return traits;
}

}  // namespace text
