#pragma once

#include "daemon/metrics/families.hpp"
#include "daemon/metrics/instruments.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace metrics {

/// Series that plugins make at run time, beside the table of families: each carries the labels `plugin` and
/// `kind`. Bounded in number, so that a plugin cannot fill a scrape.
///
/// Making one takes a lock; adding and setting do not. Any thread.
class PluginSeries {
public:
    static constexpr std::size_t kMaxSeries = 256;

    struct Row {
        std::string name, help, plugin, kind;
        Type type = Type::gauge;
        Gauge value;
    };

    /// Finds or makes a series.
    /// @return its number, from 1; 0 when it is refused, with the reason in `why`
    std::uint32_t find_or_make(Type type, const std::string& plugin, const std::string& kind,
                               const std::string& name, const std::string& help, std::string& why);
    /// Nothing for a number that names none, for NaN, and for a counter that would go down.
    void add(std::uint32_t id, double delta) noexcept;
    void set(std::uint32_t id, double value) noexcept;

    /// Every series, those of one name together.
    [[nodiscard]] std::vector<const Row*> all() const;

private:
    [[nodiscard]] Row* at(std::uint32_t id) noexcept;

    mutable std::mutex mutex_;
    std::array<std::unique_ptr<Row>, kMaxSeries> rows_;
    std::atomic<std::uint32_t> num_rows_{0};  // those below are complete and stay
};

}  // namespace metrics
