#include "daemon/config/keys_file.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "daemon/config/mistakes.hpp"

namespace config {
namespace {

const std::string kDigest(64, 'a');

/// The mistakes of a text as main would print them; "" when it has none.
std::string complaint(const std::string& text) {
    try {
        (void)parse_api_keys(text, "keys.toml");
        return {};
    } catch (const Mistakes& mistakes) {
        return mistakes.what();
    }
}

std::string key(const std::string& members) { return "[[key]]\n" + members; }

TEST(KeysFile, ReadsKeysWithTheirLimits) {
    const auto keys = parse_api_keys(key("label = 'alice'\nsecret = '0123456789abcdef'\nmax_in_flight = 3\n"
                                         "tokens_per_minute = 5000\n") +
                                         key("label = 'bob'\nsha256 = '" + kDigest + "'\n"),
                                     "keys.toml");
    ASSERT_EQ(keys.size(), 2U);
    EXPECT_EQ(keys[0].label, "alice");
    EXPECT_EQ(keys[0].secret, "0123456789abcdef");
    EXPECT_EQ(keys[0].max_in_flight, 3);
    EXPECT_EQ(keys[0].tokens_per_minute, 5000);
    EXPECT_EQ(keys[1].sha256, kDigest);
    EXPECT_EQ(keys[1].max_in_flight, 0);
}

TEST(KeysFile, TheExampleIsRead) {
    const auto keys = load_api_keys(std::string{ASSAY_SOURCE_DIR} + "/conf/keys.toml");
    ASSERT_EQ(keys.size(), 2U);
    EXPECT_EQ(keys[0].label, "alice");
}

TEST(KeysFile, NamesWhatIsWrongWithItsPlace) {
    const std::string good = "label = 'a'\nsecret = '0123456789abcdef'\n";
    EXPECT_EQ(complaint(key(good)), "");
    const std::pair<std::string, const char*> kCases[] = {
        {"", "at least one"},
        {"# nothing\n", "no [[key]]"},
        {"0123456789abcdef\n", "TOML"},
        {"key = 'x'\n", "[[key]] tables"},
        {"[key]\nlabel = 'a'\n", "[[key]] tables"},
        {"label = 'a'\n", "[[key]] tables"},
        {key("secret = '0123456789abcdef'\n"), "key.label"},
        {key("label = 'a'\n"), "neither secret nor sha256"},
        {key(good + "sha256 = '" + kDigest + "'\n"), "secret and sha256"},
        {key("label = 'a'\nsha256 = 'zz'\n"), "64 hexadecimal digits"},
        {key("label = ''\nsecret = '0123456789abcdef'\n"), "key.label"},
        {key(good + "max_in_flight = -1\n"), "keys.toml:4:1: key.max_in_flight: found -1"},
        {key(good + "tokens_per_minute = '5'\n"), "key.tokens_per_minute"},
        {key(good + "limit = 1\n"), "keys.toml:4:1: key.limit"},
        {key(good) + key(good), "a second time"},
    };
    for (const auto& [text, expected] : kCases)
        EXPECT_NE(complaint(text).find(expected), std::string::npos) << text << "\n-> " << complaint(text);
}

TEST(KeysFile, NeverShowsASecret) {
    for (const std::string secret : {"short-secret", "secret with spaces 0123456789"}) {
        const std::string text = complaint(key("label = 'a'\nsecret = '" + secret + "'\n"));
        EXPECT_NE(text.find("key.secret"), std::string::npos) << text;
        EXPECT_EQ(text.find(secret), std::string::npos) << text;
    }
}

TEST(KeysFile, AFileThatCannotBeReadSaysWhy) {
    EXPECT_THROW((void)load_api_keys("/nonexistent/keys.toml"), Mistakes);
    EXPECT_THROW((void)load_api_keys("/"), Mistakes);
}

// Any bytes: keys or mistakes.
TEST(KeysFile, AnyMutationIsReadOrReported) {
    const auto seed = std::random_device{}();
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random{seed};
    const std::string base = key("label = 'alice'\nsecret = '0123456789abcdef'\n") + key("label = 'b'\nsha256 = '" + kDigest + "'\n");
    int num_refused = 0;
    for (int round = 0; round < 500; ++round) {
        std::string text = base;
        for (unsigned edits = 1 + random() % 3; edits > 0; --edits) {
            const std::size_t at = random() % text.size();
            if (random() % 2 == 0)
                text[at] = static_cast<char>(random());
            else
                text.erase(at, 1 + random() % 5) += '\n';
        }
        const std::string said = complaint(text);
        num_refused += !said.empty();
        if (!said.empty()) EXPECT_NE(said.find("keys.toml"), std::string::npos) << text;
    }
    EXPECT_GT(num_refused, 50);
}

}  // namespace
}  // namespace config
