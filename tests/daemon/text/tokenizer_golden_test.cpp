#include "daemon/text/detokenizer.hpp"
#include "daemon/text/tokenizer.hpp"
#include "tests/daemon/text/golden_vocab.hpp"

#include <gtest/gtest.h>

#include <map>
#include <memory>

namespace {

namespace json = boost::json;

/// One vocabulary; read once, since some have two hundred thousand tokens.
struct Golden {
    json::value vocab;
    std::unique_ptr<text::Tokenizer> tokenizer;

    explicit Golden(const std::string& name)
        : vocab(golden::read_json("vocab-" + name + ".json")),  // braces would make an array of one
          tokenizer{text::make_tokenizer(golden::metadata_of(vocab))} {}
};

class TokenizerGolden : public testing::TestWithParam<const char*> {
protected:
    static const Golden& load() {
        static std::map<std::string, std::unique_ptr<Golden>> loaded;
        auto& entry = loaded[GetParam()];
        if (entry == nullptr) entry = std::make_unique<Golden>(GetParam());
        return *entry;
    }

    const json::value& vocab_ = load().vocab;
    const text::Tokenizer& tokenizer_ = *load().tokenizer;
};

TEST_P(TokenizerGolden, EncodesEveryText) {
    const json::value texts = golden::read_json("texts.json");
    const json::array& cases = vocab_.at("cases").as_array();
    int num_checked = 0;
    for (std::size_t i = 0; i < cases.size(); ++i) {
        if (cases[i].is_null()) continue;
        const std::string text = golden::to_string(texts.at(i).at("text"));
        SCOPED_TRACE(text);
        const json::object& c = cases[i].as_object();
        const auto ids = golden::to_ids(c.at("ids"));
        const json::value* nfc_ids = c.if_contains("ids_nfc");
        EXPECT_EQ(tokenizer_.encode(text, {.parse_special = true}).value(),
                  nfc_ids == nullptr ? ids : golden::to_ids(*nfc_ids));
        if (const json::value* plain = c.if_contains("ids_plain")) {
            EXPECT_EQ(tokenizer_.encode(text).value(), golden::to_ids(*plain));
        }
        ++num_checked;
    }
    EXPECT_GE(num_checked, 132);
}

TEST(TokenizerOptions, NfcCanBeSwitchedOff) {
    const json::value vocab = golden::read_json("vocab-qwen3.json");
    const json::value texts = golden::read_json("texts.json");
    const auto tokenizer =
        text::make_tokenizer(golden::metadata_of(vocab), {.normalize_nfc = false});
    int num_checked = 0;
    for (std::size_t i = 0; i < texts.as_array().size(); ++i) {
        const json::object& c = vocab.at("cases").at(i).as_object();
        if (!c.contains("ids_nfc")) continue;
        ++num_checked;
        const std::string text = golden::to_string(texts.at(i).at("text"));
        EXPECT_EQ(tokenizer->encode(text, {.parse_special = true}).value(),
                  golden::to_ids(c.at("ids")));
    }
    EXPECT_EQ(num_checked, 5);
}

TEST_P(TokenizerGolden, StreamsEveryPiece) {
    for (const json::value& stream : vocab_.at("pieces").as_array()) {
        const auto ids = golden::to_ids(stream.at("ids"));
        text::Detokenizer detokenizer{tokenizer_, {.render_special = true}};
        for (std::size_t i = 0; i < ids.size(); ++i) {
            EXPECT_EQ(tokenizer_.token_piece(ids[i], true),
                      golden::unhex(golden::to_string(stream.at("piece_hex").at(i))));
            EXPECT_EQ(detokenizer.push(ids[i]), golden::to_string(stream.at("deltas").at(i)));
        }
        EXPECT_EQ(detokenizer.flush(), golden::to_string(stream.at("flush")));
    }
    // The encoder of embeddings has none.
    EXPECT_EQ(vocab_.at("pieces").as_array().empty(), std::string_view{GetParam()} == "bert-bge");
}

TEST_P(TokenizerGolden, StreamsTheSameTextWhereverItIsCut) {
    for (const json::value& c : vocab_.at("cases").as_array()) {
        if (c.is_null()) continue;
        std::string bytes, streamed;
        text::Detokenizer detokenizer{tokenizer_, {.render_special = true}};
        for (const std::int32_t id : golden::to_ids(c.at("ids"))) {
            bytes += tokenizer_.token_piece(id, true);
            streamed += detokenizer.push(id);
        }
        streamed += detokenizer.flush();
        EXPECT_TRUE(text::is_valid_utf8(streamed));
        for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
            text::Utf8Stream stream;
            std::string joined = stream.push(std::string_view{bytes}.substr(0, cut));
            joined += stream.push(std::string_view{bytes}.substr(cut));
            ASSERT_EQ(joined + stream.flush(), streamed) << "cut at byte " << cut;
        }
    }
}

TEST_P(TokenizerGolden, RepairsInvalidUtf8) {
    for (const json::value& c : vocab_.at("invalid_utf8").as_array()) {
        const std::string hex = golden::to_string(c.at("input_hex"));
        EXPECT_EQ(tokenizer_.encode(golden::unhex(hex)).value(), golden::to_ids(c.at("ids")))
            << hex;
    }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, TokenizerGolden,
                         testing::Values("bert-bge", "deepseek-coder", "deepseek-llm", "deepseek-v3",
                                         "falcon", "gpt-2", "gpt-4o", "llama-spm", "mpt", "phi-3",
                                         "qwen3", "starcoder"),
                         [](const auto& param_info) {
                             std::string name = param_info.param;
                             std::erase(name, '-');
                             return name;
                         });

}  // namespace
