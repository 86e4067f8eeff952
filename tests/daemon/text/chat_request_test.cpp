#include "daemon/text/chat_request.hpp"

#include "daemon/text/reply/parser.hpp"
#include "daemon/text/template_probe.hpp"
#include "daemon/text/tool_prompt.hpp"
#include "tests/daemon/text/golden_vocab.hpp"
#include "tests/daemon/text/tiny_vocab.hpp"

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include <algorithm>

namespace {

namespace json = boost::json;

/// The adapted messages as text, so that the order of keys counts.
std::string adapt(std::string_view messages, const text::TemplateTraits& traits = {}) {
    return json::serialize(text::adapt_messages(json::parse(messages).as_array(), traits));
}

TEST(AdaptMessages, LeavesOrdinaryMessagesAlone) {
    const std::string messages = R"([{"z":1,"role":"user","content":"hi","a":{"c":1,"b":2}}])";
    EXPECT_EQ(adapt(messages), messages);
}

TEST(AdaptMessages, ArgumentTextsBecomeObjectsInOrder) {
    EXPECT_EQ(
        adapt(
            R"([{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":"{\"z\":1,\"a\":\"x\"}"}}]}])"),
        R"([{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":{"z":1,"a":"x"}}}]}])");
}

TEST(AdaptMessages, ArgumentTextsThatAreNoObjectStay) {
    for (const char* arguments : {R"("not json")", R"("[1]")", R"("")"}) {
        const std::string messages =
            std::string{
                R"([{"role":"assistant","content":"","tool_calls":[{"function":{"arguments":)"} +
            arguments + "}}]}]";
        EXPECT_EQ(adapt(messages), messages);
    }
}

TEST(AdaptMessages, ArgumentsBecomeTextWhereTheTemplateWantsIt) {
    EXPECT_EQ(
        adapt(
            R"([{"role":"assistant","content":"x","tool_calls":[{"function":{"arguments":{"z":1,"a":2}}}]}])",
            {.object_arguments = false}),
        R"([{"role":"assistant","content":"x","tool_calls":[{"function":{"arguments":"{\"z\":1,\"a\":2}"}}]}])");
}

TEST(AdaptMessages, MissingAndNullContentBecomeEmpty) {
    EXPECT_EQ(adapt(R"([{"role":"assistant","content":null},{"role":"assistant"}])"),
              R"([{"role":"assistant","content":""},{"role":"assistant","content":""}])");
}

TEST(AdaptMessages, EmptyContentBesideCallsBecomesNullWhereAsked) {
    const text::TemplateTraits traits{.object_arguments = false, .null_content = true};
    EXPECT_EQ(
        adapt(R"([{"content":"","tool_calls":[{}]},{"content":"","tool_calls":[]},{"content":""}])",
              traits),
        R"([{"content":null,"tool_calls":[{}]},{"content":"","tool_calls":[]},{"content":""}])");
}

TEST(AdaptMessages, TextPartsAreJoinedUnlessTheTemplateReadsThem) {
    const std::string messages =
        R"([{"role":"user","content":[{"type":"text","text":"Part one. "},{"type":"input_text","text":"Part two."}]}])";
    EXPECT_EQ(adapt(messages), R"([{"role":"user","content":"Part one. Part two."}])");
    EXPECT_EQ(adapt(messages, {.content_parts = true}), messages);
    const std::string image = R"([{"content":[{"type":"image_url","image_url":{"url":"x"}}]}])";
    EXPECT_EQ(adapt(image), image);
    EXPECT_EQ(adapt(R"([{"content":"x"}])", {.content_parts = true, .content_text = false}),
              R"([{"content":[{"type":"text","text":"x"}]}])");
}

TEST(AdaptMessages, DeveloperBecomesSystem) {
    EXPECT_EQ(adapt(R"([{"role":"developer","content":"x"}])"),
              R"([{"role":"system","content":"x"}])");
}

TEST(AdaptMessages, ReasoningIsPassedOn) {
    EXPECT_EQ(adapt(R"([{"reasoning":"why","role":"assistant","content":"x"}])"),
              R"([{"role":"assistant","content":"x","reasoning_content":"why"}])");
    EXPECT_EQ(adapt(R"([{"content":"x","reasoning":"a","reasoning_content":"b"}])"),
              R"([{"content":"x","reasoning_content":"b"}])");
}

