#pragma once

// From the CUDA runtime's errors to those of the ABI. For host code of every CUDA plugin.

#include "cxx/plugin.hpp"

#include <cuda_runtime.h>

#include <string>
#include <string_view>

namespace cuda {

/// DEVICE_LOST for errors after which no call of the process can work.
[[nodiscard]] inline assay_code code_of(cudaError_t error) noexcept {
    switch (error) {
        case cudaSuccess:
            return ASSAY_OK;
        case cudaErrorMemoryAllocation:
            return ASSAY_NO_MEMORY;
        case cudaErrorInvalidValue:
        case cudaErrorInvalidResourceHandle:
            return ASSAY_INVALID;
        case cudaErrorIllegalAddress:
        case cudaErrorMisalignedAddress:
        case cudaErrorIllegalInstruction:
        case cudaErrorHardwareStackError:
        case cudaErrorInvalidAddressSpace:
        case cudaErrorInvalidPc:
        case cudaErrorLaunchFailure:
        case cudaErrorLaunchTimeout:
        case cudaErrorAssert:
        case cudaErrorECCUncorrectable:
        case cudaErrorDevicesUnavailable:
            return ASSAY_DEVICE_LOST;
        default:
            return ASSAY_INTERNAL;
    }
}

/// OK, or the status with "what: the runtime's words" in `err`.
inline assay_status status_of(cudaError_t error, assay_error* err, const char* what) noexcept {
    if (error == cudaSuccess) return ASSAY_OK;
    return sdk::fail(err, code_of(error), "%s: %s (%s)", what, cudaGetErrorString(error),
                     cudaGetErrorName(error));
}

/// For [control] code inside sdk::guard(): throws sdk::Error.
inline void check(cudaError_t error, const std::string& what) {
    if (error != cudaSuccess)
        throw sdk::Error{code_of(error), what + ": " + cudaGetErrorString(error) + " (" +
                                             cudaGetErrorName(error) + ")"};
}

/// Whether machine code for one of `targets` ("80 90a 100") runs on compute capability major.minor:
/// that of its own major version and no later minor one; with an "a" on exactly its own.
[[nodiscard]] inline bool runs_on(std::string_view targets, int major, int minor) noexcept {
    for (std::size_t at = 0; at < targets.size();) {
        std::size_t end = targets.find(' ', at);
        if (end == std::string_view::npos) end = targets.size();
        int number = 0;
        bool is_exact = false;
        for (const char c : targets.substr(at, end - at)) {
            if (c >= '0' && c <= '9')
                number = 10 * number + (c - '0');
            else if (c == 'a')
                is_exact = true;
            else
                break;
        }
        const int target_minor = number % 10;
        if (number / 10 == major && (is_exact ? target_minor == minor : target_minor <= minor))
            return true;
        at = end + 1;
    }
    return false;
}

/// Throws UNSUPPORTED with both lists when this image holds no code for the GPU.
inline void require_target(const assay_device_ref& device) {
    if (runs_on(ASSAY_CUDA_TARGETS, device.arch / 10, device.arch % 10)) return;
    throw sdk::Error{ASSAY_UNSUPPORTED,
                     "device " + std::to_string(device.ordinal) + " \"" + device.name +
                         "\" has compute capability " + std::to_string(device.arch / 10) + "." +
                         std::to_string(device.arch % 10) + "; this plugin was built for " +
                         ASSAY_CUDA_TARGETS};
}

}  // namespace cuda
