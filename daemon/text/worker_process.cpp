#include "daemon/text/worker_process.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace text {

namespace {

constexpr std::chrono::seconds kSendTime{20};

/// The attributes and file actions of posix_spawn, freed at the end of the scope.
struct SpawnSetup {
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t actions;

    SpawnSetup() {
        posix_spawnattr_init(&attributes);
        posix_spawn_file_actions_init(&actions);
    }
    ~SpawnSetup() {
        posix_spawn_file_actions_destroy(&actions);
        posix_spawnattr_destroy(&attributes);
    }
    SpawnSetup(const SpawnSetup&) = delete;
    SpawnSetup& operator=(const SpawnSetup&) = delete;
};

}  // namespace

std::string WorkerProcess::start(const char* program, const char* script,
                                 const std::string& argument) {
    stop();
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return std::string{"no socket pair: "} + std::strerror(errno);

    // posix_spawn, not fork: a daemon with a model in memory must not copy its page tables.
    SpawnSetup setup;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&setup.attributes, &none);
    posix_spawnattr_setsigdefault(&setup.attributes, &all);
    posix_spawnattr_setflags(&setup.attributes,
                             POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
    posix_spawn_file_actions_adddup2(&setup.actions, ends[1], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&setup.actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&setup.actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addclosefrom_np(&setup.actions, STDERR_FILENO + 1);
    posix_spawn_file_actions_addchdir_np(&setup.actions, "/");

    // The script comes over the socket: a command line is shown to every user of the machine.
    constexpr const char* kLoader =
        "import os\n"
        "def take(n):\n"
        "    data = b''\n"
        "    while len(data) < n:\n"
        "        part = os.read(0, n - len(data))\n"
        "        if not part: os._exit(0)\n"
        "        data += part\n"
        "    return data\n"
        "exec(compile(take(int.from_bytes(take(4), 'little')), 'template_worker', 'exec'))\n";
    // -I: no user site, no PYTHON variables, no script folder in the path; -B: writes no files.
    const char* const argv[] = {program, "-I", "-B", "-c", kLoader, argument.c_str(), nullptr};
    const char* const environment[] = {nullptr};
    const int error =
        posix_spawn(&pid_, program, &setup.actions, &setup.attributes,
                    const_cast<char* const*>(argv), const_cast<char* const*>(environment));
    close(ends[1]);
    if (error != 0) {
        pid_ = -1;
        close(ends[0]);
        return std::string{program} + " cannot be started: " + std::strerror(error);
    }
    socket_ = ends[0];
    fcntl(socket_, F_SETFL, O_NONBLOCK);
    const std::string_view source{script};
    std::string frame;
    for (int shift = 0; shift < 32; shift += 8) frame += static_cast<char>((source.size() >> shift) & 0xFF);
    frame += source;
    if (send(frame, Clock::now() + kSendTime) == Io::done) return {};
    const std::string end = stop();
    return std::string{program} + " did not take its script (" + end + ")";
}

bool WorkerProcess::is_alive() const noexcept {
    if (pid_ <= 0) return false;
    pollfd descriptor{socket_, POLLIN, 0};
    // Nothing is due to arrive between two requests, so anything readable is the end.
    return poll(&descriptor, 1, 0) == 0;
}

WorkerProcess::Io WorkerProcess::wait_for(short events, Clock::time_point deadline) noexcept {
    for (;;) {
        const auto left =
            std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
        if (left <= 0) return Io::timed_out;
        pollfd descriptor{socket_, events, 0};
        const int rc = poll(&descriptor, 1, static_cast<int>(std::min<long>(left, 60'000)));
        if (rc > 0) return Io::done;
        if (rc < 0 && errno != EINTR) return Io::closed;
    }
}

WorkerProcess::Io WorkerProcess::send(std::string_view bytes, Clock::time_point deadline) noexcept {
    while (!bytes.empty()) {
        const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (n >= 0) {
            bytes.remove_prefix(static_cast<std::size_t>(n));
        } else if (errno == EAGAIN) {
            if (const Io io = wait_for(POLLOUT, deadline); io != Io::done) return io;
        } else if (errno != EINTR) {
            return Io::closed;
        }
    }
    return Io::done;
}

WorkerProcess::Io WorkerProcess::receive(std::span<char> bytes,
                                         Clock::time_point deadline) noexcept {
    while (!bytes.empty()) {
        const ssize_t n = ::recv(socket_, bytes.data(), bytes.size(), 0);
        if (n > 0) {
            bytes = bytes.subspan(static_cast<std::size_t>(n));
        } else if (n == 0) {
            return Io::closed;
        } else if (errno == EAGAIN) {
            if (const Io io = wait_for(POLLIN, deadline); io != Io::done) return io;
        } else if (errno != EINTR) {
            return Io::closed;
        }
    }
    return Io::done;
}

std::string WorkerProcess::stop() noexcept {
    if (pid_ <= 0) return {};
    close(socket_);
    kill(pid_, SIGKILL);  // not yet waited for, so the pid is still ours
    int status = 0;
    pid_t rc = 0;
    do rc = waitpid(pid_, &status, 0);
    while (rc < 0 && errno == EINTR);
    pid_ = -1;
    socket_ = -1;
    if (rc < 0) return "unknown";
    if (WIFEXITED(status)) return "exit status " + std::to_string(WEXITSTATUS(status));
    if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
    return "unknown";
}

}  // namespace text
