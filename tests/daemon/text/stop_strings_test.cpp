#include "daemon/text/stop_strings.hpp"

#include <gtest/gtest.h>

#include <random>

namespace {

struct Outcome {
    std::string text;
    std::optional<std::size_t> found;
    bool operator==(const Outcome&) const = default;
};

/// The definition: the first place where a stop string ends, and there the longest.
Outcome find_plainly(const std::string& text, const std::vector<std::string>& stops) {
    for (std::size_t end = 1; end <= text.size(); ++end) {
        std::optional<std::size_t> best;
        for (std::size_t i = 0; i < stops.size(); ++i)
            if (!stops[i].empty() && std::string_view{text}.substr(0, end).ends_with(stops[i]) &&
                (!best || stops[i].size() > stops[*best].size()))
                best = i;
        if (best) return {text.substr(0, end - stops[*best].size()), best};
    }
    return {text, std::nullopt};
}

TEST(StopStrings, HoldsBackWhatMayBecomeOne) {
    text::StopStrings stops{{"END"}};
    EXPECT_EQ(stops.push("text E").emit, "text ");
    EXPECT_EQ(stops.push("N").emit, "");
    EXPECT_EQ(stops.push("T").emit, "ENT");
    EXPECT_EQ(stops.push("EN").emit, "");
    const auto step = stops.push("D more");
    EXPECT_EQ(step.emit, "");
    EXPECT_EQ(step.found, 0u);
    EXPECT_TRUE(stops.is_stopped());
    EXPECT_EQ(stops.push("ignored").emit, "");
    EXPECT_EQ(stops.flush(), "");
}

TEST(StopStrings, FlushGivesWhatWasHeldBack) {
    text::StopStrings stops{{"\n\nUser:"}};
    EXPECT_EQ(stops.push("hi\n\nUse").emit, "hi");
    EXPECT_EQ(stops.flush(), "\n\nUse");
    EXPECT_FALSE(stops.is_stopped());
}

TEST(StopStrings, TheFirstToEndWinsAndOfThoseTheLongest) {
    text::StopStrings first{{"abcd", "bc"}};
    const auto step = first.push("xabcd");
    EXPECT_EQ(step.found, 1u);
    EXPECT_EQ(step.emit, "xa");
    text::StopStrings longest{{"c", "abc", "bc"}};
    EXPECT_EQ(longest.push("xabc").found, 1u);
}

TEST(StopStrings, RepeatedBeginningsAreNotMissed) {
    text::StopStrings stops{{"aab"}};
    EXPECT_EQ(stops.push("aaa").emit, "a");
    const auto step = stops.push("b");
    EXPECT_EQ(step.found, 0u);
    EXPECT_EQ(step.emit, "");
}

TEST(StopStrings, EmptyOnesAreIgnored) {
    text::StopStrings stops{{"", "x"}};
    EXPECT_EQ(stops.push("abc").emit, "abc");
    EXPECT_EQ(stops.push("x").found, 1u);
    text::StopStrings none{{}};
    EXPECT_EQ(none.push("abc").emit, "abc");
}

TEST(StopStringsProperty, AgreesWithTheDefinitionHoweverTheTextIsCut) {
    const auto seed = std::random_device{}();
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 rng{seed};
    const auto random_string = [&](std::size_t max) {
        std::string s(rng() % (max + 1), 'a');
        for (char& c : s) c = static_cast<char>('a' + rng() % 3);
        return s;
    };
    int num_stopped = 0;
    for (int round = 0; round < 5000; ++round) {
        std::vector<std::string> stops(rng() % 4);
        for (std::string& stop : stops) stop = random_string(5);
        const std::string text = random_string(30);
        text::StopStrings matcher{stops};
        Outcome actual;
        for (std::size_t at = 0; at < text.size();) {
            const std::size_t n = 1 + rng() % 4;
            const auto step = matcher.push(std::string_view{text}.substr(at, n));
            ASSERT_FALSE(actual.found);
            actual.text += step.emit;
            actual.found = step.found;
            if (actual.found) break;
            at += n;
        }
        actual.text += matcher.flush();
        ASSERT_EQ(actual, find_plainly(text, stops)) << text;
        num_stopped += actual.found.has_value();
    }
    EXPECT_GT(num_stopped, 1000);
}

}  // namespace
