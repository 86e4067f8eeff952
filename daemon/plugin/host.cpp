#include "daemon/plugin/host.hpp"

#include "daemon/plugin/log_queue.hpp"
#include "sdk/cxx/plugin.hpp"

#include <algorithm>
#include <new>

namespace plugin {
namespace {

constexpr std::align_val_t kAlignment{256};

bool is_metric_name(std::string_view name) {
    if (!name.starts_with("assay_plugin_") || name.size() > 100) return false;
    for (const char c : name)
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_')) return false;
    return true;
}

}  // namespace

// The tables are the same for every host; which host is meant comes with each call.
struct Host::Tables {
    static void write(const assay_host* host, std::int32_t level, const char* text) {
        of(host).log(level, text == nullptr ? std::string_view{} : std::string_view{text});
    }
    static assay_status counter(const assay_host* host, const char* name, const char* help,
                                std::uint32_t* id) {
        return of(host).register_metric(false, name, help, id);
    }
    static assay_status gauge(const assay_host* host, const char* name, const char* help,
                              std::uint32_t* id) {
        return of(host).register_metric(true, name, help, id);
    }
    static void add(const assay_host* host, std::uint32_t id, double value) {
        if (MetricsSink* sink = of(host).services_.metrics; sink != nullptr && id != 0)
            sink->add(id, value);
    }
    static void set(const assay_host* host, std::uint32_t id, double value) {
        if (MetricsSink* sink = of(host).services_.metrics; sink != nullptr && id != 0)
            sink->set(id, value);
    }
    static const assay_lanes* control_lanes(const assay_host* host) {
        return of(host).services_.control_lanes;
    }
    static assay_status alloc(const assay_host* host, const assay_device_ref* dev,
                              std::int32_t space, std::uint64_t bytes, void** out,
                              assay_error* err) {
        return of(host).alloc(dev, space, bytes, out, err);
    }
    static void free(const assay_host* host, const assay_device_ref* dev, std::int32_t space,
                     void* ptr) {
        of(host).free(dev, space, ptr);
    }

    static constexpr assay_log kLog{sizeof(assay_log), write};
    static constexpr assay_metrics kMetrics{sizeof(assay_metrics), counter, gauge, add, set};
    static constexpr assay_parallel kParallel{sizeof(assay_parallel), control_lanes};
    static constexpr assay_memory kMemory{sizeof(assay_memory), alloc, free};
};

Host::Host(std::string plugin_id, std::string kind, const HostServices& services)
    : plugin_id_{std::move(plugin_id)}, kind_{std::move(kind)}, services_{services} {
    abi_.size = sizeof abi_;
    abi_.abi_major = ASSAY_ABI_MAJOR;
    abi_.abi_minor = ASSAY_ABI_MINOR;
    abi_.ctx = this;
    abi_.name = "assayd";
    abi_.version = ASSAY_VERSION;
    abi_.service = service;
}

Host::~Host() {
    // What the plugin forgot. Device memory may be gone with its device and is left alone.
    for (const auto& [ptr, allocation] : allocations_)
        if (!allocation.on_device) ::operator delete(ptr, kAlignment);
}

Host& Host::of(const assay_host* host) noexcept {
    return *static_cast<Host*>(host->ctx);
}

const void* Host::service(const assay_host* host, const char* service_id) noexcept {
    if (service_id == nullptr) return nullptr;
    const std::string_view id{service_id};
    const HostServices& services = of(host).services_;
    if (id == ASSAY_SERVICE_LOG) return services.log != nullptr ? &Tables::kLog : nullptr;
    if (id == ASSAY_SERVICE_METRICS) return &Tables::kMetrics;
    if (id == ASSAY_SERVICE_PARALLEL)
        return services.control_lanes != nullptr ? &Tables::kParallel : nullptr;
    if (id == ASSAY_SERVICE_MEMORY) return &Tables::kMemory;
    return nullptr;
}

void Host::log(int level, std::string_view text) noexcept {
    if (services_.log != nullptr) services_.log->write(level, plugin_id_, text);
}

assay_status Host::register_metric(bool is_gauge, const char* name, const char* help,
                                   std::uint32_t* id) {
    if (name == nullptr || help == nullptr || id == nullptr) return ASSAY_INVALID;
    *id = 0;
    return sdk::guard(nullptr, [&]() -> assay_status {
        if (!is_metric_name(name)) {
            log(ASSAY_WARN, "metric \"" + std::string{name}.substr(0, 100) +
                                "\" refused: want assay_plugin_<what>_<unit>, lower case");
            return ASSAY_INVALID;
        }
        if (services_.metrics == nullptr) return ASSAY_OK;
        std::string why;
        *id = is_gauge ? services_.metrics->gauge(plugin_id_, kind_, name, help, why)
                       : services_.metrics->counter(plugin_id_, kind_, name, help, why);
        if (*id != 0) return ASSAY_OK;
        log(ASSAY_WARN, "metric \"" + std::string{name} + "\" refused: " + why);
        return ASSAY_INVALID;
    });
}

assay_status Host::alloc(const assay_device_ref* dev, int space, std::uint64_t bytes, void** out,
                         assay_error* err) {
    if (out == nullptr) return sdk::fail(err, ASSAY_INVALID, "memory/1: no place for the result");
    *out = nullptr;
    const std::scoped_lock lock{memory_mutex_};
    const std::uint64_t held = memory_bytes_.load();
    if (bytes > services_.memory_budget_bytes - std::min(held, services_.memory_budget_bytes))
        return sdk::fail(err, ASSAY_NO_MEMORY,
                         "memory/1: %llu bytes wanted, plugin %s holds %llu of its budget of %llu",
                         static_cast<unsigned long long>(bytes), plugin_id_.c_str(),
                         static_cast<unsigned long long>(held),
                         static_cast<unsigned long long>(services_.memory_budget_bytes));
    const bool on_device = space != ASSAY_SPACE_HOST;
    return sdk::guard(err, [&]() -> assay_status {
        void* ptr = nullptr;
        if (!on_device) {
            ptr = ::operator new(std::max<std::uint64_t>(bytes, 1), kAlignment);
        } else {
            if (dev == nullptr || !services_.device_memory.alloc)
                return sdk::fail(err, ASSAY_UNSUPPORTED, "memory/1: no device memory here");
            const assay_status status = services_.device_memory.alloc(
                *dev, static_cast<assay_space>(space), bytes, &ptr, err);
            if (status != ASSAY_OK) return status;
        }
        allocations_[ptr] = {bytes, on_device};
        memory_bytes_.fetch_add(bytes);
        *out = ptr;
        return ASSAY_OK;
    });
}

void Host::free(const assay_device_ref* dev, int space, void* ptr) noexcept {
    if (ptr == nullptr) return;
    const std::scoped_lock lock{memory_mutex_};
    const auto it = allocations_.find(ptr);
    if (it == allocations_.end()) {
        log(ASSAY_ERROR, "memory/1: freed an address that it does not hold; ignored");
        return;
    }
    if (!it->second.on_device) {
        ::operator delete(ptr, kAlignment);
    } else if (dev != nullptr && services_.device_memory.free) {
        services_.device_memory.free(*dev, static_cast<assay_space>(space), ptr);
    }
    memory_bytes_.fetch_sub(it->second.bytes);
    allocations_.erase(it);
}

}  // namespace plugin
