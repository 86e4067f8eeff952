#include "daemon/text/reply/json_scanner.hpp"
#include "tests/daemon/text/reply/support.hpp"

#include <gtest/gtest.h>

namespace {

using namespace reply_test;
using Kind = reply::Event::Kind;

std::vector<reply::Event> feed_all(reply::Parser& parser, std::string_view text) {
    std::vector<reply::Event> events;
    parser.feed(text, events);
    return events;
}

// What is held back

TEST(ReplyParser, TextIsHeldNoLongerThanAMarkMayBegin) {
    for (const reply::Format& format : reply::formats()) {
        reply::Parser parser{format, {.tools = golden_tools()}};
        std::size_t fed = 0, said = 0;
        for (const char c : std::string_view{"Some text, and a < b [c] too <tool x {1}."}) {
            for (const auto& event : feed_all(parser, std::string_view{&c, 1}))
                said += event.text.size();
            ++fed;
            EXPECT_LE(fed - said, 6u) << format.name;  // at most "<tool "
        }
        EXPECT_EQ(said, fed) << format.name;
    }
}

TEST(ReplyParser, WhiteSpaceBesideAMarkIsDroppedAndElsewhereKept) {
    EXPECT_EQ(parse("glm", " a \n b \n ").content, " a \n b \n ");
    EXPECT_EQ(parse("glm", " \n<think> r \n s </think> \n c ").content, "c ");
    EXPECT_EQ(parse("glm", " \n<think> r \n s </think> \n c ").reasoning, "r \n s");
    const std::string spaces(1000, ' ');
    EXPECT_EQ(parse("glm", "a" + spaces + "b").content, "a" + spaces + "b");
    EXPECT_EQ(parse("glm", "<think>" + spaces + "r").reasoning, "r");
}

TEST(ReplyParser, ASecondThinkIsText) {
    const Reply r = parse("glm", "<think>a</think>b <think>c</think>");
    EXPECT_EQ(r.reasoning, "a");
    EXPECT_EQ(r.content, "b <think>c</think>");
}

TEST(ReplyParser, WithoutToolsACallIsText) {
    const std::string text = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
    EXPECT_EQ(parse("hermes", text, {}).content, text);
    EXPECT_TRUE(parse("hermes", text, {}).calls.empty());
}

// Names and arguments in a stream

TEST(ReplyParser, TheNameComesWholeAndTheArgumentsAsTheyAreWritten) {
    reply::Parser parser{format("hermes"), {.tools = golden_tools()}};
    EXPECT_TRUE(feed_all(parser, "<tool_call>\n{\"name\": \"lookup").empty());
    auto events = feed_all(parser, "_tide\"");
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].kind, Kind::call_begin);
    EXPECT_EQ(events[0].text, "lookup_tide");
    events = feed_all(parser, ", \"arguments\": {\"harb");
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].text, "{\"harb");
    events = feed_all(parser, "our\": 1}}");
    ASSERT_EQ(events.size(), 2u);
    EXPECT_EQ(events[0].text, "our\": 1}");
    EXPECT_EQ(events[1].kind, Kind::call_end);
}

TEST(ReplyParser, TaggedStringsAreStreamed) {
    reply::Parser parser{format("glm"), {.tools = golden_tools()}};
    auto events = feed_all(parser, "<tool_call>send_note<arg_key>text</arg_key><arg_value>a \"b");
    ASSERT_EQ(events.size(), 2u);
    EXPECT_EQ(events[1].text, "{\"text\": \"a \\\"b");
    events = feed_all(parser, "c</arg_");
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].text, "c");
    events = feed_all(parser, "value></tool_call>");
    ASSERT_EQ(events.size(), 2u);
    EXPECT_EQ(events[0].text, "\"}");
}

TEST(ReplyParser, ArgumentsMayComeBeforeTheName) {
    const Reply r = parse(
        "hermes", R"(<tool_call>{"arguments": {"text": "x"}, "name": "send_note"}</tool_call>)");
    ASSERT_EQ(r.calls.size(), 1u);
    EXPECT_EQ(r.calls[0].arguments, R"({"text": "x"})");
}

