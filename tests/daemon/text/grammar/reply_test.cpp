// Calls and reasoning: what the rules let a family of models write is read back as what was asked
// for.

#include "daemon/text/reply/parser.hpp"
#include "tests/daemon/text/grammar/grammar_support.hpp"
#include "tests/daemon/text/grammar/validator.hpp"

#include <gtest/gtest.h>

namespace grammar_test {
namespace {

namespace json = boost::json;
using Calls = base::OutputRules::Calls;

const char* const kWeather =
    R"({"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer","minimum":1,"maximum":9},"unit":{"type":"string","enum":["C","F"]}},"required":["city","days"],"additionalProperties":false})";
const char* const kSearch =
    R"({"type":"object","properties":{"terms":{"type":"array","items":{"type":"string"},"maxItems":2}},"required":["terms"],"additionalProperties":false})";

base::OutputRules tool_rules(Calls calls, bool strict = true) {
    base::OutputRules rules;
    rules.calls = calls;
    rules.tools = {{"get_weather", kWeather, strict}, {"search", kSearch, strict}};
    return rules;
}

json::array declared() {
    json::array out;
    for (const auto& tool : tool_rules(Calls::allowed).tools)
        out.push_back(
            {{"type", "function"},
             {"function", {{"name", tool.name}, {"parameters", json::parse(tool.parameters)}}}});
    return out;
}

const reply::Format& format(std::string_view name) {
    for (const reply::Format& one : reply::formats())
        if (one.name == name) return one;
    throw std::runtime_error{"no format " + std::string{name}};
}

/// A vocabulary whose marks are tokens of their own.
std::shared_ptr<const grammar::TokenTable> vocabulary(const reply::Format& of) {
    std::vector<std::string> controls{std::string{of.think_open}, std::string{of.think_close}};
    for (const reply::Mark& mark : of.calls)
        if (mark.text != "<function=") controls.emplace_back(mark.text);
    controls.emplace_back("<|message|>");
    return byte_vocabulary(
        {"{\"", "\": ", "\", \"", "get", "_weather", "name", "}}", "\"}", ">\n", "</"}, controls);
}

struct Read {
    std::string content, reasoning;
    std::vector<std::pair<std::string, std::string>> calls;
    bool has_failed = false;
};

Read read(const reply::Format& of, const std::string& text, bool in_reasoning = false) {
    reply::Parser parser{
        of,
        {.tools = std::make_shared<const reply::Tools>(declared()), .in_reasoning = in_reasoning}};
    std::vector<reply::Event> events;
    parser.feed(text, events);
    parser.finish(events);
    Read out;
    for (const reply::Event& event : events) {
        using Kind = reply::Event::Kind;
        if (event.kind == Kind::content) out.content += event.text;
        if (event.kind == Kind::reasoning) out.reasoning += event.text;
        if (event.kind == Kind::call_begin) out.calls.emplace_back(event.text, "");
        if (event.kind == Kind::arguments) out.calls.back().second += event.text;
        if (event.kind == Kind::call_failed) out.has_failed = true;
    }
    return out;
}

void expect_valid_calls(const Read& reply) {
    EXPECT_FALSE(reply.has_failed);
    for (const auto& [name, arguments] : reply.calls) {
        boost::system::error_code error;
        const auto value = json::parse(arguments, error);
        ASSERT_FALSE(error) << arguments;
        ASSERT_TRUE(name == "get_weather" || name == "search") << name;
        const auto schema = json::parse(name == "search" ? kSearch : kWeather);
        EXPECT_TRUE(Validator{schema}.is_valid(value)) << arguments;
    }
}

class Family : public testing::TestWithParam<const char*> {};

TEST_P(Family, RequiredCallsAreReadBackAsValidCalls) {
    const reply::Format& of = format(GetParam());
    const auto tokens = vocabulary(of);
    const auto rules = compiled(tool_rules(Calls::required), tokens, {&of, false});
    const std::uint64_t seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng{seed};
    int num_whole = 0;
    for (int i = 0; i < 60; ++i) {
        const auto constraint = rules->start();
        std::vector<std::uint32_t> bits(grammar::num_words(tokens->vocab_size()));
        std::string text;
        bool is_whole = false;
        // Free text would go on for ever at random: of it the walk writes little.
        for (int n = 0; n < 600 && !is_whole; ++n) {
            const std::int32_t token = pick(*constraint, bits, rng, *tokens, n > 60);
            ASSERT_GE(token, 0) << text;
            if (of.name == "harmony" && n == 0) {
                for (const char c : std::string_view{" to=functions."})
                    ASSERT_TRUE(constraint->accept(c));
                text = "<|channel|>commentary to=functions.";
                continue;
            }
            std::int32_t chosen = token;
            const auto* open = tokens->find_control(token);
            if (open != nullptr && open->text == of.think_open) continue;
            for (const char close : {'<', '/', '>'})  // out of raw values
                if (n > 60 && of.name != "harmony" && n % 2 == 0 && grammar::has_bit(bits, close))
                    chosen = close;
            ASSERT_TRUE(constraint->accept(chosen));
            is_whole = tokens->is_eog(chosen);
            const auto* control = tokens->find_control(chosen);
            text += control != nullptr ? std::string_view{control->text} : tokens->piece(chosen);
        }
        if (!is_whole) continue;
        ++num_whole;
        SCOPED_TRACE(text);
        const Read reply = read(of, text);
        EXPECT_FALSE(reply.calls.empty());
        EXPECT_EQ(reply.content.find_first_not_of(" \n"), std::string::npos) << reply.content;
        expect_valid_calls(reply);
    }
    const bool has_raw_values = of.name == "glm" || of.name == "qwen3-coder" || of.name == "dsml";
    EXPECT_GT(num_whole, has_raw_values ? 0 : 20);
}

INSTANTIATE_TEST_SUITE_P(All, Family,
                         testing::Values("hermes", "llama", "mistral", "deepseek", "glm",
                                         "qwen3-coder", "dsml", "harmony"),
                         [](const auto& family) {
                             std::string name = family.param;
                             std::replace(name.begin(), name.end(), '-', '_');
                             return name;
                         });

Verdict judge_reply(const base::OutputRules& rules, const grammar::ReplyForm& form,
                    std::string_view text) {
    static const auto tokens = byte_vocabulary({"<think>"});
    return judge(compiled(rules, tokens, form)->grammar(), text);
}

TEST(Reply, StrictToolsBindCallsAndNothingElse) {
    const reply::Format& hermes = format("hermes");
    const auto rules = tool_rules(Calls::allowed);
    const grammar::ReplyForm form{&hermes, false};
    const std::string call =
        "<tool_call>\n{\"name\": \"search\", \"arguments\": {\"terms\": [\"a\"]}}\n</tool_call>";
    EXPECT_EQ(judge_reply(rules, form, "Just { any } text, \"even\" <tool and <tool_cal."),
              Verdict::whole);
    EXPECT_EQ(judge_reply(rules, form, ""), Verdict::whole);
    EXPECT_EQ(judge_reply(rules, form, "I look it up. " + call), Verdict::whole);
    EXPECT_EQ(judge_reply(rules, form, call + "\n" + call + " Done."), Verdict::whole);
    EXPECT_EQ(judge_reply(rules, form, "<think>hm</think>\n\n" + call), Verdict::whole);
    EXPECT_EQ(judge_reply(rules, form, "<tool_call>\n{\"name\": \"delete"), Verdict::dead);
    EXPECT_EQ(judge_reply(rules, form,
                          "<tool_call>\n{\"name\": \"search\", \"arguments\": {\"terms\": [1"),
              Verdict::dead);
    EXPECT_EQ(judge_reply(rules, form, "<tool_call>"), Verdict::open);
    EXPECT_EQ(judge_reply(rules, {&hermes, true}, "a call too early: <tool_call>"), Verdict::dead);
    auto single = rules;
    single.parallel_calls = false;
    EXPECT_EQ(judge_reply(single, form, call), Verdict::whole);
    EXPECT_EQ(judge_reply(single, form, call + "\n"), Verdict::dead);
}

TEST(Reply, ARequiredCallIsTheWholeAnswer) {
    const reply::Format& hermes = format("hermes");
    auto rules = tool_rules(Calls::required);
    rules.parallel_calls = false;
    const grammar::ReplyForm form{&hermes, false};
    const std::string call =
        "<tool_call>\n{\"name\": \"search\", \"arguments\": {\"terms\": []}}\n</tool_call>";
    EXPECT_EQ(judge_reply(rules, form, call), Verdict::whole);
    EXPECT_EQ(judge_reply(rules, form, "Well, "), Verdict::dead);
    EXPECT_EQ(judge_reply(rules, form, ""), Verdict::open);
    EXPECT_EQ(judge_reply(rules, form, "<think>or not?"), Verdict::open);
    EXPECT_NE(refusal_of(rules, {&format("plain"), false}), "");
}

TEST(Reply, ReasoningComesBeforeAFormAndIsFreeOfIt) {
    base::OutputRules rules;
    rules.form = base::OutputRules::Form::json_object;
    const grammar::ReplyForm open{&format("hermes"), true}, closed{&format("hermes"), false};
    EXPECT_EQ(judge_reply(rules, open, "Let me see: {[</think>\n\n{\"a\": 1}"), Verdict::whole);
    EXPECT_EQ(judge_reply(rules, open, "{\"a\": 1}"), Verdict::open);
    EXPECT_EQ(judge_reply(rules, closed, "{\"a\": 1}"), Verdict::whole);
    EXPECT_EQ(judge_reply(rules, closed, "<think>x</think>{}"), Verdict::whole);
    EXPECT_EQ(judge_reply(rules, closed, "[]"), Verdict::dead);
    EXPECT_EQ(judge_reply(rules, {&format("harmony"), false},
                          "<|channel|>analysis<|message|>so<|end|><|start|>assistant<|channel|>"
                          "final<|message|>{}"),
              Verdict::whole);
    EXPECT_EQ(judge_reply(rules, {&format("harmony"), false}, "<|channel|>final<|message|>no"),
              Verdict::dead);
}

TEST(Reply, ToolsThatAreNotStrictTakeAnyArgumentsWhereTheirSchemaCannotBeEnforced) {
    auto rules = tool_rules(Calls::required, false);
    rules.tools = {{"f", R"({"type":"object","not":{}})", false}};
    const grammar::ReplyForm form{&format("llama"), false};
    EXPECT_EQ(judge_reply(rules, form, R"({"name": "f", "parameters": {"x": [1]}})"),
              Verdict::whole);
    rules.tools[0].strict = true;
    EXPECT_NE(refusal_of(rules, form).find("the tool 'f'"), std::string::npos);
    EXPECT_NE(refusal_of(rules, form).find("keyword 'not'"), std::string::npos);
}

}  // namespace
}  // namespace grammar_test
