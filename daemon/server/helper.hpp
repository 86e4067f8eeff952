#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace boost::asio {
class io_context;
}

namespace server {

struct HelperLimits {
    std::size_t num_threads = 3;
    std::size_t max_jobs = 1024;            ///< waiting or running
    std::size_t max_bytes = 256U << 20U;  ///< what all of them hold
};

/// Threads for work that would hold up the io thread: rendering templates, tokenizing. Bounded, so that
/// requests are refused before they pile up.
class Helper {
public:
    Helper(boost::asio::io_context& io, HelperLimits limits);
    ~Helper();

    /// Waits for the work that has begun; what has not is dropped, and so is what comes later.
    void stop();

    /// Runs `work` on a helper thread, and what it returns on the io thread. Io thread; what is
    /// captured must not refer to things that may be gone by then, other than weakly.
    ///
    /// @param bytes   what the work holds, roughly
    /// @param failed  runs on the io thread instead when `work` throws, with the words of the
    ///                exception
    /// @return        false when there is too much to do: nothing will run
    [[nodiscard]] bool run(std::size_t bytes, std::function<std::function<void()>()> work,
                           std::function<void(std::string)> failed);

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace server
