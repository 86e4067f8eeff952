#include "daemon/text/nfc.hpp"

#include "tests/daemon/text/golden_vocab.hpp"

#include <gtest/gtest.h>

namespace {

TEST(Nfc, AgreesWithTheReference) {
    const boost::json::value cases = golden::read_json("nfc.json");
    int num_changed = 0;
    for (const auto& c : cases.as_array()) {
        const std::string text = golden::to_string(c.at(0)), expected = golden::to_string(c.at(1));
        EXPECT_EQ(text::to_nfc(text), expected) << boost::json::serialize(c);
        if (text != expected) {
            ++num_changed;
            EXPECT_FALSE(text::is_nfc_for_sure(text)) << boost::json::serialize(c);
        }
        EXPECT_EQ(text::to_nfc(expected), expected);
    }
    EXPECT_GT(num_changed, 100);
}

TEST(Nfc, OrdinaryTextIsKnownToBeFine) {
    EXPECT_TRUE(text::is_nfc_for_sure("Grüße, 中文, русский, עברית, 😀"));
    EXPECT_FALSE(text::is_nfc_for_sure("e\u0301"));
    EXPECT_EQ(text::to_nfc("e\u0301"), "\u00E9");
    EXPECT_EQ(text::to_nfc("\u1112\u1161\u11AB"), "\uD55C");  // Hangul is computed
}

TEST(Nfc, IllFormedPartsAreKept) {
    EXPECT_EQ(text::to_nfc("e\u0301\xFF"
                           "e\xCC"),
              "\u00E9\xFF"
              "e\xCC");
}

}  // namespace
