#pragma once

// Header-only C++ helpers for plugin authors, over the C ABI. Nothing here crosses the boundary.

#include "abi/plugin.h"

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace sdk {

/// A failure with its code, thrown inside a plugin and turned into a status by guard().
class Error : public std::runtime_error {
public:
    Error(assay_code code, const std::string& what) : std::runtime_error{what}, code_{code} {}
    [[nodiscard]] assay_code code() const noexcept { return code_; }

private:
    assay_code code_;
};

/// Fills `err` (which may be null) and returns `code`: `return sdk::fail(err, ASSAY_INVALID, …)`.
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
inline assay_status
fail(assay_error* err, assay_code code, const char* format, ...) noexcept {
    if (err != nullptr) {
        err->code = code;
        std::va_list args;
        va_start(args, format);
        std::vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
    }
    return code;
}

/// The exception barrier: runs `body` and turns whatever leaves it into a status and words. `body`
/// returns nothing (OK) or an assay_status.
template <class Body>
assay_status guard(assay_error* err, Body&& body) noexcept {
    try {
        if constexpr (std::is_void_v<decltype(body())>) {
            body();
            return ASSAY_OK;
        } else {
            return body();
        }
    } catch (const Error& e) {
        return fail(err, e.code(), "%s", e.what());
    } catch (const std::bad_alloc&) {
        return fail(err, ASSAY_NO_MEMORY, "out of memory");
    } catch (const std::exception& e) {
        return fail(err, ASSAY_INTERNAL, "%s", e.what());
    } catch (...) {
        return fail(err, ASSAY_INTERNAL, "unknown exception");
    }
}

/// An error buffer ready to be passed.
[[nodiscard]] inline assay_error make_error() noexcept {
    assay_error e{};
    e.size = sizeof e;
    return e;
}

// ---- tensors --------------------------------------------------------------------------------

[[nodiscard]] constexpr std::int64_t dtype_bytes(std::int32_t dtype) noexcept {
    switch (dtype) {
        case ASSAY_F64:
        case ASSAY_I64: return 8;
        case ASSAY_F32:
        case ASSAY_I32: return 4;
        case ASSAY_F16:
        case ASSAY_BF16: return 2;
        default: return 1;
    }
}

[[nodiscard]] constexpr const char* dtype_name(std::int32_t dtype) noexcept {
    constexpr const char* kNames[] = {"none", "f32", "f16", "bf16", "f8_e4m3", "f8_e5m2",
                                      "i8",   "u8",  "i32", "i64",  "f64"};
    return dtype >= 0 && dtype <= ASSAY_F64 ? kNames[dtype] : "?";
}

/// A dense row-major view of `data`; shapes outermost first.
template <class... Dims>
[[nodiscard]] assay_tensor make_tensor(const void* data, assay_dtype dtype, Dims... dims) noexcept {
    static_assert(sizeof...(Dims) >= 1 && sizeof...(Dims) <= ASSAY_MAX_RANK);
    assay_tensor t{};
    t.data = const_cast<void*>(data);
    t.dtype = dtype;
    t.rank = sizeof...(Dims);
    const std::int64_t shape[] = {static_cast<std::int64_t>(dims)...};
    std::int64_t stride = 1;
    for (int i = t.rank - 1; i >= 0; --i) {
        t.shape[i] = shape[i];
        t.stride[i] = stride;
        stride *= shape[i];
    }
    return t;
}

/// Address of element [i], [i, j] or [i, j, k] as T*. The caller has checked dtype and bounds.
template <class T>
[[nodiscard]] T* at(const assay_tensor& t, std::int64_t i) noexcept {
    return static_cast<T*>(t.data) + i * t.stride[0];
}
template <class T>
[[nodiscard]] T* at(const assay_tensor& t, std::int64_t i, std::int64_t j) noexcept {
    return static_cast<T*>(t.data) + i * t.stride[0] + j * t.stride[1];
}

[[nodiscard]] inline std::int64_t num_elements(const assay_tensor& t) noexcept {
    std::int64_t n = 1;
    for (int i = 0; i < t.rank; ++i) n *= t.shape[i];
    return n;
}

// ---- lanes ----------------------------------------------------------------------------------

/// Calls body(i, lane) for each i in [0, n) on the lanes of a stream. One item runs in place.
template <class Body>
void parallel_for(const assay_lanes* lanes, std::int64_t n, Body&& body) {
    if (n <= 0) return;
    if (n == 1 || lanes == nullptr || lanes->width <= 1) {
        for (std::int64_t i = 0; i < n; ++i) body(static_cast<std::uint32_t>(i), 0u);
        return;
    }
    using Plain = std::remove_reference_t<Body>;
    lanes->run(
        lanes, static_cast<std::uint32_t>(n),
        [](void* arg, std::uint32_t i, std::uint32_t lane) { (*static_cast<Plain*>(arg))(i, lane); },
        const_cast<std::remove_const_t<Plain>*>(&body));
}

// ---- options and log ------------------------------------------------------------------------

/// The value of an option, or `fallback`.
template <class Config>
[[nodiscard]] std::string_view option(const Config& config, std::string_view key,
                                      std::string_view fallback = {}) noexcept {
    for (std::uint32_t i = 0; i < config.num_options; ++i)
        if (key == config.options[i].key) return config.options[i].value;
    return fallback;
}

/// Refuses options whose key is not in `known`, naming both. Throws Error{UNSUPPORTED}.
template <class Config>
void check_options(const Config& config, std::initializer_list<std::string_view> known) {
    for (std::uint32_t i = 0; i < config.num_options; ++i) {
        const std::string_view key = config.options[i].key;
        bool found = false;
        std::string list;
        for (std::string_view k : known) {
            found = found || k == key;
            list += (list.empty() ? "" : ", ") + std::string{k};
        }
        if (!found)
            throw Error{ASSAY_UNSUPPORTED, "unknown option \"" + std::string{key} + "\"; known: " +
                                               (list.empty() ? std::string{"none"} : list)};
    }
}

/// Writes to the host's log, where the host has one.
inline void log(const assay_host* host, assay_level level, const std::string& text) noexcept {
    if (host == nullptr) return;
    const auto* service = static_cast<const assay_log*>(host->service(host, ASSAY_SERVICE_LOG));
    if (service != nullptr) service->write(host, level, text.c_str());
}

}  // namespace sdk
