#pragma once

// The cuda image behind the interface that the tests of the cpu image use: CpuDevice here is a GPU whose
// ops take host memory (support::CudaMirror).

#include "tests/support/cuda_mirror.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace device_test {

/// The ops of the GPU over mirrored arguments.
[[nodiscard]] const assay_ops& mirrored_ops();

class CpuDevice {
public:
    // Without a GPU the test is skipped before it asks for anything (tests/support/cuda_main.cpp).
    explicit CpuDevice(const char* = "auto", std::uint32_t = 1) {}
    [[nodiscard]] void* self() const { return support::CudaDevice::get()->self(); }
    [[nodiscard]] const assay_ops& ops() const { return mirrored_ops(); }
    [[nodiscard]] const assay_stream* stream() const { return support::CudaDevice::get()->stream(); }
    [[nodiscard]] const assay_device_ref& ref() const { return support::CudaDevice::get()->ref(); }
};

inline std::vector<std::string> runnable_tiers() {
    return {"cuda"};
}

}  // namespace device_test
