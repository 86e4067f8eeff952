#include "daemon/text/control_guard.hpp"

#include "tests/daemon/text/tiny_vocab.hpp"

#include <boost/json.hpp>
#include <gtest/gtest.h>

namespace {

namespace json = boost::json;
using Ids = std::vector<std::int32_t>;

const text::Tokenizer& tokenizer() {
    static const auto made = text::make_tokenizer(tiny_vocab::bpe(
        {{"<|im_start|>", 3}, {"<|im_end|>", 3}, {"<think>", 3}, {"<tool_call>", 4}}, {}));
    return *made;
}

/// What the guard lets a template see, as JSON text.
std::string protect(text::ControlGuard& guard, std::string_view source) {
    json::value value = json::parse(source);
    guard.protect(value);
    return json::serialize(value);
}

TEST(ControlGuard, WhatIsTypedIsNoControlToken) {
    text::ControlGuard guard{tokenizer()};
    json::value messages = json::parse(R"([{"role":"user","content":"a<|im_end|>b"}])");
    guard.protect(messages);
    const std::string content{messages.at(0).at("content").as_string()};
    EXPECT_EQ(content.find("<|im_end|>"), std::string::npos);
    const auto restored = guard.restore("<|im_start|>" + content + "<|im_end|>");
    ASSERT_TRUE(restored);
    EXPECT_EQ(restored->text, "<|im_start|>a<|im_end|>b<|im_end|>");
    const Ids ids = tokenizer()
                        .encode(restored->text, {.parse_special = true, .plain = restored->plain})
                        .value();
    EXPECT_EQ(ids, (Ids{256, 'a', '<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|', '>', 'b', 257}));
}

TEST(ControlGuard, LooksIntoEveryStringAndKey) {
    text::ControlGuard guard{tokenizer()};
    const std::string seen = protect(guard, R"([{"role":"tool","content":[{"type":"text",
        "text":"<|im_end|>"}]}, {"a":{"<|im_start|>x":["<|im_start|>"]},"b":1}])");
    EXPECT_EQ(guard.num_protected(), 3u);
    EXPECT_EQ(seen.find("<|im"), std::string::npos) << seen;
    EXPECT_LT(seen.find("\"a\""), seen.find("\"b\""));  // the order of keys is kept
    const auto restored = guard.restore(seen);
    ASSERT_TRUE(restored);
    EXPECT_NE(restored->text.find(R"("<|im_start|>x":["<|im_start|>"])"), std::string::npos);
}

TEST(ControlGuard, LeavesAloneWhatIsNoControlToken) {
    text::ControlGuard guard{tokenizer()};
    constexpr std::string_view kPlain =
        R"([{"role":"assistant","content":"<think>a</think> <tool_call> <|im_end"},{"n":1,"x":null}])";
    EXPECT_EQ(protect(guard, kPlain), kPlain);
    EXPECT_EQ(guard.num_protected(), 0u);
    EXPECT_EQ(guard.restore("<|im_end|>")->plain.size(), 0u);
    // A user has no reasoning that a template would look for.
    EXPECT_NE(protect(guard, R"({"role":"user","content":"<think>"})").find("user"),
              std::string::npos);
    EXPECT_EQ(guard.num_protected(), 1u);
}

TEST(ControlGuard, ATemplateMayDropATextButNotChangeIt) {
    text::ControlGuard guard{tokenizer()};
    json::value value = "<|im_end|>";
    guard.protect(value);
    const std::string placeholder{value.as_string()};
    EXPECT_EQ(guard.restore("dropped")->text, "dropped");
    EXPECT_EQ(guard.restore(placeholder + placeholder)->plain.size(), 2u);
    EXPECT_FALSE(guard.restore(placeholder.substr(1)));
    EXPECT_FALSE(guard.restore(placeholder.substr(0, placeholder.size() - 1)));
    std::string other = placeholder;
    other[other.size() - 4] = '7';  // an index that was never given
    EXPECT_FALSE(guard.restore(other));
}

}  // namespace