TEST(ReplyParser, IdsAreKept) {
    EXPECT_EQ(parse("mistral", "[TOOL_CALLS]send_note[CALL_ID]a1B2c3D4e[ARGS]{}").calls.at(0).id,
              "a1B2c3D4e");
    EXPECT_EQ(parse("mistral", R"([TOOL_CALLS][{"name":"send_note","arguments":{},"id":"abc"}])")
                  .calls.at(0)
                  .id,
              "abc");
}

// Reports from the field

TEST(ReplyParser, ALostArgValueTagLosesNoArgument) {
    for (const std::string& gap : {std::string{}, std::string{"\n"}}) {
        const Reply r = parse("glm", "<tool_call>lookup_tide" + gap + "<arg_key>harbour</arg_key>" +
                                         gap + "Brest</arg_value>" + gap +
                                         "<arg_key>precise</arg_key><arg_value>true</arg_value>" +
                                         gap + "</tool_call>");
        ASSERT_EQ(r.calls.size(), 1u);
        EXPECT_EQ(r.calls[0].error, "");
        EXPECT_EQ(json::parse(r.calls[0].arguments),
                  json::parse(R"({"harbour": "Brest", "precise": true})"));
    }
}

TEST(ReplyParser, NoArgumentIsSilentlyNone) {
    // Whatever was meant as arguments is either there, or the call has failed, or all is text.
    for (const auto& [format_name, text] : std::vector<std::pair<std::string, std::string>>{
             {"glm", "<tool_call>send_note<arg_key>text</arg_key></tool_call>"},
             {"glm", "<tool_call>send_note<arg_value>x</arg_value></tool_call>"},
             {"glm", "<tool_call>send_note<arg_key>text</arg_key><arg_value>x"},
             {"hermes", R"(<tool_call>{"name": "send_note", "args": {"text": "x"}}</tool_call>)"},
             {"hermes", R"(<tool_call>{"name": "send_note", "arguments": [1]}</tool_call>)"},
             {"hermes", R"(<tool_call>{"name": "send_note", "arguments": "x"}</tool_call>)"},
             {"hermes",
              R"(<tool_call>{"name": "send_note", "arguments": {"text": x}}</tool_call>)"},
             {"hermes", R"(<tool_call>{"name": "send_note", "arguments": {"text")"},
             {"qwen3-coder", "<function=send_note>text=x</function>"},
             {"deepseek", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>send_note<｜tool▁sep｜>text"},
             {"llama", "<|python_tag|>brave_search.call(\"x\")"},
             {"mistral", "[TOOL_CALLS]send_note[ARGS]text"}}) {
        const Reply r = parse(format_name, text);
        if (r.calls.empty())
            EXPECT_EQ(r.content, text);
        else
            EXPECT_NE(r.calls[0].error, "") << text << " gave " << r.calls[0].arguments;
    }
}

TEST(ReplyParser, ARawLineBreakInAJsonStringIsMadeValid) {
    const Reply r = parse(
        "hermes",
        "<tool_call>{\"name\": \"send_note\", \"arguments\": {\"text\": \"a\nb\"}}</tool_call>");
    EXPECT_EQ(r.calls.at(0).error, "");
    EXPECT_EQ(r.calls.at(0).arguments, "{\"text\": \"a\\nb\"}");
}

TEST(ReplyParser, AFailedCallEndsTheCallAndNotTheReply) {
    const Reply r = parse("hermes",
                          "a <tool_call>{\"name\": \"send_note\", \"arguments\": {,}}</tool_call> b"
                          "<tool_call>{\"name\": \"list_harbours\"}</tool_call>");
    ASSERT_EQ(r.calls.size(), 2u);
    EXPECT_NE(r.calls[0].error, "");
    EXPECT_EQ(r.calls[1].error, "");
    EXPECT_EQ(r.calls[1].arguments, "{}");
    EXPECT_EQ(r.content, "ab");
}

TEST(ReplyParser, ACallInsideOfReasoningCountsOnlyWhenTheToolIsDeclared) {
    const std::string call = "<tool_call>list_harbours</tool_call>",
                      other = "<tool_call>ls</tool_call>";
    Reply r = parse("glm", "<think>so " + call + " and</think>ok");
    EXPECT_EQ(r.calls.size(), 1u);
    EXPECT_EQ(r.reasoning, "soand");
    EXPECT_EQ(r.content, "ok");
    r = parse("glm", "<think>so " + other + "</think>ok");
    EXPECT_TRUE(r.calls.empty());
    EXPECT_EQ(r.reasoning, "so " + other);
    r = parse("glm", "<think>so " + call + "</think>ok",
              {.tools = golden_tools(), .calls_in_reasoning = false});
    EXPECT_EQ(r.reasoning, "so " + call);
}

TEST(ReplyParser, UndeclaredToolsAreReportedOrTextAsConfigured) {
    const std::string call = "<tool_call>ls</tool_call>";
    EXPECT_EQ(parse("glm", call).calls.at(0).name, "ls");
    EXPECT_EQ(parse("glm", call, {.tools = golden_tools(), .declared_only = true}).content, call);
}

TEST(ReplyParser, TextAfterCallsIsContent) {
    const std::string call = R"(<tool_call>{"name": "list_harbours", "arguments": {}}</tool_call>)";
    const Reply r = parse("hermes", "a\n" + call + "\n" + call + "\nb </tool_call>");
    EXPECT_EQ(r.calls.size(), 2u);
    EXPECT_EQ(r.content, "ab </tool_call>");  // the last mark closes nothing: it is text
}

TEST(ReplyParser, HarmonyChannels) {
    const Reply r =
        parse("harmony",
              "<|channel|>analysis<|message|>Let me see.<|end|><|start|>assistant"
              "<|channel|>commentary to=functions.lookup_tide <|constrain|>json<|message|>"
              "{\"harbour\": \"Brest\"}<|call|>");
    EXPECT_EQ(r.reasoning, "Let me see.");
    EXPECT_EQ(r.content, "");
    ASSERT_EQ(r.calls.size(), 1u);
    EXPECT_EQ(r.calls[0].name, "lookup_tide");
    EXPECT_EQ(r.calls[0].arguments, "{\"harbour\": \"Brest\"}");
    const Reply plain =
        parse("harmony", "<|channel|>final<|message|>Hello.<|return|>", {.tools = nullptr});
    EXPECT_EQ(plain.content, "Hello.");
}

TEST(ReplyParser, MemoryIsBounded) {
    const std::string mark = R"(<tool_call>{"name": "send_note", "note": ")";
    reply::Parser parser{format("hermes"), {.tools = golden_tools()}};
    auto events = feed_all(parser, mark);
    const std::string block(1 << 16, 'x');
    bool failed = false;
    for (int i = 0; i < 64 && !failed; ++i)
        for (const auto& event : feed_all(parser, block)) failed |= event.kind == Kind::call_failed;
    EXPECT_TRUE(failed);

    reply::Parser spaces{format("glm"), {.tools = golden_tools()}};
    events = feed_all(spaces, "<tool_call>");
    std::size_t said = 0;
    for (int i = 0; i < 64; ++i)
        for (const auto& event : feed_all(spaces, std::string(1 << 16, ' ')))
            said += event.text.size();
    EXPECT_GT(said, std::size_t{2} << 20);
}

