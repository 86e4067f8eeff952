#include "daemon/assay/tally.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

namespace {

using assay::Tally;

TEST(Tally, NothingComparedIsNoDefect) {
    const Tally tally;
    EXPECT_TRUE(tally.passed());
    EXPECT_EQ(tally.count(), 0);
}

TEST(Tally, EightSigmasPassAndMoreDoNot) {
    Tally inside, outside;
    inside.add(1.0F + 0x1p-8F, {1.0, 0x1p-11}, 3, 4);
    EXPECT_TRUE(inside.passed());
    EXPECT_DOUBLE_EQ(inside.figure(), 1.0);
    outside.add(1.0F + 0x1p-7F, {1.0, 0x1p-11}, 3, 4);
    EXPECT_FALSE(outside.passed());
    EXPECT_NE(outside.what().find("row 3, element 4: expected 1 "), std::string::npos) << outside.what();
}

TEST(Tally, ABiasThatEveryOutputHasFailsAlthoughNoneIsFarOff) {
    Tally tally;
    for (int i = 0; i < 100; ++i) tally.add(1.0F + 0x1p-9F, {1.0, 0x1p-11}, 0, i);  // 4 sigma, all of them
    EXPECT_FALSE(tally.passed());
    EXPECT_DOUBLE_EQ(tally.figure(), 2.0);
}

TEST(Tally, SentinelsNaNAndInfinityFail) {
    for (const float bad : {std::bit_cast<float>(assay::kSentinel), std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity()}) {
        Tally tally;
        tally.add(bad, {1.0, 1.0}, 0, 0);
        EXPECT_FALSE(tally.passed()) << bad;
        EXPECT_NE(tally.what(), "");
    }
    Tally unwritten;
    unwritten.add(std::bit_cast<float>(assay::kSentinel), {1.0, 1.0}, 7, 2);
    EXPECT_EQ(unwritten.what(), "row 7, element 2 was not written");
}

TEST(Tally, ExactOutputsMustBeExact) {
    Tally tally;
    tally.add(2.0F, {2.0, 0}, 0, 0);
    EXPECT_TRUE(tally.passed());
    tally.add(std::nextafter(2.0F, 3.0F), {2.0, 0}, 0, 1);
    EXPECT_FALSE(tally.passed());
}

TEST(Tally, MergedTalliesAreOneTally) {
    const auto seed = std::random_device{}();
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 rng{seed};
    std::normal_distribution<float> normal;
    Tally whole, first, second;
    for (int i = 0; i < 200; ++i) {
        const float x = normal(rng);
        whole.add(x, {0.0, 1.0}, i, 0);
        (i < 77 ? first : second).add(x, {0.0, 1.0}, i, 0);
    }
    first.merge(second);
    EXPECT_EQ(first.count(), whole.count());
    EXPECT_NEAR(first.figure(), whole.figure(), 1e-12);
}

}  // namespace
