#pragma once

#include <cstdint>
#include <string>

namespace cpu {

/// What the operating system says about the machine, seen from this process: its CPU affinity and
/// its control group are limits like the hardware's own.
struct Machine {
    std::string model;              // "AMD EPYC 9654 96-Core Processor"
    std::int32_t num_cores = 1;     // physical cores this process may use; at least 1
    std::uint64_t l2_bytes = 0;     // of one core; 0 when the system does not say
    std::uint64_t total_bytes = 0;  // memory
};

[[nodiscard]] Machine describe_machine();

/// Memory that could be allocated now, and all there is, in bytes. Cached files count as free: they are
/// given up when memory is needed, be they mapped or not.
void memory_now(std::uint64_t& free_bytes, std::uint64_t& total_bytes);

/// What a control group with this limit could still allocate, from its files in `folder`, in bytes.
[[nodiscard]] std::uint64_t free_in_group(const std::string& folder, std::uint64_t limit);

}  // namespace cpu