TEST(ReplyParser, LongRepliesTakeLinearTime) {
    std::string text;
    for (int i = 0; i < 50'000; ++i) text += "<tool_call><tool_call>{\"arguments\": [<tool";
    reply::Parser parser{format("hermes"), {.tools = golden_tools()}};
    std::vector<reply::Event> events;
    parser.feed(text, events);
    parser.finish(events);
    std::size_t said = 0;
    for (const auto& event : events) said += event.text.size();
    EXPECT_EQ(said, text.size());
}

// Parts

TEST(JsonScanner, AcceptsWhatIsJsonAndNothingElse) {
    const auto scan = [](std::string_view text) {
        reply::JsonScanner scanner;
        std::string copy;
        for (std::size_t i = 0; i < text.size(); ++i) {
            const auto step = scanner.push(text[i], copy);
            if (step == reply::JsonScanner::Step::error) return false;
            if (step == reply::JsonScanner::Step::done) return i + 1 == text.size();
            if (step == reply::JsonScanner::Step::ended) return false;
        }
        return scanner.may_end();
    };
    for (const char* good :
         {"{}", "[]", "{\"a\":[1,-0.5e+3,true,null,{\"b\":\"\\u00e9\\n\"}]}", "\"\"", "0", "-1",
          "12.5", "1e9", "false", " [ 1 , 2 ] ", "[[[[]]]]", "[0]"}) {
        std::string_view text = good;
        if (text.ends_with(' ')) text.remove_suffix(1);  // the value ends before it
        EXPECT_TRUE(scan(text)) << good;
    }
    for (const char* bad : {"{",
                            "}",
                            "[1,]",
                            "{\"a\"}",
                            "{\"a\":}",
                            "{a:1}",
                            "{\"a\":1,}",
                            "01",
                            "1.",
                            "1e",
                            "-",
                            "+1",
                            "tru",
                            "nul",
                            "'a'",
                            "\"\\x\"",
                            "\"\\u12g4\"",
                            "[1 2]",
                            "{\"a\":1 \"b\":2}",
                            "[}",
                            "{]",
                            "",
                            "[1}",
                            "{\"a\":[}"})
        EXPECT_FALSE(scan(bad)) << bad;
    EXPECT_TRUE(scan(std::string(64, '[') + std::string(64, ']')));
    EXPECT_FALSE(scan(std::string(65, '[') + std::string(65, ']')));
}

TEST(Tools, ReadsBothFormsOfADeclaration) {
    const reply::Tools tools{json::parse(R"([
        {"type":"function","function":{"name":"a","parameters":{"properties":
            {"s":{"type":"string"},"n":{"type":"integer"},"m":{"type":["string","null"]},"u":{}}}}},
        {"type":"function","name":"b","parameters":null}, 5, {"type":"web_search"}])")
                                 .as_array()};
    using Type = reply::ParameterType;
    EXPECT_EQ(tools.type_of("a", "s"), Type::string);
    EXPECT_EQ(tools.type_of("a", "n"), Type::other);
    EXPECT_EQ(tools.type_of("a", "m"), Type::other);
    EXPECT_EQ(tools.type_of("a", "u"), Type::other);
    EXPECT_EQ(tools.type_of("a", "x"), Type::undeclared);
    EXPECT_TRUE(tools.contains("b"));
    EXPECT_FALSE(tools.contains("c"));
}