TEST(AdaptMessages, LongIdsBecomeNineCharactersEverywhere) {
    const auto out = text::adapt_messages(
        json::parse(R"([{"content":"","tool_calls":[{"id":"call_abcdefghijkl"},{"id":"Abc123XYZ"}]},
                        {"content":"r","tool_call_id":"call_abcdefghijkl"}])")
            .as_array(),
        {.nine_character_ids = true});
    const std::string id = golden::to_string(out[0].at("tool_calls").at(0).at("id"));
    EXPECT_EQ(id.size(), 9u);
    EXPECT_EQ(golden::to_string(out[1].at("tool_call_id")), id);
    EXPECT_EQ(golden::to_string(out[0].at("tool_calls").at(1).at("id")), "Abc123XYZ");
}

TEST(AdaptMessages, OddShapesDoNotThrow) {
    for (const char* messages :
         {"[]", "[1,null,\"x\"]", R"([{"role":5,"content":7,"tool_calls":3}])",
          R"([{"tool_calls":[1,{"function":2},{"function":{"arguments":null}}]}])"})
        EXPECT_FALSE(adapt(messages).empty());
}

// ---- templates that pass over tools ---------------------------------------------------------------

constexpr std::string_view kTool =
    R"({"type":"function","function":{"name":"f","parameters":{"type":"object"}}})";

json::array spell_out(std::string_view messages, const text::TemplateTraits& traits,
                      std::string_view format = "hermes", bool has_tools = true) {
    json::array tools;
    if (has_tools) tools.push_back(json::parse(kTool));
    for (const reply::Format& row : reply::formats())
        if (row.name == format)
            return text::spell_out_tools(json::parse(messages).as_array(), tools, traits, row);
    return {};
}

constexpr std::string_view kRound = R"([{"role":"system","content":"Be brief."},
    {"role":"user","content":"q"},
    {"role":"assistant","content":"","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":{"a":1}}},
     {"id":"2","type":"function","function":{"name":"g","arguments":"{}"}}]},
    {"role":"tool","tool_call_id":"1","content":"r1"},{"role":"tool","tool_call_id":"2","content":"r2"},
    {"role":"assistant","content":"A"}])";

TEST(SpellOutTools, ChangesNothingWhereTheTemplateShowsThem) {
    EXPECT_EQ(spell_out(kRound, {}), json::parse(kRound));
}

TEST(SpellOutTools, DescribesToolsInTheSystemMessage) {
    const json::array out = spell_out(kRound, {.shows_tools = false});
    ASSERT_EQ(out.size(), 6u);
    const std::string system{out[0].at("content").as_string()};
    EXPECT_TRUE(system.starts_with("Be brief.\n\n"));
    EXPECT_NE(system.find(kTool), std::string::npos);
    EXPECT_NE(system.find("<tool_call>"), std::string::npos);

    const json::array added =
        spell_out(R"([{"role":"user","content":"q"}])", {.shows_tools = false}, "deepseek");
    ASSERT_EQ(added.size(), 2u);
    EXPECT_EQ(added[0].at("role").as_string(), "system");
    EXPECT_NE(std::string{added[0].at("content").as_string()}.find("<｜tool▁call▁begin｜>"),
              std::string::npos);
    const json::array first = spell_out(R"([{"role":"user","content":"q"}])",
                                        {.system_role = false, .shows_tools = false});
    ASSERT_EQ(first.size(), 1u);
    EXPECT_TRUE(std::string{first[0].at("content").as_string()}.starts_with("q\n\n"));
    EXPECT_EQ(spell_out(kRound, {.shows_tools = false}, "hermes", false), json::parse(kRound));
}

TEST(SpellOutTools, WritesCallsAndResultsAsTheModelWould) {
    const json::array out = spell_out(
        kRound, {.shows_tool_calls = false, .shows_tool_results = false}, "hermes", false);
    ASSERT_EQ(out.size(), 5u);
    EXPECT_EQ(out[2].at("content").as_string(),
              "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\":1}}\n</tool_call>\n"
              "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>");
    EXPECT_FALSE(out[2].as_object().contains("tool_calls"));
    EXPECT_EQ(out[3].at("role").as_string(), "user");
    EXPECT_EQ(out[3].at("content").as_string(),
              "<tool_response>\nr1\n</tool_response>\n\n<tool_response>\nr2\n</tool_response>");
    EXPECT_EQ(out[4].at("content").as_string(), "A");
}

