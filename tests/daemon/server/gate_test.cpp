#include "daemon/server/gate.hpp"

#include "daemon/server/ids.hpp"
#include "daemon/server/keys.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

namespace server {
namespace {

Options with_key() {
    Options options;
    options.api_keys = {make_key("alice", "sk-1"), make_key("bob", "sk-2")};
    return options;
}

/// The label of the key, or "" for none.
std::string label_of(const Options& options, std::string_view authorization, std::string_view subprotocols = "") {
    const ApiKey* const key = find_key(options, authorization, subprotocols);
    return key == nullptr ? "" : key->label;
}

TEST(Gate, TakesABearerKeyInAnyCaseOfTheScheme) {
    EXPECT_EQ(label_of(with_key(), "Bearer sk-2"), "bob");
    EXPECT_EQ(label_of(with_key(), "bearer  sk-1"), "alice");
    for (const char* bad : {"Bearer sk-3", "Bearer sk-11", "Bearer sk-", "Bearer ", "Basic sk-1", ""})
        EXPECT_EQ(label_of(with_key(), bad), "") << bad;
    EXPECT_EQ(label_of(Options{}, "Bearer sk-1"), "");
    Options empty;  // a digest of nothing lets nobody in
    empty.api_keys = {make_key("nobody", "")};
    EXPECT_EQ(label_of(empty, "Bearer "), "");
    EXPECT_EQ(label_of(empty, ""), "");
}

TEST(Gate, TakesAKeyInTheSubprotocolOnlyWhereAllowed) {
    Options options = with_key();
    constexpr auto kOffered = "realtime, openai-insecure-api-key.sk-1";
    EXPECT_EQ(label_of(options, "", kOffered), "");
    options.key_in_subprotocol = true;
    EXPECT_EQ(label_of(options, "", kOffered), "alice");
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

TEST(Gate, HoldsKeysAsTheirSha256) {
    // FIPS 180-2, the example "abc".
    const KeyDigest digest = digest_of("abc");
    constexpr unsigned char kFirst[] = {0xba, 0x78, 0x16, 0xbf}, kLast[] = {0xf2, 0x00, 0x15, 0xad};
    EXPECT_TRUE(std::equal(std::begin(kFirst), std::end(kFirst), digest.begin()));
    EXPECT_TRUE(std::equal(std::begin(kLast), std::end(kLast), digest.end() - 4));
}

}  // namespace
}  // namespace server
