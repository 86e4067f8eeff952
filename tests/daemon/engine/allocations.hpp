#pragma once

#include <cstdint>

namespace engine_test {

/// Calls of operator new since the start, by any thread, plugins' included.
[[nodiscard]] std::uint64_t num_allocations();

/// From now on the first allocation of this process ends it (SIGABRT), so that a debugger shows who
/// it was.
void abort_on_allocation(bool on);

}  // namespace engine_test
