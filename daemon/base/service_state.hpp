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
    /// Whatever was before; but who drains goes on draining.
    void set(Phase phase, std::string reason) {
        const std::lock_guard lock{mutex_};
        if (this->phase() == Phase::draining && phase != Phase::draining) return;
        store(phase, std::move(reason));
    }
    /// Only from `from`: nobody else's change is overwritten.
    /// @return  whether it was so
    bool advance(Phase from, Phase to, std::string reason) {
        const std::lock_guard lock{mutex_};
        if (phase() != from) return false;
        store(to, std::move(reason));
        return true;
    }

private:
    void store(Phase phase, std::string reason) {
        reason_ = std::move(reason);
        phase_.store(phase, std::memory_order_release);
    }

    std::atomic<Phase> phase_{Phase::starting};
    mutable std::mutex mutex_;
    std::string reason_ = "starting";
};

}  // namespace base
