#include "daemon/server/gate.hpp"

#include "daemon/server/ids.hpp"

#include <gtest/gtest.h>

namespace server {
namespace {

Options with_key() {
    Options options;
    options.api_keys = {{"alice", "sk-1"}, {"bob", "sk-2"}};
    return options;
}

TEST(Gate, TakesABearerKeyInAnyCaseOfTheScheme) {
    EXPECT_EQ(find_key(with_key(), "Bearer sk-2", ""), "bob");
    EXPECT_EQ(find_key(with_key(), "bearer  sk-1", ""), "alice");
    EXPECT_EQ(find_key(with_key(), "Bearer sk-3", ""), std::nullopt);
    EXPECT_EQ(find_key(with_key(), "Bearer sk-11", ""), std::nullopt);
    EXPECT_EQ(find_key(with_key(), "Bearer ", ""), std::nullopt);
    EXPECT_EQ(find_key(with_key(), "Basic sk-1", ""), std::nullopt);
    EXPECT_EQ(find_key(with_key(), "", ""), std::nullopt);
    EXPECT_EQ(find_key(Options{}, "", ""), "");
}

TEST(Gate, TakesAKeyInTheSubprotocolOnlyWhereAllowed) {
    Options options = with_key();
    constexpr auto kOffered = "realtime, openai-insecure-api-key.sk-1";
    EXPECT_EQ(find_key(options, "", kOffered), std::nullopt);
    options.key_in_subprotocol = true;
    EXPECT_EQ(find_key(options, "", kOffered), "alice");
}

TEST(Gate, SelectsTheFirstSubprotocolThatHoldsNoKey) {
    EXPECT_EQ(choose_subprotocol("openai-insecure-api-key.sk-1, realtime, other"), "realtime");
    EXPECT_EQ(choose_subprotocol("openai-insecure-api-key.sk-1"), "");
    EXPECT_EQ(choose_subprotocol(""), "");
}

TEST(Gate, AllowsNoOriginTheOwnHostAndWhatIsListed) {
    Options options;
    options.allowed_origins = {"https://app.example"};
    EXPECT_TRUE(is_origin_allowed(options, "", "127.0.0.1:8080"));
    EXPECT_TRUE(is_origin_allowed(options, "http://127.0.0.1:8080", "127.0.0.1:8080"));
    EXPECT_TRUE(is_origin_allowed(options, "https://APP.example", "127.0.0.1:8080"));
    EXPECT_FALSE(is_origin_allowed(options, "http://127.0.0.1:9999", "127.0.0.1:8080"));
    EXPECT_FALSE(is_origin_allowed(options, "https://app.example.evil", "127.0.0.1:8080"));
    EXPECT_FALSE(is_origin_allowed(options, "null", "127.0.0.1:8080"));
    EXPECT_FALSE(is_origin_allowed(options, "http://", ""));
}

TEST(Gate, WithoutKeysAnswersUnderLoopbackAndConfiguredNamesOnly) {
    Options options;
    options.allowed_hosts = {"models.lan"};
    for (const char* host :
         {"localhost:8080", "127.0.0.1", "[::1]:8080", "127.1.2.3:1", "MODELS.lan:80"})
        EXPECT_TRUE(is_host_allowed(options, host)) << host;
    for (const char* host : {"evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80"})
        EXPECT_FALSE(is_host_allowed(options, host)) << host;
    EXPECT_TRUE(is_host_allowed(with_key(), "evil.example"));
}

TEST(Ids, AreLongAndDiffer) {
    const std::string a = random_id("resp_");
    EXPECT_EQ(a.size(), 5U + 32U);
    EXPECT_NE(a, random_id("resp_"));
}

TEST(Ids, SecretsCompareWhole) {
    EXPECT_TRUE(is_same_secret("abc", "abc"));
    EXPECT_FALSE(is_same_secret("abcabc", "abc"));
    EXPECT_FALSE(is_same_secret("", ""));
    EXPECT_FALSE(is_same_secret("ab", "abc"));
}

}  // namespace
}  // namespace server
