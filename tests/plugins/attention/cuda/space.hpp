#pragma once

// Device memory for tests: host arrays travel there before a call and back after it, guard zones
// and all, so that whatever a kernel touched shows on the host.

#include "abi/plugin.h"

#include <cstddef>
#include <memory>
#include <vector>

namespace attention_test {

/// GPU 0, or a reference of kind "cuda" with arch 0 where there is none.
const assay_device_ref& cuda_device();

/// A stream of GPU 0 and the arrays that are there now. Throws std::runtime_error with the
/// runtime's words.
class Space {
public:
    Space();
    ~Space();
    Space(const Space&) = delete;
    Space& operator=(const Space&) = delete;

    [[nodiscard]] const assay_stream& stream() const noexcept { return stream_; }
    /// The device's copy of a host array; the same one when the array is there already.
    void* enter(const void* host, std::size_t bytes);
    /// Waits for the stream, copies every array back, and forgets them.
    void leave();
    /// Waits for the stream; the arrays stay.
    void wait();
    /// Overwrites the device's copy of a host array, in stream order.
    void update(const void* host, const void* with, std::size_t bytes);
    /// Records what `body` queues as a graph, without running it.
    template <class Body>
    void capture(Body&& body) {
        begin_capture();
        body();
        end_capture();
    }
    /// Launches the recorded graph and waits.
    void replay(int times);

private:
    void begin_capture();
    void end_capture();

    struct Array {
        void *host, *device;
        std::size_t bytes;
    };
    std::vector<Array> arrays_;
    assay_stream stream_{};
    void* graph_ = nullptr;  // executable
};

}  // namespace attention_test
