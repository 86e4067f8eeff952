#include "daemon/metrics/feeds.hpp"
#include "daemon/metrics/process_figures.hpp"
#include "daemon/metrics/registry.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <thread>

namespace metrics {
namespace {

/// The labels of a family as the table has them: "model,api".
std::string labels_of(const std::string& name) {
    std::string out;
    for (const FamilyRow& family : families()) {
        if (name != "assay_" + std::string{family.name}) continue;
        if (family.of_model) out = "model";
        for (const Label& label : family.labels)
            out += (out.empty() ? "" : ",") + std::string{label.name};
    }
    return out;
}

/// "name type labels" for every family that is exported.
std::string family_list(const std::string& text) {
    std::map<std::string, std::string> types;
    std::istringstream lines{text};
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words{line};
        std::string hash, keyword, name, type;
        if (!line.starts_with("# TYPE ")) continue;
        words >> hash >> keyword >> name >> type;
        types[name] = type;
    }
    std::string out;
    for (const auto& [name, type] : types) {
        const std::string labels = labels_of(name);
        out += name + " " + type + (labels.empty() ? "" : " " + labels) + "\n";
    }
    return out;
}

std::string read_file(const std::string& path) {
    std::ifstream file{path};
    return {std::istreambuf_iterator<char>{file}, {}};
}

/// The value of one series, or "none".
std::string value_of(const std::string& text, const std::string& series) {
    const auto at = text.find("\n" + series + " ");
    if (at == std::string::npos) return "none";
    const auto begin = at + series.size() + 2;
    return text.substr(begin, text.find('\n', begin) - begin);
}

TEST(Metrics, NamesAndTypesAreThoseOfTheGoldenList) {
    Registry registry;
    EXPECT_EQ(family_list(registry.render()),
              read_file(ASSAY_SOURCE_DIR "/tests/daemon/metrics/families.golden"))
        << "names are an interface: operators' dashboards hold them";
}

TEST(Metrics, EverySeriesIsThereFromTheStartAndZero) {
    Registry registry;
    registry.set_model("m");
    const std::string text = registry.render();
    EXPECT_EQ(
        value_of(
            text,
            R"(assay_requests_total{model="m",api="chat",transport="sse",outcome="deadline"})"),
        "0");
    EXPECT_EQ(value_of(text, R"(assay_kv_blocks{state="cached"})"), "0");
    EXPECT_EQ(value_of(text, R"(assay_time_to_first_token_seconds_bucket{model="m",le="0.64"})"),
              "0");
    EXPECT_EQ(value_of(text, R"(assay_time_to_first_token_seconds_count{model="m"})"), "0");
}

TEST(Metrics, TheSetDoesNotDependOnWhatHappened) {
    Registry fresh, used;
    Server server{used};
    Engine engine{used};
    server.requests(Api::chat, Transport::http, Outcome::error).add();
    server.inter_token_latency_seconds.observe(0.01);
    engine.kv_blocks_used.set(4);
    EXPECT_EQ(family_list(fresh.render()), family_list(used.render()));
}

TEST(Metrics, FewerThanFifteenHundredSeries) {
    Registry registry;
    registry.export_vllm_aliases(true);
    const std::string text = registry.render();
    std::istringstream lines{text};
    int num_series = 0;
    for (std::string line; std::getline(lines, line);) num_series += !line.starts_with('#');
    EXPECT_LT(num_series, 1500);
}

TEST(Metrics, CountsReachTheirOwnSeries) {
    Registry registry;
    registry.set_model("m");
    Server server{registry};
    Engine engine{registry};
    server.requests(Api::completions, Transport::sse, Outcome::stop).add(3);
    server.rejected(Rejection::draining).add();
    server.connections(Transport::ws).add(2);
    server.connections(Transport::ws).add(-1);
    server.stream_stall_nanoseconds.add(1'500'000'000);
    engine.step_decode_seconds.observe(0.0001);
    engine.prompt_tokens_prefix_hit.add(7);
    const std::string text = registry.render();
    EXPECT_EQ(
        value_of(
            text,
            R"(assay_requests_total{model="m",api="completions",transport="sse",outcome="stop"})"),
        "3");
    EXPECT_EQ(value_of(text, R"(assay_requests_rejected_total{reason="draining"})"), "1");
    EXPECT_EQ(value_of(text, R"(assay_connections{transport="ws"})"), "1");
    EXPECT_EQ(value_of(text, "assay_stream_stall_seconds_total"), "1.5");
    EXPECT_EQ(value_of(text, R"(assay_step_duration_seconds_count{phase="decode"})"), "1");
    EXPECT_EQ(value_of(text, R"(assay_step_duration_seconds_count{phase="prefill"})"), "0");
    EXPECT_EQ(value_of(text, R"(assay_prompt_tokens_total{model="m",source="prefix_hit"})"), "7");
}

TEST(Metrics, EveryFeedHasASeriesOfItsOwn) {
    Registry registry;
    Engine e{registry};
    const std::set<const void*> gauges = {
        &e.requests_running, &e.requests_waiting, &e.kv_usage_ratio,      &e.kv_blocks_used,
        &e.kv_blocks_cached, &e.kv_blocks_free,   &e.kv_block_size_tokens};
    EXPECT_EQ(gauges.size(), 7U);
    std::set<const void*> requests;
    Server s{registry};
    for (int api = 0; api < 3; ++api)
        for (int transport = 0; transport < 3; ++transport)
            for (int outcome = 0; outcome < 8; ++outcome)
                requests.insert(&s.requests(static_cast<Api>(api),
                                            static_cast<Transport>(transport),
                                            static_cast<Outcome>(outcome)));
    EXPECT_EQ(requests.size(), 72U);
}

TEST(Metrics, BucketsAreInclusiveAndCumulative) {
    Registry registry;
    Histogram& histogram = registry.histogram(Family::batch_sequences);
    for (const double value : {1.0, 2.0, 2.5, 5000.0}) histogram.observe(value);
    const std::string text = registry.render();
    EXPECT_EQ(value_of(text, R"(assay_batch_sequences_bucket{le="1"})"), "1");
    EXPECT_EQ(value_of(text, R"(assay_batch_sequences_bucket{le="2"})"), "2");
    EXPECT_EQ(value_of(text, R"(assay_batch_sequences_bucket{le="4"})"), "3");
    EXPECT_EQ(value_of(text, R"(assay_batch_sequences_bucket{le="1024"})"), "3");
    EXPECT_EQ(value_of(text, R"(assay_batch_sequences_bucket{le="+Inf"})"), "4");
    EXPECT_EQ(value_of(text, "assay_batch_sequences_count"), "4");
    EXPECT_EQ(value_of(text, "assay_batch_sequences_sum"), "5005.5");
}

TEST(Metrics, WhatMakesNoSenseIsCountedAndSpoilsNothing) {
    Registry registry;
    const double nan = std::numeric_limits<double>::quiet_NaN();
    registry.counter(Family::preemptions_total).add(-5);
    registry.gauge(Family::kv_cache_usage_ratio).set(nan);
    registry.histogram(Family::batch_tokens).observe(nan);
    registry.histogram(Family::batch_tokens).observe(-3);
    registry.set_series(Family::verification_state, {"quant", "p"}, nan);
    const std::string text = registry.render();
    EXPECT_EQ(value_of(text, "assay_preemptions_total"), "0");
    EXPECT_EQ(value_of(text, "assay_kv_cache_usage_ratio"), "0");
    EXPECT_EQ(value_of(text, "assay_batch_tokens_count"), "1");  // the negative one, as 0
    EXPECT_EQ(value_of(text, "assay_batch_tokens_sum"), "0");
    EXPECT_EQ(value_of(text, "assay_metrics_errors_total"), "5");
    std::string lower = text;
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    EXPECT_EQ(lower.find(" nan"), std::string::npos);
}

TEST(Metrics, OpenLabelsAreBoundedAndCanBeCleared) {
    Registry registry;
    for (std::size_t i = 0; i < Registry::kMaxOpenSeries + 10; ++i)
        registry.set_series(Family::device_memory_bytes, {"cuda:0", "kind" + std::to_string(i)}, 1);
    std::string text = registry.render();
    EXPECT_EQ(value_of(text, R"(assay_device_memory_bytes{device="cuda:0",kind="kind127"})"), "1");
    EXPECT_EQ(value_of(text, R"(assay_device_memory_bytes{device="cuda:0",kind="kind128"})"),
              "none");
    EXPECT_EQ(value_of(text, "assay_metrics_errors_total"), "10");
    registry.clear_series(Family::device_memory_bytes);
    registry.add_series(Family::device_memory_bytes, {"cpu", "kv"}, 5);
    registry.add_series(Family::device_memory_bytes, {"cpu", "kv"}, 2);
    text = registry.render();
    EXPECT_EQ(value_of(text, R"(assay_device_memory_bytes{device="cpu",kind="kv"})"), "7");
    EXPECT_EQ(value_of(text, R"(assay_device_memory_bytes{device="cuda:0",kind="kind1"})"), "none");
}

TEST(Metrics, LabelValuesAreEscaped) {
    Registry registry;
    registry.set_model("a\"b\\c");
    EXPECT_EQ(value_of(registry.render(), R"(assay_requests_running{model="a\"b\\c"})"), "0");
}

TEST(Metrics, CloseCodesOfClientsMakeNoSeriesWithoutEnd) {
    Registry registry;
    Server server{registry};
    for (int code = 3000; code < 5000; ++code) server.ws_closed(code);
    server.ws_closed(1000);
    const std::string text = registry.render();
    EXPECT_EQ(value_of(text, R"(assay_ws_close_total{code="other"})"), "2000");
    EXPECT_EQ(value_of(text, R"(assay_ws_close_total{code="1000"})"), "1");
}

TEST(Metrics, VllmNamesAreThereOnlyWhenAskedForAndAgree) {
    Registry registry;
    registry.set_model("m");
    registry.gauge(Family::requests_running).set(3);
    EXPECT_EQ(registry.render().find("vllm:"), std::string::npos);
    registry.export_vllm_aliases(true);
    EXPECT_EQ(value_of(registry.render(), R"(vllm:num_requests_running{model="m"})"), "3");
}

TEST(Metrics, ScrapingChangesNothingAndRunsBesideCounting) {
    Registry registry;
    Engine engine{registry};
    std::thread counting{[&] {
        for (int i = 0; i < 50'000; ++i) {
            engine.generation_tokens.add();
            engine.batch_tokens.observe(3);
        }
    }};
    for (int i = 0; i < 20; ++i) {
        const std::string text = registry.render();
        EXPECT_EQ(value_of(text, R"(assay_batch_tokens_bucket{le="+Inf"})"),
                  value_of(text, "assay_batch_tokens_count"));
    }
    counting.join();
    EXPECT_EQ(value_of(registry.render(), "assay_batch_tokens_count"), "50000");
    EXPECT_EQ(value_of(registry.render(), "assay_batch_tokens_sum"), "150000");
}

TEST(PluginSeries, AreExportedWithTheirPluginAndBounded) {
    Registry registry;
    PluginSeries& series = registry.plugins();
    std::string why;
    const auto a = series.find_or_make(Type::counter, "cuda", "device/1", "assay_plugin_copies_total", "Copies.", why);
    const auto b = series.find_or_make(Type::counter, "cpu", "device/1", "assay_plugin_copies_total", "Other words.", why);
    const auto g = series.find_or_make(Type::gauge, "cpu", "device/1", "assay_plugin_heat_celsius", "Heat.", why);
    ASSERT_TRUE(a != 0 && b != 0 && g != 0) << why;
    EXPECT_EQ(series.find_or_make(Type::counter, "cuda", "device/1", "assay_plugin_copies_total", "", why), a);
    EXPECT_EQ(series.find_or_make(Type::gauge, "x", "device/1", "assay_plugin_copies_total", "", why), 0U);
    EXPECT_NE(why.find("is a counter of plugin cuda"), std::string::npos) << why;
    series.add(a, 3);
    series.add(a, -1);  // a counter does not go down
    series.add(b, 0.5);
    series.set(a, 99);  // nor is it set
    series.set(g, 40);
    series.add(g, -2);
    series.add(0, 1);
    series.add(9999, 1);
    const std::string text = registry.render();
    for (const char* line : {"# TYPE assay_plugin_copies_total counter\n", "# HELP assay_plugin_copies_total Copies.\n",
                             "assay_plugin_copies_total{plugin=\"cuda\",kind=\"device/1\"} 3\n",
                             "assay_plugin_copies_total{plugin=\"cpu\",kind=\"device/1\"} 0.5\n",
                             "assay_plugin_heat_celsius{plugin=\"cpu\",kind=\"device/1\"} 38\n"})
        EXPECT_NE(text.find(line), std::string::npos) << line << text;
    EXPECT_EQ(text.find("Other words."), std::string::npos);
    std::uint32_t made = 3;
    while (series.find_or_make(Type::gauge, "p", "device/1", "assay_plugin_n" + std::to_string(made), "", why) != 0) ++made;
    EXPECT_EQ(made, PluginSeries::kMaxSeries);
}

TEST(ProcessFigures, AreThoseOfThisProcess) {
    const auto figures = read_process_figures();
    ASSERT_TRUE(figures);
    EXPECT_GT(figures->resident_bytes, 1e6);
    EXPECT_GE(figures->virtual_bytes, figures->resident_bytes);
    EXPECT_GE(figures->num_threads, 1);
    EXPECT_GE(figures->num_open_fds, 3);
    const std::ifstream another{"/proc/self/stat"};
    EXPECT_EQ(read_process_figures()->num_open_fds, figures->num_open_fds + 1);
    EXPECT_GT(figures->start_seconds, 1.5e9);
}

}  // namespace
}  // namespace metrics
