#pragma once

namespace base {

/// Prints the broken invariant and aborts. See CHECK.
[[noreturn]] void check_failed(const char* condition, const char* file, int line) noexcept;

}  // namespace base

/// A broken invariant of our own: prints and aborts, in release builds too. Never for input.
#define CHECK(condition) \
    ((condition) ? static_cast<void>(0) : ::base::check_failed(#condition, __FILE__, __LINE__))