TEST(Tools, TextBecomesTheValueThatTheSchemaWants) {
    using Type = reply::ParameterType;
    EXPECT_EQ(reply::json_of_text(" 3 ", Type::other), "3");
    EXPECT_EQ(reply::json_of_text("True", Type::other), "true");
    EXPECT_EQ(reply::json_of_text("None", Type::other), "null");
    EXPECT_EQ(reply::json_of_text("a\nb", Type::other), R"("a\nb")");
    EXPECT_EQ(reply::json_of_text("29200", Type::undeclared), R"("29200")");
    EXPECT_EQ(reply::json_of_text("true", Type::undeclared), R"("true")");
    EXPECT_EQ(reply::json_of_text("[1]", Type::undeclared), "[1]");
}

TEST(ReplyParser, PythonArgumentsBecomeJson) {
    const auto arguments = [](std::string_view text) {
        const Reply r =
            parse("llama", "<|python_tag|>brave_search.call(" + std::string{text} + ")");
        return r.calls.at(0).error.empty() ? r.calls[0].arguments : "failed";
    };
    EXPECT_EQ(arguments(""), "{}");
    EXPECT_EQ(arguments(R"py(query="a, \"b\")", n=3, on=True)py"),
              R"py({"query": "a, \"b\")", "n": 3, "on": true})py");
    EXPECT_EQ(arguments(R"(q='it\'s', l=[1, (2)], x=None)"),
              R"({"q": "it's", "l": "[1, (2)]", "x": null})");
    EXPECT_EQ(arguments("5"), "failed");
    EXPECT_EQ(arguments("a=,b=1"), "failed");
}

}  // namespace