/// What is written is what is read: the parser of the format finds the call again.
TEST(SpellOutTools, WritesWhatTheFormatReads) {
    for (const std::string_view name : {"hermes", "deepseek"}) {
        const json::array out = spell_out(kRound, {.shows_tool_calls = false}, name, false);
        for (const reply::Format& row : reply::formats()) {
            if (row.name != name) continue;
            EXPECT_EQ(&text::spelled_format(row), &row);
            reply::Parser parser{row, {.tools = std::make_shared<const reply::Tools>(
                                           json::array{json::parse(kTool)})}};
            std::vector<reply::Event> events;
            parser.feed(std::string_view{out[2].at("content").as_string()}, events);
            parser.finish(events);
            ASSERT_GE(events.size(), 3u) << name;
            EXPECT_EQ(events[0].kind, reply::Event::Kind::call_begin);
            EXPECT_EQ(events[0].text, "f");
            EXPECT_EQ(json::parse(events[1].text), json::parse(R"({"a":1})"));
            EXPECT_EQ(events.back().kind, reply::Event::Kind::call_end);
        }
    }
    EXPECT_EQ(text::spelled_format(reply::formats().back()).name, "hermes");
}

TEST(ChooseTemplate, FollowsTheOrder) {
    base::Metadata metadata;
    EXPECT_EQ(text::choose_template(metadata, "", true).name, "chatml");
    metadata.set("tokenizer.chat_template", std::string{"plain"});
    EXPECT_EQ(text::choose_template(metadata, "", true).source, "plain");
    metadata.set("tokenizer.chat_template.tool_use", std::string{"tools"});
    EXPECT_EQ(text::choose_template(metadata, "", true).source, "tools");
    EXPECT_EQ(text::choose_template(metadata, "", false).source, "plain");
    EXPECT_EQ(text::choose_template(metadata, "mine", true).source, "mine");
}

TEST(WithoutAddedTokens, LeavesOneBosWhetherOrNotTheTemplateWritesIt) {
    base::Metadata metadata = tiny_vocab::spm();
    const auto tokenizer = text::make_tokenizer(metadata);
    ASSERT_TRUE(tokenizer->add_bos());
    for (const char* rendered : {"<s>ab", "ab"}) {
        const auto ids = tokenizer
                             ->encode(text::without_added_tokens(rendered, *tokenizer),
                                      {.add_special = true, .parse_special = true})
                             .value();
        EXPECT_EQ(std::count(ids.begin(), ids.end(), tokenizer->special().bos), 1) << rendered;
    }
    EXPECT_EQ(text::without_added_tokens("<s><s>ab", *tokenizer), "<s>ab");
    metadata.set("tokenizer.ggml.add_bos_token", false);
    metadata.set("tokenizer.ggml.add_eos_token", true);
    EXPECT_EQ(text::without_added_tokens("<s>ab</s>", *text::make_tokenizer(metadata)), "<s>ab");
}

TEST(ProbeTemplate, FindsWhatEachTemplateWants) {
    text::TemplateWorker worker{{.deadline = std::chrono::minutes{1}, .num_workers = 1}};
    ASSERT_EQ(worker.unavailable_reason(), "");
    const auto probe = [&](const char* file) {
        return text::probe_template(
            worker, golden::read_file(std::string{ASSAY_TEST_DATA "/text/templates/"} + file),
            "<s>", "</s>");
    };
    const text::TemplateTraits glm = probe("GLM-4.6.jinja");
    EXPECT_TRUE(glm.content_parts && glm.object_arguments && glm.shows_tools &&
                glm.shows_tool_calls && glm.shows_tool_results && glm.system_role &&
                glm.has_enable_thinking);
    EXPECT_FALSE(glm.null_content || glm.nine_character_ids);

    const text::TemplateTraits distill = probe("deepseek-ai-DeepSeek-R1-Distill-Llama-8B.jinja");
    EXPECT_TRUE(distill.null_content && distill.shows_tool_calls);
    EXPECT_FALSE(distill.object_arguments || distill.shows_tools || distill.content_parts);

    EXPECT_TRUE(probe("mistralai-Mistral-Nemo-Instruct-2407.jinja").nine_character_ids);
    EXPECT_FALSE(probe("GLM-5.3-Flash-training.jinja").has_enable_thinking);
    EXPECT_FALSE(probe("microsoft-Phi-3.5-mini-instruct.jinja").shows_tools);
    EXPECT_FALSE(probe("deepseek-ai-DeepSeek-V3.1.jinja").shows_tools);

    const text::TemplateTraits broken = text::probe_template(worker, "{% if %}", "", "");
    EXPECT_FALSE(broken.shows_tools || broken.system_role || broken.has_enable_thinking);
    EXPECT_TRUE(broken.content_text);
}

}  // namespace
