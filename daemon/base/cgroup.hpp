#pragma once

#include <cstdint>
#include <string>

namespace base {

/// Whole processors' worth of time that the control group (version 2) of this process and its parents allow,
/// rounded up; the largest number when there is no quota.
[[nodiscard]] std::uint32_t quota_processors();

/// The same from files elsewhere.
/// @param root     where the hierarchy is mounted
/// @param process  a file as /proc/self/cgroup
[[nodiscard]] std::uint32_t quota_processors(const std::string& root, const std::string& process);

}  // namespace base
