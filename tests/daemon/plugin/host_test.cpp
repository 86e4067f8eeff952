#include "daemon/plugin/host.hpp"

#include "daemon/plugin/lanes.hpp"
#include "daemon/plugin/log_queue.hpp"
#include "sdk/cxx/plugin.hpp"

#include <gtest/gtest.h>

#include <condition_variable>
#include <thread>

namespace {

using plugin::Host;
using plugin::HostServices;
using plugin::LogLine;
using plugin::LogQueue;

template <class Table>
const Table* service(const Host& host, const char* id) {
    return static_cast<const Table*>(host.abi()->service(host.abi(), id));
}

TEST(LogQueue, LinesArriveInOrderWithTheirPlugin) {
    std::vector<LogLine> lines;
    {
        LogQueue queue{[&](const LogLine& line) { lines.push_back(line); }};
        for (int i = 0; i < 100; ++i) queue.write(ASSAY_INFO, "one", std::to_string(i));
        queue.write(ASSAY_ERROR, "two", "last");
    }
    ASSERT_EQ(lines.size(), 101u);
    for (int i = 0; i < 100; ++i)
        EXPECT_EQ(lines[static_cast<std::size_t>(i)].text, std::to_string(i));
    EXPECT_EQ(lines[0].plugin, "one");
    EXPECT_EQ(lines[100].plugin, "two");
    EXPECT_EQ(lines[100].level, ASSAY_ERROR);
}

TEST(LogQueue, AFullQueueDropsCountsAndSaysSo) {
    std::mutex mutex;
    std::condition_variable changed;
    bool inside = false, release = false;
    std::vector<std::string> texts;
    std::uint64_t dropped = 0;
    {
        LogQueue queue{[&](const LogLine& line) {
                           std::unique_lock lock{mutex};
                           texts.push_back(line.text);
                           inside = true;
                           changed.notify_all();
                           changed.wait(lock, [&] { return release; });
                       },
                       4};
        queue.write(ASSAY_INFO, "p", "first");
        {
            std::unique_lock lock{mutex};
            changed.wait(lock, [&] { return inside; });
        }
        for (int i = 0; i < 10; ++i) queue.write(ASSAY_INFO, "p", "more");  // none of them blocks
        dropped = queue.num_dropped();
        const std::scoped_lock lock{mutex};
        release = true;
        changed.notify_all();
    }
    EXPECT_EQ(dropped, 6u);
    ASSERT_EQ(texts.size(), 6u);
    EXPECT_EQ(texts[5], "6 lines of plugins dropped: the log is slower than they write");
}

TEST(LogQueue, TextIsCutBetweenCharactersAndKeptToOneLine) {
    std::vector<LogLine> lines;
    {
        LogQueue queue{[&](const LogLine& line) { lines.push_back(line); }};
        std::string umlauts = "a";
        for (int i = 0; i < 1000; ++i) umlauts += "\u00fc";
        queue.write(ASSAY_INFO, "p", umlauts);
        queue.write(ASSAY_INFO, "p", "one\ntwo\x1b[31m");
    }
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_EQ(lines[0].text.size(), 999u);
    EXPECT_EQ(lines[1].text, "one\\ntwo\\x1b[31m");
}

TEST(LogQueue, ManyWritersLoseNothingThatWasTaken) {
    std::map<std::string, int> seen;
    std::atomic<int> taken{0};
    {
        LogQueue queue{[&](const LogLine& line) {
                           if (line.plugin != "host") ++seen[line.plugin];
                       },
                       64};
        std::vector<std::thread> writers;
        for (int w = 0; w < 4; ++w)
            writers.emplace_back([&, w] {
                for (int i = 0; i < 2000; ++i)
                    if (queue.write(ASSAY_INFO, "w" + std::to_string(w), "line")) ++taken;
            });
        for (std::thread& writer : writers) writer.join();
    }
    int total = 0;
    for (const auto& [plugin, count] : seen) total += count;
    EXPECT_EQ(total, taken);
    EXPECT_GT(total, 0);
}

TEST(Host, OffersWhatTheDaemonHas) {
    const Host bare{"p", "quant", HostServices{}};
    EXPECT_EQ(service<assay_log>(bare, ASSAY_SERVICE_LOG), nullptr);
    EXPECT_EQ(service<assay_parallel>(bare, ASSAY_SERVICE_PARALLEL), nullptr);
    EXPECT_NE(service<assay_memory>(bare, ASSAY_SERVICE_MEMORY), nullptr);
    EXPECT_EQ(service<void>(bare, "teleport/1"), nullptr);
    EXPECT_EQ(service<void>(bare, nullptr), nullptr);

    plugin::WorkerLanes lanes{{.width = 2}};
    HostServices services;
    services.control_lanes = lanes.abi();
    const Host host{"p", "quant", services};
    const auto* parallel = service<assay_parallel>(host, ASSAY_SERVICE_PARALLEL);
    ASSERT_NE(parallel, nullptr);
    EXPECT_EQ(parallel->control_lanes(host.abi()), lanes.abi());
}

TEST(Host, LinesCarryThePluginsId) {
    std::vector<LogLine> lines;
    {
        LogQueue queue{[&](const LogLine& line) { lines.push_back(line); }};
        HostServices services;
        services.log = &queue;
        const Host one{"one", "quant", services}, two{"two", "device", services};
        sdk::log(one.abi(), ASSAY_WARN, "hello");
        sdk::log(two.abi(), ASSAY_INFO, "there");
        service<assay_log>(one, ASSAY_SERVICE_LOG)->write(one.abi(), ASSAY_INFO, nullptr);
    }
    ASSERT_EQ(lines.size(), 3u);
    EXPECT_EQ(lines[0].plugin + ": " + lines[0].text, "one: hello");
    EXPECT_EQ(lines[1].plugin + ": " + lines[1].text, "two: there");
    EXPECT_EQ(lines[2].text, "");
}

TEST(Host, MemoryIsAlignedCountedAndBounded) {
    HostServices services;
    services.memory_budget_bytes = 1000;
    const Host host{"greedy", "quant", services};
    const auto* memory = service<assay_memory>(host, ASSAY_SERVICE_MEMORY);
    void *a = nullptr, *b = nullptr;
    assay_error err = sdk::make_error();
    ASSERT_EQ(memory->alloc(host.abi(), nullptr, ASSAY_SPACE_HOST, 600, &a, &err), ASSAY_OK);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a) % 256, 0u);
    EXPECT_EQ(host.memory_bytes(), 600u);
    EXPECT_EQ(memory->alloc(host.abi(), nullptr, ASSAY_SPACE_HOST, 401, &b, &err), ASSAY_NO_MEMORY);
    EXPECT_EQ(b, nullptr);
    EXPECT_STREQ(err.text,
                 "memory/1: 401 bytes wanted, plugin greedy holds 600 of its budget of 1000");
    EXPECT_EQ(memory->alloc(host.abi(), nullptr, ASSAY_SPACE_HOST, UINT64_MAX, &b, &err),
              ASSAY_NO_MEMORY);
    memory->free(host.abi(), nullptr, ASSAY_SPACE_HOST, &err);  // not ours: ignored
    EXPECT_EQ(host.memory_bytes(), 600u);
    memory->free(host.abi(), nullptr, ASSAY_SPACE_HOST, a);
    EXPECT_EQ(host.memory_bytes(), 0u);
    ASSERT_EQ(memory->alloc(host.abi(), nullptr, ASSAY_SPACE_HOST, 1000, &b, &err), ASSAY_OK);
    // What is not given back goes with the host; the leak checker of the asan build watches.
}

