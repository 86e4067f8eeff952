#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

namespace base {

/// Whether requests are accepted, and why not. Read by the io thread on every request, written by
/// whoever proves, drains or trips. Any thread.
class ServiceState {
public:
    enum class Phase : std::uint8_t { starting, ready, draining, failed };

    [[nodiscard]] Phase phase() const { return phase_.load(std::memory_order_acquire); }
    [[nodiscard]] bool is_ready() const { return phase() == Phase::ready; }
    /// One line for /readyz: "loading weights", "assay: kernels", "draining", "watch: …".
    [[nodiscard]] std::string reason() const {
        const std::lock_guard lock{mutex_};
        return reason_;
    }
    void set(Phase phase, std::string reason) {
        const std::lock_guard lock{mutex_};
        reason_ = std::move(reason);
        phase_.store(phase, std::memory_order_release);
    }

private:
    std::atomic<Phase> phase_{Phase::starting};
    mutable std::mutex mutex_;
    std::string reason_ = "starting";
};

}  // namespace base
