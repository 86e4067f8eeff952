#pragma once

// What the three kinds of the image share: which fault is asked for, and when it begins.

#include "cxx/plugin.hpp"

#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <type_traits>
#include <vector>

namespace faults {

/// Options of the image, by the name they have in a configuration. Every other option is the
/// wrapped plugin's.
///
///   fault   which one, from the kind's table; without it the image is healthy
///   after   steps that are healthy before it begins; a step is one pass through the layers
///   when    a file: healthy until it exists, so that a test chooses the moment
///   format  quant: weights of this format alone
///   rows    quant: weights of so many rows alone
struct Options {
    std::string fault, when, format;
    std::int64_t after = 0, rows = 0;
    std::vector<assay_option> rest;  ///< borrows from the configuration
};

/// Throws sdk::Error when a number is none.
template <class Config>
Options read_options(const Config& config) {
    Options out;
    for (std::uint32_t i = 0; i < config.num_options; ++i) {
        const std::string_view key = config.options[i].key, value = config.options[i].value;
        const auto number = [&] {
            std::int64_t n = 0;
            const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
            if (error != std::errc{} || end != value.data() + value.size() || n < 0)
                throw sdk::Error{ASSAY_UNSUPPORTED, "option " + std::string{key} + ": got \"" +
                                                        std::string{value} + "\", want a count"};
            return n;
        };
        if (key == "fault")
            out.fault = value;
        else if (key == "when")
            out.when = value;
        else if (key == "format")
            out.format = value;
        else if (key == "after")
            out.after = number();
        else if (key == "rows")
            out.rows = number();
        else
            out.rest.push_back(config.options[i]);
    }
    return out;
}

/// The configuration that the wrapped plugin gets.
template <class Config>
Config without_ours(const Config& config, const Options& options) {
    Config out = config;
    out.options = options.rest.data();
    out.num_options = static_cast<std::uint32_t>(options.rest.size());
    return out;
}

/// The row of a table whose id is `name`; null for "". Throws sdk::Error with the ids there are.
template <class Fault, std::size_t N>
const Fault* find(const Fault (&table)[N], const std::string& name) {
    std::string known;
    for (const Fault& fault : table) {
        if (name == fault.id) return &fault;
        known += (known.empty() ? "" : ", ") + std::string{fault.id};
    }
    if (name.empty()) return nullptr;
    throw sdk::Error{ASSAY_UNSUPPORTED, "fault \"" + name + "\"; known: " + known};
}

/// Whether the fault has begun. Thread: any.
class Trigger {
public:
    explicit Trigger(const Options& options) : after_{options.after}, when_{options.when} {}

    void begin_step() { steps_.fetch_add(1, std::memory_order_relaxed); }
    [[nodiscard]] bool is_on() const {
        if (steps_.load(std::memory_order_relaxed) <= after_ && after_ > 0) return false;
        struct stat facts {};
        return when_.empty() || ::stat(when_.c_str(), &facts) == 0;
    }

private:
    std::int64_t after_;
    std::string when_;
    std::atomic<std::int64_t> steps_{0};
};

/// A call that never returns.
[[noreturn]] inline void hang() {
    for (;;) std::this_thread::sleep_for(std::chrono::hours{1});
}

/// Calls member `kMember` of the wrapped plugin's table with the wrapped plugin's self in place of
/// ours. `Instance` has api() and self.
template <class Instance, auto kMember>
struct Forward;
template <class Instance, class Table, class Result, class... Args,
          Result (*Table::*kMember)(void*, Args...)>
struct Forward<Instance, kMember> {
    static Result call(void* self, Args... args) {
        const auto& in = *static_cast<const Instance*>(self);
        return (static_cast<const Table&>(in).*kMember)(in.self, args...);
    }
};

}  // namespace faults
