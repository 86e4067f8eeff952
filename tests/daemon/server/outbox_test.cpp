#include "daemon/server/session/outbox.hpp"

#include <gtest/gtest.h>

namespace server {
namespace {

TEST(Outbox, GivesEventsBackInOrderAndCountsTheirBytes) {
    Outbox outbox{100};
    outbox.push({"abc"});
    outbox.push({"de"});
    EXPECT_EQ(outbox.bytes(), 5U);
    EXPECT_EQ(outbox.pop(), "abc");
    EXPECT_EQ(outbox.pop(), "de");
    EXPECT_TRUE(outbox.empty());
    EXPECT_EQ(outbox.bytes(), 0U);
}

TEST(Outbox, MergesOnlyOverTheHighMark) {
    Outbox outbox{4};
    const auto serial = outbox.push({"[x]", 2});
    EXPECT_FALSE(outbox.merge(serial, "y"));  // three bytes wait: short enough
    outbox.push({"zz"});
    EXPECT_TRUE(outbox.merge(serial, "\"q"));
    EXPECT_TRUE(outbox.merge(serial, "r"));
    EXPECT_EQ(outbox.bytes(), 9U);
    EXPECT_EQ(outbox.pop(), "[x\\\"qr]");
}

TEST(Outbox, DoesNotMergeIntoWhatLeftOrTakesNothing) {
    Outbox outbox{0};
    const auto gone = outbox.push({"[a]", 2});
    EXPECT_EQ(outbox.pop(), "[a]");
    const auto closed = outbox.push({"[b]"});
    EXPECT_FALSE(outbox.merge(gone, "x"));
    EXPECT_FALSE(outbox.merge(closed, "x"));
    EXPECT_FALSE(outbox.merge(0, "x"));
    EXPECT_EQ(outbox.pop(), "[b]");
}

}  // namespace
}  // namespace server
