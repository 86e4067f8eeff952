#include "daemon/metrics/registry.hpp"

#include "daemon/base/check.hpp"

#include <algorithm>
#include <utility>

namespace metrics {
namespace {

std::size_t series_index(const FamilyRow& row, std::initializer_list<std::size_t> values) {
    CHECK(values.size() == row.labels.size());
    std::size_t index = 0;
    auto value = values.begin();
    for (const Label& label : row.labels) {
        CHECK(*value < label.values.size());
        index = index * label.values.size() + *value++;
    }
    return index;
}

}  // namespace

Registry::Registry() : slots_(kNumFamilies) {
    for (const FamilyRow& row : families()) {
        Slot& slot = slots_[static_cast<std::size_t>(row.family)];
        const std::size_t n = num_closed_series(row);
        switch (row.type) {
            case Type::counter:
                slot.counters = std::make_unique<Counter[]>(n);
                break;
            case Type::gauge:
                slot.gauges = std::make_unique<Gauge[]>(n);
                break;
            case Type::histogram:
                slot.histograms = std::make_unique<Histogram[]>(n);
                break;
        }
        for (std::size_t i = 0; i < n; ++i) {
            if (slot.counters) slot.counters[i].report_mistakes_to(mistakes_);
            if (slot.gauges) slot.gauges[i].report_mistakes_to(mistakes_);
            if (slot.histograms) {
                slot.histograms[i].set_bounds(row.bounds);
                slot.histograms[i].report_mistakes_to(mistakes_);
            }
        }
    }
}

Registry::~Registry() = default;

Counter& Registry::counter(Family family, std::initializer_list<std::size_t> values) {
    const FamilyRow& r = row(family);
    CHECK(r.type == Type::counter);
    return slots_[static_cast<std::size_t>(family)].counters[series_index(r, values)];
}

Gauge& Registry::gauge(Family family, std::initializer_list<std::size_t> values) {
    const FamilyRow& r = row(family);
    CHECK(r.type == Type::gauge);
    return slots_[static_cast<std::size_t>(family)].gauges[series_index(r, values)];
}

Histogram& Registry::histogram(Family family, std::initializer_list<std::size_t> values) {
    const FamilyRow& r = row(family);
    CHECK(r.type == Type::histogram);
    return slots_[static_cast<std::size_t>(family)].histograms[series_index(r, values)];
}

void Registry::set_model(std::string name) {
    const std::lock_guard lock{mutex_};
    model_ = std::move(name);
}

void Registry::export_vllm_aliases(bool on) {
    const std::lock_guard lock{mutex_};
    vllm_aliases_ = on;
}

Registry::OpenSeries* Registry::find_series(Family family, std::vector<std::string>& values) {
    const FamilyRow& r = row(family);
    CHECK(is_open(r) && values.size() == r.labels.size());
    auto& open = slots_[static_cast<std::size_t>(family)].open;
    const auto found = std::find_if(open.begin(), open.end(),
                                    [&](const OpenSeries& s) { return s.values == values; });
    if (found != open.end()) return &*found;
    if (open.size() == kMaxOpenSeries) {
        mistakes_.fetch_add(1, std::memory_order_relaxed);
        return nullptr;
    }
    return &open.emplace_back(OpenSeries{std::move(values)});
}

void Registry::set_series(Family family, std::vector<std::string> label_values, double value) {
    const std::lock_guard lock{mutex_};
    if (value != value) {
        mistakes_.fetch_add(1, std::memory_order_relaxed);
        return;
    }
    if (OpenSeries* series = find_series(family, label_values)) series->value = value;
}

void Registry::add_series(Family family, std::vector<std::string> label_values, double delta) {
    const std::lock_guard lock{mutex_};
    if (!(delta >= 0)) {
        mistakes_.fetch_add(1, std::memory_order_relaxed);
        return;
    }
    if (OpenSeries* series = find_series(family, label_values)) series->value += delta;
}

void Registry::clear_series(Family family) {
    CHECK(is_open(row(family)));
    const std::lock_guard lock{mutex_};
    slots_[static_cast<std::size_t>(family)].open.clear();
}

}  // namespace metrics
