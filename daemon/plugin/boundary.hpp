#pragma once

#include <exception>
#include <string>

namespace plugin {

/// Calls into an image where it must not throw, and says so when it does.
/// @return  empty, or "let a C++ exception out of open(): <its words>"
template <class Call>
[[nodiscard]] std::string exception_let_out(const char* where, Call&& call) {
    try {
        call();
        return {};
    } catch (const std::exception& e) {
        return std::string{"let a C++ exception out of "} + where + ": " + e.what();
    } catch (...) {
        return std::string{"let a C++ exception of unknown type out of "} + where;
    }
}

}  // namespace plugin
