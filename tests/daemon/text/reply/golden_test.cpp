#include "tests/daemon/text/reply/support.hpp"

#include <gtest/gtest.h>

#include <random>

namespace {

using namespace reply_test;

reply::ParserOptions options_of(const json::value& c) {
    return {.tools = golden_tools(), .in_reasoning = c.at("prompt_left_think_open").as_bool()};
}

void expect_reply(const Reply& actual, const json::value& expected) {
    EXPECT_EQ(actual.reasoning, std::string_view{expected.at("reasoning").as_string()});
    EXPECT_EQ(actual.content, std::string_view{expected.at("content").as_string()});
    const json::array& calls = expected.at("tool_calls").as_array();
    ASSERT_EQ(actual.calls.size(), calls.size());
    for (std::size_t i = 0; i < calls.size(); ++i) {
        EXPECT_EQ(actual.calls[i].name, std::string_view{calls[i].at("name").as_string()});
        EXPECT_EQ(actual.calls[i].error, "");
        EXPECT_TRUE(actual.calls[i].ended);
        EXPECT_EQ(json::parse(actual.calls[i].arguments), calls[i].at("arguments"))
            << actual.calls[i].arguments;
    }
}

TEST(ReplyGolden, EveryCaseAsAWhole) {
    const json::array& cases = golden().at("cases").as_array();
    for (const json::value& c : cases) {
        SCOPED_TRACE(std::string{c.at("id").as_string()});
        const std::string_view text = c.at("output").as_string();
        expect_reply(parse(golden_format(c.at("format").as_string()), {text}, options_of(c)),
                     c.at("expected"));
    }
    EXPECT_EQ(cases.size(), 33u);
}

/// Every case, and every beginning of every case: an unfinished reply is the same everywhere too.
template <class Check>
void for_each_beginning(Check&& check) {
    for (const json::value& c : golden().at("cases").as_array()) {
        const std::string_view text = c.at("output").as_string();
        const reply::Format& format = golden_format(c.at("format").as_string());
        for (std::size_t n = 0; n <= text.size(); ++n) {
            SCOPED_TRACE(std::string{c.at("id").as_string()} + ", " + std::to_string(n) + " bytes");
            check(format, text.substr(0, n), options_of(c));
            if (testing::Test::HasFatalFailure()) return;
        }
    }
}

TEST(ReplyGolden, NoCutInTwoChangesAnything) {
    for (const json::value& c : golden().at("cases").as_array()) {
        const std::string_view text = c.at("output").as_string();
        const reply::Format& format = golden_format(c.at("format").as_string());
        for (std::size_t end : {text.size(), text.size() - text.size() / 3, text.size() / 2}) {
            const std::string_view reply = text.substr(0, end);
            const Reply whole = parse(format, {reply}, options_of(c));
            for (std::size_t cut = 0; cut <= reply.size(); ++cut)
                ASSERT_EQ(parse(format, {reply.substr(0, cut), reply.substr(cut)}, options_of(c)),
                          whole)
                    << c.at("id") << " cut at byte " << cut;
        }
    }
}

TEST(ReplyGolden, NoCutIntoBytesChangesAnything) {
    for_each_beginning([](const reply::Format& format, std::string_view text,
                          const reply::ParserOptions& options) {
        std::vector<std::string_view> bytes;
        for (std::size_t i = 0; i < text.size(); ++i) bytes.push_back(text.substr(i, 1));
        ASSERT_EQ(parse(format, bytes, options), parse(format, {text}, options));
    });
}

TEST(ReplyGolden, TextStandsInTheReplyWhereItsEventSays) {
    const auto check = [](const reply::Format& format, std::string_view text,
                          const reply::ParserOptions& options, std::size_t step) {
        reply::Parser parser{format, options};
        std::vector<reply::Event> events;
        for (std::size_t i = 0; i < text.size(); i += step)
            parser.feed(text.substr(i, step), events);
        parser.finish(events);
        std::size_t end = 0;
        for (const reply::Event& event : events) {
            if (event.kind != reply::Event::Kind::content &&
                event.kind != reply::Event::Kind::reasoning)
                continue;
            ASSERT_EQ(text.substr(event.at, event.text.size()), event.text);
            ASSERT_GE(event.at, end);
            end = event.at + event.text.size();
        }
    };
    for_each_beginning([&](const reply::Format& format, std::string_view text,
                           const reply::ParserOptions& options) {
        for (const std::size_t step : {std::size_t{1}, std::size_t{7}, text.size() + 1})
            check(format, text, options, step);
    });
    for (const json::value& c : golden().at("cases").as_array())  // mostly text, or broken calls
        for (const reply::Format& format : reply::formats())
            check(format, std::string_view{c.at("output").as_string()}, options_of(c), 3);
}

TEST(ReplyFormat, KnowsTheTokensThatMarksAreMadeOf) {
    EXPECT_TRUE(reply::belongs_to_mark(format("mistral"), "[TOOL_CALLS]"));
    EXPECT_TRUE(reply::belongs_to_mark(format("mistral"), "[ARGS]"));
    EXPECT_TRUE(reply::belongs_to_mark(format("dsml"), "｜DSML｜"));
    EXPECT_TRUE(reply::belongs_to_mark(format("harmony"), "<|channel|>"));
    for (const reply::Format& row : reply::formats()) {
        EXPECT_TRUE(reply::belongs_to_mark(row, row.think_open)) << row.name;
        EXPECT_FALSE(reply::belongs_to_mark(row, "<|im_start|>")) << row.name;
        EXPECT_FALSE(reply::belongs_to_mark(row, "")) << row.name;
        EXPECT_FALSE(reply::belongs_to_mark(row, "<")) << row.name;
    }
}

TEST(ReplyGolden, EveryFormatReadsEveryReply) {
    // A reply in another family's form is text or a call, and the same however it is cut.
    std::mt19937 random{20260314};
    for (const json::value& c : golden().at("cases").as_array())
        for (const reply::Format& format : reply::formats()) {
            const std::string_view text = c.at("output").as_string();
            const Reply whole = parse(format, {text}, options_of(c));
            for (int round = 0; round < 20; ++round) {
                std::vector<std::string_view> pieces;
                for (std::size_t at = 0; at < text.size();) {
                    const std::size_t n = 1 + random() % 12;
                    pieces.push_back(text.substr(at, n));
                    at += n;
                }
                ASSERT_EQ(parse(format, pieces, options_of(c)), whole)
                    << c.at("id") << " as " << format.name;
            }
        }
}

/// Pieces of replies in any order: mostly broken ones.
TEST(ReplyProperty, NonsenseIsTheSameHoweverItIsCut) {
    constexpr std::string_view kPieces[] = {"<think>",
                                            "</think>",
                                            "<tool_call>",
                                            "</tool_call>",
                                            "<function=",
                                            "send_note",
                                            ">",
                                            "<parameter=text>",
                                            "</parameter>",
                                            "</function>",
                                            "<arg_key>",
                                            "</arg_key>",
                                            "<arg_value>",
                                            "</arg_value>",
                                            "lookup_tide",
                                            "[TOOL_CALLS]",
                                            "[ARGS]",
                                            "[CALL_ID]",
                                            "<|python_tag|>",
                                            ".call(",
                                            "{\"name\": ",
                                            "\"lookup_tide\"",
                                            "\"arguments\": ",
                                            "{",
                                            "}",
                                            "[",
                                            "]",
                                            "\"",
                                            "\\",
                                            ",",
                                            ":",
                                            "null",
                                            "12",
                                            "\n",
                                            " ",
                                            "x",
                                            "é",
                                            "<｜tool▁calls▁begin｜>",
                                            "<｜tool▁call▁begin｜>",
                                            "<｜tool▁sep｜>",
                                            "<｜tool▁call▁end｜>",
                                            "<｜DSML｜function_calls>",
                                            "<｜DSML｜invoke name=\"",
                                            "\">",
                                            "<｜DSML｜parameter name=\"",
                                            "\" string=\"true\">",
                                            "</｜DSML｜parameter>",
                                            "<|channel|>",
                                            "analysis",
                                            "<|message|>",
                                            "to=functions.send_note",
                                            "<|end|>",
                                            "<|start|>",
                                            "<|call|>",
                                            "```json",
                                            "```",
                                            "(",
                                            ")",
                                            "=",
                                            "[THINK]",
                                            "[/THINK]"};
    const auto seed = std::random_device{}();
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random{seed};
    for (int round = 0; round < 3000; ++round) {
        std::string text;
        for (std::size_t n = random() % 24; n > 0; --n)
            text += kPieces[random() % std::size(kPieces)];
        for (const reply::Format& format : reply::formats()) {
            const reply::ParserOptions options{.tools = golden_tools(),
                                               .in_reasoning = round % 2 == 0};
            const Reply whole = parse(format, {text}, options);
            std::vector<std::string_view> pieces;
            for (std::size_t at = 0; at < text.size();) {
                const std::size_t n = 1 + random() % 9;
                pieces.push_back(std::string_view{text}.substr(at, n));
                at += n;
            }
            ASSERT_EQ(parse(format, pieces, options), whole) << format.name << ": " << text;
            for (const auto& call : whole.calls) {
                ASSERT_TRUE(call.ended);
                if (call.error.empty()) {
                    boost::system::error_code error;
                    ASSERT_TRUE(json::parse(call.arguments, error).is_object() && !error)
                        << call.arguments;
                }
            }
        }
    }
}

TEST(ReplyFormat, IsFoundByTheTemplate) {
    const auto name = [](const std::string& file) {
        return std::string{reply::detect_format(read_file(kTemplates + file)).name};
    };
    EXPECT_EQ(name("GLM-4.6.jinja"), "glm");
    EXPECT_EQ(name("GLM-4.7-Flash.jinja"), "glm");
    EXPECT_EQ(name("GLM-5.3-Flash-training.jinja"), "glm");
    EXPECT_EQ(name("Mistral-Small-3.2-24B-Instruct-2506.jinja"), "mistral");
    EXPECT_EQ(name("mistralai-Mistral-Nemo-Instruct-2407.jinja"), "mistral");
    EXPECT_EQ(name("Qwen-Qwen3-0.6B.jinja"), "hermes");
    EXPECT_EQ(name("Qwen3-Coder.jinja"), "qwen3-coder");
    EXPECT_EQ(name("Qwen3.5-4B.jinja"), "qwen3-coder");
    EXPECT_EQ(name("deepseek-ai-DeepSeek-R1-Distill-Llama-8B.jinja"), "deepseek");
    EXPECT_EQ(name("deepseek-ai-DeepSeek-V3.1.jinja"), "deepseek");
    EXPECT_EQ(name("deepseek-ai-DeepSeek-V3.2.jinja"), "dsml");
    EXPECT_EQ(name("llama-cpp-deepseek-r1.jinja"), "deepseek");
    EXPECT_EQ(name("chatml-minimal.jinja"), "plain");
    EXPECT_EQ(name("microsoft-Phi-3.5-mini-instruct.jinja"), "plain");
    EXPECT_EQ(reply::detect_format(R"(the format {"name": function name, "parameters": …)").name,
              "llama");
    EXPECT_EQ(reply::detect_format("").name, "plain");
}

TEST(ReplyFormat, MarksBeginWithAsciiAndWithNoOther) {
    for (const reply::Format& row : reply::formats())
        for (const reply::Mark& mark : row.calls) {
            EXPECT_TRUE(mark.text.front() == '<' || mark.text.front() == '[') << mark.text;
            for (const reply::Mark& other : row.calls)
                EXPECT_TRUE(&mark == &other || !other.text.starts_with(mark.text)) << mark.text;
        }
}

TEST(ReplyFormat, PromptsThatLeaveTheReasoningOpen) {
    EXPECT_TRUE(reply::opens_reasoning(format("glm"), "<|assistant|>\n<think>"));
    EXPECT_TRUE(reply::opens_reasoning(format("deepseek"), "<think>\n"));
    EXPECT_TRUE(reply::opens_reasoning(format("mistral"), "[THINK]"));
    EXPECT_FALSE(reply::opens_reasoning(format("glm"), "<|assistant|><think></think>"));
    EXPECT_FALSE(reply::opens_reasoning(format("glm"), ""));
}

}  // namespace
