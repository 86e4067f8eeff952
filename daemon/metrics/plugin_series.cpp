#include "daemon/metrics/plugin_series.hpp"

#include <algorithm>
#include <cmath>

namespace metrics {

std::uint32_t PluginSeries::find_or_make(Type type, const std::string& plugin, const std::string& kind,
                                         const std::string& name, const std::string& help, std::string& why) {
    const std::lock_guard lock{mutex_};
    const std::uint32_t n = num_rows_.load(std::memory_order_relaxed);
    const Row* family = nullptr;
    for (std::uint32_t i = 0; i < n; ++i) {
        const Row& row = *rows_[i];
        if (row.name != name) continue;
        if (family == nullptr) family = &row;
        if (row.type == type && row.plugin == plugin && row.kind == kind) return i + 1;
    }
    if (family != nullptr && family->type != type) {
        why = "is a " + std::string{family->type == Type::counter ? "counter" : "gauge"} + " of plugin " + family->plugin;
        return 0;
    }
    if (n == kMaxSeries) {
        why = "there are " + std::to_string(kMaxSeries) + " series of plugins already";
        return 0;
    }
    auto row = std::make_unique<Row>();
    row->name = name;
    row->help = family != nullptr ? family->help : help;  // one name, one text
    row->plugin = plugin;
    row->kind = kind;
    row->type = type;
    rows_[n] = std::move(row);
    num_rows_.store(n + 1, std::memory_order_release);
    return n + 1;
}

PluginSeries::Row* PluginSeries::at(std::uint32_t id) noexcept {
    if (id == 0 || id > num_rows_.load(std::memory_order_acquire)) return nullptr;
    return rows_[id - 1].get();
}

void PluginSeries::add(std::uint32_t id, double delta) noexcept {
    Row* const row = at(id);
    if (row == nullptr || !std::isfinite(delta) || (row->type == Type::counter && delta < 0)) return;
    row->value.add(delta);
}

void PluginSeries::set(std::uint32_t id, double value) noexcept {
    Row* const row = at(id);
    if (row == nullptr || row->type != Type::gauge) return;
    row->value.set(value);
}

std::vector<const PluginSeries::Row*> PluginSeries::all() const {
    std::vector<const Row*> out;
    for (std::uint32_t i = 0; i < num_rows_.load(std::memory_order_acquire); ++i) out.push_back(rows_[i].get());
    std::stable_sort(out.begin(), out.end(), [](const Row* a, const Row* b) { return a->name < b->name; });
    return out;
}

}  // namespace metrics
