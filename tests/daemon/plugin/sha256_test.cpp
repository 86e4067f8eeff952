#include "daemon/plugin/sha256.hpp"

#include <gtest/gtest.h>

namespace {

using plugin::Sha256;
using plugin::sha256_hex;

// NIST, "Secure Hash Standard" example values; the first is of the empty message.
TEST(Sha256, PublishedExamples) {
    EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_EQ(sha256_hex("abc"),
              "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    EXPECT_EQ(sha256_hex(std::string(1'000'000, 'a')),
              "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// Every length around a block, cut everywhere, hashes as the whole does; no two lengths agree.
TEST(Sha256, HowTheMessageIsCutDoesNotMatter) {
    std::string last;
    for (std::size_t length = 0; length <= 130; ++length) {
        const std::string message(length, 'x');
        const std::string whole = sha256_hex(message);
        EXPECT_NE(whole, last) << "length " << length;
        last = whole;
        for (std::size_t cut = 0; cut <= length; ++cut) {
            Sha256 hash;
            hash.update(std::string_view{message}.substr(0, cut));
            hash.update(std::string_view{message}.substr(cut));
            ASSERT_EQ(hash.hex(), whole) << "length " << length << ", cut " << cut;
        }
    }
}

}  // namespace
