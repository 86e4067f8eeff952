#include "daemon/base/check.hpp"

#include <cstdio>
#include <cstdlib>

namespace base {

void check_failed(const char* condition, const char* file, int line) noexcept {
    std::fprintf(stderr, "%s:%d: broken invariant: %s\n", file, line, condition);
    std::abort();
}

}  // namespace base
