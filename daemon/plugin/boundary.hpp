#pragma once

#include "abi/common.h"

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

/// What a call said of its failure, ended where the buffer ends: a plugin may have filled all of it.
[[nodiscard]] inline const char* words(assay_error& err) noexcept {
    err.text[sizeof err.text - 1] = '\0';
    return err.text;
}

}  // namespace plugin
