#pragma once

// What this machine can do, measured: the limits that the kernels are compared with.

#include "abi/common.h"

namespace bench {

/// Bytes per second read from memory with all lanes, from a buffer far larger than the caches.
[[nodiscard]] double read_bandwidth(const assay_lanes* lanes);

/// 8-bit multiply-adds per second with all lanes (a multiply and an add each), by the VNNI
/// instruction on registers; 0 where the processor has none.
[[nodiscard]] double int8_peak(const assay_lanes* lanes);

/// f32 multiply-adds per second, likewise by fused multiply-adds of the widest kind.
[[nodiscard]] double f32_peak(const assay_lanes* lanes);

/// Measure the calling thread's processor time instead of the clock on the wall: for machines with
/// other work on them. Meaningful with one lane only.
extern bool is_cpu_time;

[[nodiscard]] double now_seconds();

}  // namespace bench
