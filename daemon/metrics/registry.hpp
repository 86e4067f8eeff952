#pragma once

#include "daemon/metrics/families.hpp"
#include "daemon/metrics/instruments.hpp"
#include "daemon/metrics/plugin_series.hpp"

#include <chrono>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace metrics {

/// Holds one instrument for each series of each family, all at zero from the start, so that what
/// is exported never depends on what has happened or on the configuration.
///
/// Instruments are looked up once, by whoever feeds them (see feeds.hpp), and live as long as the
/// registry. Any thread.
class Registry {
public:
    Registry();
    ~Registry();
    Registry(const Registry&) = delete;
    Registry& operator=(const Registry&) = delete;

    /// @param values  one index for each label of the family, in the table's order
    [[nodiscard]] Counter& counter(Family family, std::initializer_list<std::size_t> values = {});
    [[nodiscard]] Gauge& gauge(Family family, std::initializer_list<std::size_t> values = {});
    [[nodiscard]] Histogram& histogram(Family family,
                                       std::initializer_list<std::size_t> values = {});

    /// The label `model` of the families that have it: the served name.
    void set_model(std::string name);
    /// Whether the names known from vLLM are exported too.
    void export_vllm_aliases(bool on);

    /// Sets a series of a family with open labels, making it if there is none. At most
    /// kMaxOpenSeries a family; more are dropped and counted as a mistake. Takes a lock: for
    /// events, not for steps.
    void set_series(Family family, std::vector<std::string> label_values, double value);
    /// The same, adding to what is there.
    void add_series(Family family, std::vector<std::string> label_values, double delta);
    /// Forgets the series of a family with open labels, for a new state of plugins or plan.
    void clear_series(Family family);
    static constexpr std::size_t kMaxOpenSeries = 128;

    /// What plugins count, beside the table. Any thread.
    [[nodiscard]] PluginSeries& plugins() { return plugins_; }

    /// Everything in the Prometheus text format, with the process's own figures. Changes nothing,
    /// blocks nobody who counts.
    [[nodiscard]] std::string render() const;

private:
    friend class Exporter;
    struct OpenSeries {
        std::vector<std::string> values;
        double value = 0;
    };
    struct Slot {
        std::unique_ptr<Counter[]> counters;  // one of the three, [num_closed_series]
        std::unique_ptr<Gauge[]> gauges;
        std::unique_ptr<Histogram[]> histograms;
        std::vector<OpenSeries> open;  // guarded by mutex_
    };

    OpenSeries* find_series(Family family, std::vector<std::string>& label_values);

    std::vector<Slot> slots_;  // [kNumFamilies]
    Mistakes mistakes_{0};
    PluginSeries plugins_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    mutable std::mutex mutex_;
    std::string model_;
    bool vllm_aliases_ = false;
};

}  // namespace metrics
