#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include <boost/system/error_code.hpp>
#include <boost/system/result.hpp>

namespace base {

/// Exit codes of assayd and assayctl (sysexits.h numbers; DESIGN rule 4).
enum class ExitCode : int {
    ok = 0,
    usage = 64,        ///< the command line is wrong
    bad_model = 65,    ///< the model file or its tensors are wrong, or changed while it was served
    unavailable = 69,  ///< assayctl: no daemon answers, or it refuses
    assay = 70,        ///< a proof failed or did not finish, or a backend failed while serving
    io = 74,           ///< assayctl: what was asked for could not be written
    cut = 75,          ///< ended before everything begun was answered
    config = 78,       ///< configuration, or a required backend is missing or unfit
};

/// What can go wrong while serving. Each has one row in the table that maps it to a protocol error.
enum class Errc {
    queue_full = 1,   ///< the bounded waiting queue has no room
    key_in_flight,    ///< the key has as many answers begun as it may
    key_tokens,       ///< the key's tokens of this minute are used up
    kv_exhausted,     ///< fewer KV blocks are free than asked for
    prompt_too_long,  ///< prompt plus one token does not fit the context
    cancelled,        ///< the client left or asked for it
    draining,         ///< the daemon no longer accepts requests
    not_ready,        ///< no passing assay
    template_failed,  ///< the chat template refused the conversation
    template_broken,  ///< the chat template timed out or crashed, or none can be rendered
    device_lost,      ///< a backend reported an error from which no later step can recover
    deadline,         ///< the request's own time is over
    queue_timeout,    ///< waited longer than the configuration lets a request wait
};

const boost::system::error_category& error_category() noexcept;

inline boost::system::error_code make_error_code(Errc e) noexcept {
    return {static_cast<int>(e), error_category()};
}

/// What every fallible function on the request path returns.
template <class T>
using Result = boost::system::result<T>;

/// A reason not to start, for the operator. Thrown only before the first request is accepted;
/// caught once, in main, which prints it and exits with `code()`.
///
/// The first line of what() is a complete diagnosis; later lines are detail.
class StartError : public std::runtime_error {
public:
    StartError(ExitCode code, const std::string& what) : std::runtime_error{what}, code_{code} {}
    [[nodiscard]] ExitCode code() const noexcept { return code_; }

private:
    ExitCode code_;
};

/// A mistake in the operator's configuration, or a backend it names that cannot serve. Exit 78.
class ConfigError : public StartError {
public:
    explicit ConfigError(const std::string& what) : StartError{ExitCode::config, what} {}
};

/// A model file that is damaged, incomplete or not what its metadata says. Exit 65.
class ModelError : public StartError {
public:
    explicit ModelError(const std::string& what) : StartError{ExitCode::bad_model, what} {}
};

/// A proof that failed, or a backend that broke while it was being run. Exit 70.
class AssayError : public StartError {
public:
    explicit AssayError(const std::string& what) : StartError{ExitCode::assay, what} {}
};

}  // namespace base

template <>
struct boost::system::is_error_code_enum<base::Errc> : std::true_type {};
