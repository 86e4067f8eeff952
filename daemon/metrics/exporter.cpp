// The only place that knows prometheus-cpp.
#include "daemon/metrics/process_figures.hpp"
#include "daemon/metrics/registry.hpp"

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace metrics {
namespace {

namespace prom = prometheus;

prom::MetricType prom_type(Type type) {
    switch (type) {
        case Type::counter:
            return prom::MetricType::Counter;
        case Type::gauge:
            return prom::MetricType::Gauge;
        case Type::histogram:
            return prom::MetricType::Histogram;
    }
    return prom::MetricType::Untyped;
}

/// The label values of a closed series, from its index (last label fastest).
std::vector<prom::ClientMetric::Label> closed_labels(const FamilyRow& row, std::size_t series) {
    std::vector<prom::ClientMetric::Label> out(row.labels.size());
    for (std::size_t i = row.labels.size(); i-- > 0;) {
        const Label& label = row.labels[i];
        out[i] = {std::string{label.name}, std::string{label.values[series % label.values.size()]}};
        series /= label.values.size();
    }
    return out;
}

void fill(prom::ClientMetric& metric, const Histogram& histogram, std::span<const double> bounds) {
    const Histogram::Snapshot snapshot = histogram.snapshot();
    std::uint64_t cumulative = 0;
    for (std::size_t i = 0; i < bounds.size(); ++i) {
        cumulative += snapshot.counts[i];
        metric.histogram.bucket.push_back({cumulative, bounds[i]});
    }
    // The serializer writes the bucket of +Inf from the count, so the two cannot disagree.
    metric.histogram.sample_count = cumulative + snapshot.counts.back();
    metric.histogram.sample_sum = snapshot.sum;
}

void append_process(std::vector<prom::MetricFamily>& out) {
    const auto figures = read_process_figures();
    if (!figures) return;
    const auto append = [&](const char* name, const char* help, Type type, double value) {
        prom::MetricFamily family;
        family.name = name;
        family.help = help;
        family.type = prom_type(type);
        prom::ClientMetric& metric = family.metric.emplace_back();
        (type == Type::counter ? metric.counter.value : metric.gauge.value) = value;
        out.push_back(std::move(family));
    };
    append("process_resident_memory_bytes", "Resident memory.", Type::gauge,
           figures->resident_bytes);
    append("process_virtual_memory_bytes", "Virtual memory.", Type::gauge, figures->virtual_bytes);
    append("process_cpu_seconds_total", "User and system time.", Type::counter,
           figures->cpu_seconds);
    append("process_start_time_seconds", "Start, since 1970.", Type::gauge, figures->start_seconds);
    append("process_threads", "Threads.", Type::gauge, figures->num_threads);
    append("process_open_fds", "Open file descriptors.", Type::gauge, figures->num_open_fds);
}

}  // namespace

/// A registry as prometheus-cpp sees it.
class Exporter : public prom::Collectable {
public:
    explicit Exporter(const Registry& registry) : registry_{registry} {}

    std::vector<prom::MetricFamily> Collect() const override {
        std::vector<prom::MetricFamily> out;
        out.reserve(kNumFamilies + 16);
        const std::lock_guard lock{registry_.mutex_};
        for (const FamilyRow& row : families()) out.push_back(collect(row));
        if (registry_.vllm_aliases_) {
            for (const Alias& alias : vllm_aliases()) {
                out.push_back(out[static_cast<std::size_t>(alias.family)]);
                out.back().name = alias.name;
            }
        }
        append_plugins(out);
        append_process(out);
        return out;
    }

private:
    void append_plugins(std::vector<prom::MetricFamily>& out) const {
        for (const PluginSeries::Row* row : registry_.plugins_.all()) {
            if (out.back().name != row->name) {
                prom::MetricFamily& family = out.emplace_back();
                family.name = row->name;
                family.help = row->help;
                family.type = prom_type(row->type);
            }
            prom::ClientMetric& metric = out.back().metric.emplace_back();
            metric.label = {{"plugin", row->plugin}, {"kind", row->kind}};
            (row->type == Type::counter ? metric.counter.value : metric.gauge.value) = row->value.value();
        }
    }

    prom::MetricFamily collect(const FamilyRow& row) const {
        prom::MetricFamily family;
        family.name = "assay_" + std::string{row.name};
        family.help = row.help;
        family.type = prom_type(row.type);
        const Registry::Slot& slot = registry_.slots_[static_cast<std::size_t>(row.family)];
        const std::size_t n = num_closed_series(row);
        for (std::size_t i = 0; i < n; ++i) {
            prom::ClientMetric metric = labelled(row, closed_labels(row, i));
            if (slot.counters)
                metric.counter.value = static_cast<double>(counter_value(row, slot, i)) * row.scale;
            if (slot.gauges) metric.gauge.value = gauge_value(row, slot, i);
            if (slot.histograms) fill(metric, slot.histograms[i], row.bounds);
            family.metric.push_back(std::move(metric));
        }
        for (const Registry::OpenSeries& series : slot.open) {
            std::vector<prom::ClientMetric::Label> labels;
            for (std::size_t i = 0; i < row.labels.size(); ++i)
                labels.push_back({std::string{row.labels[i].name}, series.values[i]});
            prom::ClientMetric metric = labelled(row, std::move(labels));
            (row.type == Type::counter ? metric.counter.value : metric.gauge.value) = series.value;
            family.metric.push_back(std::move(metric));
        }
        return family;
    }

    prom::ClientMetric labelled(const FamilyRow& row,
                                std::vector<prom::ClientMetric::Label> labels) const {
        prom::ClientMetric metric;
        if (row.of_model) metric.label.push_back({"model", registry_.model_});
        std::move(labels.begin(), labels.end(), std::back_inserter(metric.label));
        return metric;
    }

    std::uint64_t counter_value(const FamilyRow& row, const Registry::Slot& slot,
                                std::size_t i) const {
        if (row.family == Family::metrics_errors_total)
            return registry_.mistakes_.load(std::memory_order_relaxed);
        return slot.counters[i].value();
    }

    double gauge_value(const FamilyRow& row, const Registry::Slot& slot, std::size_t i) const {
        if (row.family == Family::uptime_seconds)
            return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                                 registry_.start_)
                .count();
        return slot.gauges[i].value();
    }

    const Registry& registry_;
};

std::string Registry::render() const {
    const Exporter exporter{*this};
    return prom::TextSerializer{}.Serialize(exporter.Collect());
}

}  // namespace metrics
