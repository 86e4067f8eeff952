// Masks: exactly the tokens whose bytes the grammar takes, and what walks over them write is valid.

#include "daemon/text/tokenizer.hpp"
#include "tests/daemon/text/golden_vocab.hpp"
#include "tests/daemon/text/grammar/grammar_support.hpp"
#include "tests/daemon/text/grammar/random_schema.hpp"
#include "tests/daemon/text/grammar/validator.hpp"

#include <gtest/gtest.h>

namespace grammar_test {
namespace {

/// A vocabulary of tests/golden/text.
std::shared_ptr<const grammar::TokenTable> golden_vocabulary(const std::string& name) {
    const auto tokenizer =
        text::make_tokenizer(golden::metadata_of(golden::read_json("vocab-" + name + ".json")));
    return std::make_shared<const grammar::TokenTable>(*tokenizer);
}

std::uint64_t fresh_seed() {
    const std::uint64_t seed = std::random_device{}();
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
    return seed;
}

boost::json::value random_schema(Rng& rng) {
    return RandomSchema{[&rng](std::uint32_t n) { return static_cast<std::uint32_t>(rng() % n); }}
        .make();
}

/// Tokens that end inside of characters and escapes, close strings and go on behind them.
std::vector<std::string> awkward_tokens() {
    return {"ab",       "abc\"",    "\",",
            "\": ",     "\": \"",   "\",\"",
            "\"}",      "\"}]",     "}}",
            "},{",      "[[",       "{\"",
            "{\"a",     "a\":",     "\\\"",
            "\\u00",    "e9\"",     "\xE2",
            "\xE2\x82", "\x82\xAC", "\xAC\"",
            "\xF0\x9F", "12",       "3,",
            "1}",       "-",        "0.",
            "e+",       " \"",      ", \"",
            ": ",       "null",     "true,",
            "nul",      "l}",       "\"\"",
            "]]",       "[{",       "abcdefghijklmnopqrstuvwxyz",
            "aaaa\"",   "\n",       "\\n\\",
            "red\"",    "foo",      "bar\"}",
            "x1"};
}

TEST(Masks, AreTheTokensThatTheGrammarTakes) {
    Rng rng{fresh_seed()};
    const auto tokens = byte_vocabulary(awkward_tokens());
    std::vector<std::uint32_t> bits(grammar::num_words(tokens->vocab_size()));
    for (int round = 0; round < 60; ++round) {
        const auto schema = random_schema(rng);
        SCOPED_TRACE(boost::json::serialize(schema));
        const auto outcome =
            grammar::compile(schema_rules(boost::json::serialize(schema)), {}, tokens);
        if (outcome.index() != 0) continue;  // such as two patterns that must both hold
        const auto rules = std::get<0>(outcome);
        grammar::Machine machine{rules->grammar()};
        grammar::Configs at, next;
        machine.add({rules->grammar().start(0)}, at);
        const auto constraint = rules->start();
        for (int i = 0; i < 40; ++i) {
            const std::int32_t token = pick(*constraint, bits, rng, *tokens, i > 25);
            ASSERT_GE(token, 0);
            for (std::int32_t t = 0; t + 1 < tokens->vocab_size(); ++t) {
                grammar::Configs from = at, to;
                for (const char c : tokens->piece(t)) {
                    machine.step(from, static_cast<std::uint8_t>(c), to);
                    std::swap(from, to);
                }
                ASSERT_EQ(grammar::has_bit(bits, t), !from.is_dead())
                    << "token " << tokens->piece(t);
            }
            ASSERT_EQ(grammar::has_bit(bits, tokens->eog()[0]), at.at_end);
            if (tokens->is_eog(token)) break;
            ASSERT_TRUE(constraint->accept(token));
            for (const char c : tokens->piece(token)) {
                machine.step(at, static_cast<std::uint8_t>(c), next);
                std::swap(at, next);
            }
        }
    }
}

void expect_valid_walks(const std::shared_ptr<const grammar::TokenTable>& tokens, Rng& rng,
                        int rounds) {
    int num_whole = 0;
    for (int round = 0; round < rounds; ++round) {
        const auto schema = random_schema(rng);
        SCOPED_TRACE(boost::json::serialize(schema));
        const auto outcome =
            grammar::compile(schema_rules(boost::json::serialize(schema)), {}, tokens);
        if (outcome.index() != 0) continue;
        const Walk out = walk(std::get<0>(outcome), rng, 10, 300);
        if (!out.is_whole) continue;
        ++num_whole;
        boost::system::error_code error;
        const auto value = boost::json::parse(out.text, error);
        ASSERT_FALSE(error) << out.text;
        EXPECT_TRUE(Validator{schema}.is_valid(value)) << out.text;
    }
    EXPECT_GT(num_whole, rounds / 2);
}

TEST(Masks, WalksWriteValidJson) {
    Rng rng{fresh_seed()};
    expect_valid_walks(byte_vocabulary(), rng, 150);
    expect_valid_walks(byte_vocabulary(awkward_tokens()), rng, 250);
}

class GoldenVocabulary : public testing::TestWithParam<const char*> {};

TEST_P(GoldenVocabulary, WalksWriteValidJson) {
    Rng rng{fresh_seed()};
    expect_valid_walks(golden_vocabulary(GetParam()), rng, 40);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenVocabulary,
                         testing::Values("qwen3", "gpt-2", "llama-spm", "phi-3", "deepseek-llm"),
                         [](const auto& vocabulary) {
                             std::string name = vocabulary.param;
                             std::replace(name.begin(), name.end(), '-', '_');
                             return name;
                         });

TEST(Masks, AVocabularyThatCannotSpellJsonIsRefused) {
    const auto tokens = golden_vocabulary("bert-bge");  // punctuation begins words there
    const auto outcome = grammar::compile(schema_rules("{}"), {}, tokens);
    ASSERT_EQ(outcome.index(), 1U);
    EXPECT_EQ(std::get<1>(outcome).part, grammar::Refusal::Part::model);
    EXPECT_NE(std::get<1>(outcome).message.find("no token of its vocabulary is the byte"),
              std::string::npos);
}

TEST(Matcher, OnlyTheEndMayFollowWhatIsWhole) {
    const auto tokens = byte_vocabulary();
    const auto rules = compiled(schema_rules(R"({"type":"boolean"})"), tokens);
    const auto constraint = rules->start();
    std::vector<std::uint32_t> bits(grammar::num_words(tokens->vocab_size()));
    for (const char c : std::string_view{"true"}) {
        EXPECT_FALSE(constraint->is_ended());
        ASSERT_TRUE(constraint->accept(c));
    }
    constraint->allow(bits);
    for (std::int32_t token = 0; token < tokens->vocab_size(); ++token)
        EXPECT_EQ(grammar::has_bit(bits, token), tokens->is_eog(token)) << token;
    EXPECT_FALSE(rules->start()->accept('x'));
    EXPECT_FALSE(rules->start()->accept(tokens->eog()[0])) << "nothing has been said";
    EXPECT_TRUE(constraint->accept(tokens->eog()[0]));
    EXPECT_TRUE(constraint->is_ended());
}

TEST(Matcher, DeepTextsDoNotGrowWithoutBound) {
    const auto tokens = byte_vocabulary();
    base::OutputRules rules;
    rules.form = base::OutputRules::Form::json_object;
    const auto constraint = compiled(rules, tokens)->start();
    std::vector<std::uint32_t> bits(grammar::num_words(tokens->vocab_size()));
    ASSERT_TRUE(constraint->accept('{'));
    for (const char c : std::string_view{"\"a\":"}) ASSERT_TRUE(constraint->accept(c));
    int depth = 0;
    for (; depth < 1000; ++depth) {
        constraint->allow(bits);
        if (!grammar::has_bit(bits, '[')) break;
        ASSERT_TRUE(constraint->accept('['));
    }
    EXPECT_GT(depth, 50);
    EXPECT_LT(depth, 300);
    constraint->allow(bits);
    EXPECT_TRUE(grammar::has_bit(bits, ']'));
}

TEST(Cache, KeepsWhatWasUsedLast) {
    grammar::Cache cache{byte_vocabulary(), {.max_entries = 2}};
    const auto get = [&](const char* schema) {
        return std::get<0>(cache.get(schema_rules(schema), {}));
    };
    const auto a = get(R"({"type":"string"})");
    const auto b = get(R"({"type":"null"})");
    EXPECT_EQ(get(R"({"type":"string"})"), a);
    EXPECT_NE(get(R"({"type":"boolean"})"), nullptr);
    EXPECT_EQ(cache.num_entries(), 2U);
    EXPECT_EQ(get(R"({"type":"string"})"), a);
    EXPECT_NE(get(R"({"type":"null"})"), b) << "it was used longest ago";
    EXPECT_EQ(cache.get(schema_rules(R"({"not":{}})"), {}).index(), 1U);
}

}  // namespace
}  // namespace grammar_test
