// The tokenizer of the demo model: pre-tokenizer glm4, every byte a token.
#include "daemon/text/detokenizer.hpp"
#include "daemon/text/tokenizer.hpp"
#include "tests/daemon/text/golden_vocab.hpp"
#include "tests/support/gguf_metadata.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <random>

namespace {

const text::Tokenizer& demo() {
    static const auto tokenizer = text::make_tokenizer(
        test_support::read_gguf_metadata(ASSAY_SOURCE_DIR "/models/assay-demo-Q4_K_M.gguf"));
    return *tokenizer;
}

std::vector<std::int32_t> read_ids(const std::string& path) {
    const std::string bytes = golden::read_file(path);
    std::vector<std::int32_t> ids(bytes.size() / 4);
    std::memcpy(ids.data(), bytes.data(), ids.size() * 4);
    return ids;
}

std::string decode(const std::vector<std::int32_t>& ids, text::DetokenizerOptions options = {}) {
    text::Detokenizer detokenizer{demo(), options};
    std::string out;
    for (const std::int32_t id : ids) out += detokenizer.push(id);
    return out + detokenizer.flush();
}

/// Random text: mostly what people type, with anything else between.
std::string random_text(std::mt19937& rng, std::size_t num_characters) {
    constexpr std::string_view kCommon[] = {
        "the", " a",      "Hello",  "'s",       "'T",      "42",      "1234567",
        "\n",  "\r\n",    "  ",     "\t",       "!?",      "é",       "中文",
        "😀",   "e\u0301", "\u00A0", "<|user|>", "[gMASK]", "<think>", "{}"};
    std::string out;
    for (std::size_t i = 0; i < num_characters; ++i) {
        if (rng() % 4 != 0) {
            out += kCommon[rng() % std::size(kCommon)];
            continue;
        }
        auto c = static_cast<char32_t>(rng() % 0x110000);
        if (c >= 0xD800 && c <= 0xDFFF) c = U'x';
        text::append_utf8(out, c);
    }
    return out;
}

TEST(DemoTokenizer, GivesTheTokensOfTheReferenceRun) {
    const std::string folder = ASSAY_TEST_DATA "/demo/";
    const auto prompts = boost::json::parse(golden::read_file(folder + "prompts.json"));
    for (const auto& [name, prompt] : prompts.as_object()) {
        SCOPED_TRACE(std::string{name});
        const auto expected = read_ids(folder + std::string{name} + ".tokens.i32");
        const std::string text = golden::to_string(prompt.at("text"));
        EXPECT_EQ(demo().encode(text, {.parse_special = true}).value(), expected);
        EXPECT_EQ(decode(expected, {.render_special = true}), text);
    }
    EXPECT_EQ(prompts.as_object().size(), 4u);
}

TEST(DemoTokenizer, KnowsItsSpecialTokens) {
    EXPECT_EQ(demo().vocab_size(), 3072);
    EXPECT_EQ(demo().special().bos, 3064);
    EXPECT_EQ(demo().special().eos, 3063);
    EXPECT_EQ(demo().special().eot, 3067);
    EXPECT_EQ(demo().special().eom, 3069);
    EXPECT_EQ(demo().eog_ids(), (std::vector<std::int32_t>{3063, 3067, 3069}));
    EXPECT_TRUE(demo().is_eog(3067));
    EXPECT_FALSE(demo().is_eog(3068));
    EXPECT_FALSE(demo().add_bos());
    EXPECT_EQ(demo().bos_text(), "[gMASK]");
    EXPECT_EQ(demo().find("<|assistant|>"), 3068);
}

TEST(DemoTokenizer, ControlTextsAreTokensOnlyWhenAsked) {
    EXPECT_EQ(demo().encode("<|user|>", {.parse_special = true}).value(),
              (std::vector<std::int32_t>{3067}));
    for (const std::int32_t id : demo().encode("<|user|>").value())
        EXPECT_EQ(demo().token_type(id), text::TokenType::normal);
}

TEST(DemoTokenizer, ControlTokensPrintOnlyWhenAsked) {
    EXPECT_EQ(demo().token_piece(3067), "");
    EXPECT_EQ(demo().token_piece(3067, true), "<|user|>");
    EXPECT_EQ(demo().token_piece(-1, true), "");
    EXPECT_EQ(demo().token_piece(3072, true), "");
}

TEST(DemoTokenizerProperty, DecodingAnEncodedTextGivesItBack) {
    const auto seed = std::random_device{}();
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 rng{seed};
    for (int round = 0; round < 300; ++round) {
        const std::string text = random_text(rng, rng() % 60);
        const bool parse_special = rng() % 2 == 0;
        const auto ids = demo().encode(text, {.parse_special = parse_special}).value();
        ASSERT_EQ(decode(ids, {.render_special = true}), text);
    }
}

TEST(DemoTokenizerProperty, RandomBytesEncodeToWhatTheirRepairEncodesTo) {
    const auto seed = std::random_device{}();
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 rng{seed};
    for (int round = 0; round < 300; ++round) {
        std::string bytes(rng() % 80, '\0');
        for (char& c : bytes)
            c = static_cast<char>(rng() % (round % 2 == 0 ? 256 : 128) | (rng() % 2 * 0x80));
        const auto ids = demo().encode(bytes).value();
        ASSERT_EQ(decode(ids), text::repair_utf8(bytes));
        for (const std::int32_t id : ids) ASSERT_TRUE(id >= 0 && id < demo().vocab_size());
    }
}

TEST(DemoTokenizerProperty, RandomIdsStreamTheSameTextHoweverTheyAreRead) {
    const auto seed = std::random_device{}();
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 rng{seed};
    for (int round = 0; round < 200; ++round) {
        std::vector<std::int32_t> ids(rng() % 50);
        std::string bytes;
        for (std::int32_t& id : ids) {
            id = static_cast<std::int32_t>(rng() % 3080) - 4;  // some out of range
            bytes += demo().token_piece(id);
        }
        text::Utf8Stream whole;
        std::string expected = whole.push(bytes);
        expected += whole.flush();
        ASSERT_EQ(decode(ids), expected);
        ASSERT_TRUE(text::is_valid_utf8(expected));
    }
}

}  // namespace
