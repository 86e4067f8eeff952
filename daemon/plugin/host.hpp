#pragma once

#include "abi/common.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace plugin {

class LogQueue;

/// Where metrics of plugins go. Implemented over the registry of daemon/metrics by the wiring.
class MetricsSink {
public:
    virtual ~MetricsSink() = default;

    /// Finds or makes the series `name` with the labels plugin and kind. [control]
    /// @return a number for add() and set(); 0 when the name is refused, with `why` filled
    virtual std::uint32_t counter(const std::string& plugin, const std::string& kind,
                                  const std::string& name, const std::string& help,
                                  std::string& why) = 0;
    virtual std::uint32_t gauge(const std::string& plugin, const std::string& kind,
                                const std::string& name, const std::string& help,
                                std::string& why) = 0;
    virtual void add(std::uint32_t id, double value) noexcept = 0;  ///< relaxed atomic. [any]
    virtual void set(std::uint32_t id, double value) noexcept = 0;  ///< gauges only. [any]
};

/// Device memory for the service memory/1. Both [control].
struct DeviceMemory {
    std::function<assay_status(const assay_device_ref&, assay_space, std::uint64_t bytes,
                               void** out, assay_error* err)>
        alloc;
    std::function<void(const assay_device_ref&, assay_space, void*)> free;
};

/// What the daemon offers to plugins; borrowed, and outlives every Host made from it.
struct HostServices {
    LogQueue* log = nullptr;                        ///< null: no service log/1
    MetricsSink* metrics = nullptr;                 ///< null: numbers are accepted and dropped
    const assay_lanes* control_lanes = nullptr;     ///< null: no service parallel/1
    DeviceMemory device_memory;                     ///< empty: memory/1 offers host memory alone
    std::uint64_t memory_budget_bytes = 256 << 20;  ///< per module, host and device together
};

/// The assay_host of one module, so that lines, metrics and memory are attributed to its plugin.
///
/// Thread: as the ABI's brackets say; log and metric updates from any thread. Outlives the module's
/// open() to close().
class Host {
public:
    Host(std::string plugin_id, std::string kind, const HostServices& services);
    ~Host();
    Host(const Host&) = delete;
    Host& operator=(const Host&) = delete;

    [[nodiscard]] const assay_host* abi() const noexcept { return &abi_; }
    [[nodiscard]] const std::string& plugin_id() const noexcept { return plugin_id_; }

    /// Bytes that the plugin holds through memory/1.
    [[nodiscard]] std::uint64_t memory_bytes() const noexcept { return memory_bytes_.load(); }

private:
    struct Tables;
    static Host& of(const assay_host* host) noexcept;
    static const void* service(const assay_host* host, const char* service_id) noexcept;

    assay_status alloc(const assay_device_ref* dev, int space, std::uint64_t bytes, void** out,
                       assay_error* err);
    void free(const assay_device_ref* dev, int space, void* ptr) noexcept;
    assay_status register_metric(bool is_gauge, const char* name, const char* help,
                                 std::uint32_t* id);
    void log(int level, std::string_view text) noexcept;

    assay_host abi_{};
    std::string plugin_id_, kind_;
    HostServices services_;
    std::mutex memory_mutex_;
    struct Allocation {
        std::uint64_t bytes = 0;
        bool on_device = false;
    };
    std::map<void*, Allocation> allocations_;
    std::atomic<std::uint64_t> memory_bytes_{0};
};

}  // namespace plugin
