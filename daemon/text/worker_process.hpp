#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <sys/types.h>

namespace text {

/// The program of a template worker, built into the daemon.
extern const char kTemplateWorkerScript[];

/// A child process that is spoken to over a socket, and ended with this object.
///
/// Started with an empty environment, in /, in a session of its own (a terminal's Ctrl-C does not
/// reach it), with no descriptors but the socket as standard input and output. Owned by one thread
/// at a time.
class WorkerProcess {
public:
    using Clock = std::chrono::steady_clock;
    enum class Io { done, timed_out, closed };

    WorkerProcess() = default;
    ~WorkerProcess() { stop(); }
    WorkerProcess(const WorkerProcess&) = delete;
    WorkerProcess& operator=(const WorkerProcess&) = delete;

    /// Starts `program`, a Python, with the script and its one argument; ends an earlier child first.
    /// @return "" or why the process could not be started
    [[nodiscard]] std::string start(const char* program, const char* script,
                                    const std::string& argument);

    [[nodiscard]] bool is_started() const noexcept { return pid_ > 0; }
    /// Whether the child still holds its end of the socket.
    [[nodiscard]] bool is_alive() const noexcept;
    [[nodiscard]] pid_t pid() const noexcept { return pid_; }

    [[nodiscard]] Io send(std::string_view bytes, Clock::time_point deadline) noexcept;
    [[nodiscard]] Io receive(std::span<char> bytes, Clock::time_point deadline) noexcept;

    /// Kills the child and waits for its end.
    /// @return how it had ended, in words ("exit status 1", "signal 9")
    std::string stop() noexcept;

private:
    [[nodiscard]] Io wait_for(short events, Clock::time_point deadline) noexcept;

    pid_t pid_ = -1;
    int socket_ = -1;
};

}  // namespace text
