#pragma once

#include "abi/device.h"
#include "row_kernels.hpp"

namespace cpu {

/// One opened device: what `self` points at. Immutable once open() has returned.
struct Device {
    assay_device_ref ref{};
    const RowKernels* kernels = nullptr;
};

/// The ops of every tier; `self` is a Device.
extern const assay_ops cpu_ops;

}  // namespace cpu
