#pragma once

#include <cstdint>

#include "abi/plugin.h"
#include "cxx/plugin.hpp"
#include "daemon/base/error.hpp"
#include "daemon/plugin/instance.hpp"

namespace model {

/// A point in a stream that the step loop can wait for: the only way in which it blocks.
///
/// Thread: engine (construction: control).
class Event {
public:
    /// Longer than any step; a device that takes longer hangs.
    static constexpr std::int64_t kTimeoutUs = 120'000'000;

    /// Throws base::AssayError with the device's words.
    Event(const plugin::Device& device, const plugin::Stream& stream) : device_{device}, stream_{stream} {
        assay_error err = sdk::make_error();
        if (device.api().event_create(device.self(), &event_, &err) != ASSAY_OK)
            throw base::AssayError{"device plugin \"" + device.id() + "\": no event: " + err.text};
    }
    ~Event() { device_.api().event_destroy(device_.self(), event_); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;

    /// Stands behind everything queued so far.
    [[nodiscard]] assay_status record() {
        is_recorded_ = true;
        return device_.api().event_record(device_.self(), event_, stream_.get());
    }
    /// Until the device has passed the last record(); at once when there was none. TIMEOUT when it hangs.
    [[nodiscard]] assay_status wait() {
        if (!is_recorded_) return ASSAY_OK;
        return device_.api().event_sync(device_.self(), event_, kTimeoutUs, nullptr);
    }

private:
    const plugin::Device& device_;
    const plugin::Stream& stream_;
    void* event_ = nullptr;
    bool is_recorded_ = false;
};

}  // namespace model