TEST(Host, DeviceMemoryGoesThroughTheDaemon) {
    HostServices services;
    const Host without{"p", "quant", services};
    void* out = nullptr;
    assay_device_ref dev{};
    dev.size = sizeof dev;
    const auto alloc = [&](const Host& host) {
        return service<assay_memory>(host, ASSAY_SERVICE_MEMORY)
            ->alloc(host.abi(), &dev, ASSAY_SPACE_DEVICE, 8, &out, nullptr);
    };
    EXPECT_EQ(alloc(without), ASSAY_UNSUPPORTED);
    static char place[8];
    int freed = 0;
    services.device_memory.alloc = [](const assay_device_ref&, assay_space, std::uint64_t,
                                      void** at, assay_error*) {
        *at = place;
        return assay_status{ASSAY_OK};
    };
    services.device_memory.free = [&](const assay_device_ref&, assay_space, void* at) {
        freed += at == place;
    };
    const Host with{"p", "quant", services};
    ASSERT_EQ(alloc(with), ASSAY_OK);
    EXPECT_EQ(out, place);
    service<assay_memory>(with, ASSAY_SERVICE_MEMORY)
        ->free(with.abi(), &dev, ASSAY_SPACE_DEVICE, out);
    EXPECT_EQ(freed, 1);
    EXPECT_EQ(with.memory_bytes(), 0u);
}

class Sink final : public plugin::MetricsSink {
public:
    std::uint32_t counter(const std::string& plugin, const std::string& kind,
                          const std::string& name, const std::string&, std::string&) override {
        made.push_back("counter " + plugin + ' ' + kind + ' ' + name);
        return static_cast<std::uint32_t>(made.size());
    }
    std::uint32_t gauge(const std::string&, const std::string&, const std::string&,
                        const std::string&, std::string& why) override {
        why = "no room";
        return 0;
    }
    void add(std::uint32_t id, double value) noexcept override { sum += id * value; }
    void set(std::uint32_t, double) noexcept override { ++sets; }

    std::vector<std::string> made;
    double sum = 0;
    int sets = 0;
};

TEST(Host, MetricsAreLabelledAndCheckedByName) {
    Sink sink;
    std::vector<LogLine> lines;
    {
        LogQueue queue{[&](const LogLine& line) { lines.push_back(line); }};
        HostServices services;
        services.log = &queue;
        services.metrics = &sink;
        const Host host{"cpu-flash", "attention", services};
        const auto* metrics = service<assay_metrics>(host, ASSAY_SERVICE_METRICS);
        std::uint32_t id = 99;
        EXPECT_EQ(metrics->counter(host.abi(), "assay_plugin_rows_total", "rows", &id), ASSAY_OK);
        EXPECT_EQ(id, 1u);
        metrics->add(host.abi(), id, 2.5);
        EXPECT_EQ(metrics->counter(host.abi(), "rows", "rows", &id), ASSAY_INVALID);
        EXPECT_EQ(id, 0u);
        metrics->add(host.abi(), id, 1);  // the refused one counts nowhere
        EXPECT_EQ(metrics->gauge(host.abi(), "assay_plugin_depth_items", "x", &id), ASSAY_INVALID);
    }
    EXPECT_EQ(sink.made,
              std::vector<std::string>{"counter cpu-flash attention assay_plugin_rows_total"});
    EXPECT_EQ(sink.sum, 2.5);
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_EQ(lines[1].text, "metric \"assay_plugin_depth_items\" refused: no room");
}

}  // namespace
