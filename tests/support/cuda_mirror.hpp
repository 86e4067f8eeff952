#pragma once

// Tests that were written for plugins which read host memory, run on a GPU: the arguments of a call are
// copied there with sentinels around them, the call is made, and what it wrote is copied back.

#include "cxx/plugin.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace support {

/// The GPU of the tests, opened once through the image device/cuda.
class CudaDevice {
public:
    /// Null without a GPU; why() then says so.
    [[nodiscard]] static CudaDevice* get();
    [[nodiscard]] static const std::string& why();
    /// The image's device table, whether there is a GPU or not.
    [[nodiscard]] static const assay_device& table();
    [[nodiscard]] static const assay_module& module();

    [[nodiscard]] void* self() const { return self_; }
    [[nodiscard]] const assay_device_ref& ref() const { return ref_; }
    [[nodiscard]] const assay_stream* stream() const { return &stream_; }

private:
    CudaDevice() = default;
    void* self_ = nullptr;
    assay_device_ref ref_{};
    assay_stream stream_{};
};

/// Device copies of the arguments of one call.
class CudaMirror {
public:
    CudaMirror() = default;
    ~CudaMirror();
    CudaMirror(const CudaMirror&) = delete;
    CudaMirror& operator=(const CudaMirror&) = delete;

    enum class Access { read, write };
    /// `bytes` from `host` on; null stays null. With Access::write finish() copies back.
    void* of(const void* host, std::uint64_t bytes, Access access = Access::read);
    template <class T>
    T* array(T* host, std::uint64_t count, Access access = Access::read) {
        return static_cast<T*>(of(host, count * sizeof(T), access));
    }
    /// The same view over there; what lies between its rows is copied along. Null stays null.
    [[nodiscard]] assay_tensor view(const assay_tensor& t, Access access = Access::read);
    /// Memory without a host side, filled with ones, guarded.
    void* scratch(std::uint64_t bytes);

    /// Waits, copies back, and fails the test when something outside of an argument was written, or one
    /// that is only read.
    void finish();

private:
    struct Piece {
        char* base;  // kMargin bytes before the argument
        const void* host;
        std::uint64_t bytes;
        Access access;
    };
    static constexpr std::uint64_t kMargin = 256;
    static constexpr int kSentinel = 0xa5;
    Piece& add(std::uint64_t bytes, const void* host, Access access);
    std::vector<Piece> pieces_;
};

}  // namespace support
