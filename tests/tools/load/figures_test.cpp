#include "tools/load/figures.hpp"

#include <boost/json/parse.hpp>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <random>
#include <vector>

namespace {

using load::Figures;
using load::Histogram;

TEST(LoadHistogram, PercentilesAreWithinTwoPercentOfSortedValues) {
    const auto seed = std::random_device{}();
    SCOPED_TRACE(seed);
    std::mt19937_64 random{seed};
    std::lognormal_distribution<double> draw{15, 3};  // microseconds to minutes
    std::vector<std::int64_t> all(20'000);
    Histogram histogram;
    for (std::int64_t& value : all) {
        value = static_cast<std::int64_t>(draw(random));
        histogram.record(value);
    }
    std::sort(all.begin(), all.end());
    for (const double share : {0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0}) {
        const auto rank =
            std::max<std::size_t>(1, static_cast<std::size_t>(std::ceil(share * 20'000)));
        const double exact = static_cast<double>(all[rank - 1]) / 1e6;
        EXPECT_GE(histogram.percentile_ms(share), exact * 0.999) << share;
        EXPECT_LE(histogram.percentile_ms(share), exact * 1.02 + 1e-6) << share;
    }
    EXPECT_EQ(histogram.count(), all.size());
    EXPECT_DOUBLE_EQ(histogram.max_ms(), static_cast<double>(all.back()) / 1e6);
}

TEST(LoadHistogram, SmallAndNegativeTimesAreExactAndZero) {
    Histogram histogram;
    histogram.record(-5);
    histogram.record(63);
    EXPECT_EQ(histogram.percentile_ms(0.5), 0);
    EXPECT_DOUBLE_EQ(histogram.percentile_ms(1), 63e-6);
    EXPECT_EQ(Histogram{}.percentile_ms(0.5), 0);
}

Figures some_figures() {
    Figures figures;
    figures.seconds = 2;
    figures.num_deltas = 100;
    figures.num_tokens = 300;
    figures.num_frames = 200;
    figures.cpu_seconds = 0.001;
    figures.failures["server_overloaded"] = 3;
    figures.tokens_by_second = {100, 200};
    for (int i = 1; i <= 100; ++i) figures.ttft.record(i * 1'000'000);
    return figures;
}

TEST(LoadFigures, JsonHasRatesAndPercentiles) {
    const auto json = boost::json::parse(load::to_json(some_figures(), R"({"clients": 4})"));
    EXPECT_EQ(json.at("settings").at("clients").as_int64(), 4);
    EXPECT_EQ(json.at("throughput").at("events_per_s").to_number<double>(), 50);
    EXPECT_EQ(json.at("throughput").at("tokens_per_s").to_number<double>(), 150);
    EXPECT_EQ(json.at("requests").at("failed").at("server_overloaded").as_int64(), 3);
    EXPECT_NEAR(json.at("ttft_ms").at("p95").to_number<double>(), 95, 2);
    EXPECT_EQ(json.at("itl_ms").at("count").as_int64(), 0);
    EXPECT_EQ(json.at("own_cost").at("cpu_us_per_frame").to_number<double>(), 5);
    EXPECT_FALSE(json.as_object().contains("last_byte_ms"));
}

TEST(LoadFigures, PlotHasAPanelForEachAndEscapesItsTitle) {
    const std::string svg = load::to_svg(some_figures(), "a <b> & c");
    EXPECT_THAT(svg, testing::HasSubstr("a &lt;b> &amp; c"));
    EXPECT_THAT(svg, testing::HasSubstr("TTFT, ms (n = 100)"));
    EXPECT_THAT(svg, testing::HasSubstr("ITL, ms (n = 0)"));
    EXPECT_THAT(svg, testing::HasSubstr("tokens/s over time"));
    const auto count = [&](const std::string& word) {
        int n = 0;
        for (auto at = svg.find(word); at != std::string::npos; at = svg.find(word, at + 1)) ++n;
        return n;
    };
    EXPECT_EQ(count("<polyline"), 2);  // nothing to draw for ITL
    EXPECT_EQ(count("<rect"), 3);
    EXPECT_EQ(count("nan"), 0);
    EXPECT_TRUE(svg.ends_with("</svg>\n"));
}

}  // namespace
