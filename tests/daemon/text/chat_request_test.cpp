#include "daemon/text/chat_request.hpp"

#include "daemon/text/template_probe.hpp"
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
