#pragma once

#include "abi/device.h"

namespace cuda {

/// One opened GPU: what `self` points at. Immutable once open() has returned.
struct Device {
    assay_device_ref ref{};
};

/// The pointwise ops; `self` is a Device.
extern const assay_ops device_ops;

}  // namespace cuda
