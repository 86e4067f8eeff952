#pragma once

#include <string>

#include "daemon/metrics/registry.hpp"
#include "daemon/plugin/host.hpp"

namespace app {

/// Brings what plugins count to /metrics. The registry outlives it.
class PluginMetrics final : public plugin::MetricsSink {
public:
    explicit PluginMetrics(metrics::Registry& registry) : series_{registry.plugins()} {}

    std::uint32_t counter(const std::string& plugin, const std::string& kind, const std::string& name,
                          const std::string& help, std::string& why) override {
        return series_.find_or_make(metrics::Type::counter, plugin, kind, name, help, why);
    }
    std::uint32_t gauge(const std::string& plugin, const std::string& kind, const std::string& name,
                        const std::string& help, std::string& why) override {
        return series_.find_or_make(metrics::Type::gauge, plugin, kind, name, help, why);
    }
    void add(std::uint32_t id, double value) noexcept override { series_.add(id, value); }
    void set(std::uint32_t id, double value) noexcept override { series_.set(id, value); }

private:
    metrics::PluginSeries& series_;
};

}  // namespace app
