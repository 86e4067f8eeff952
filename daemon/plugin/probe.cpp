#include "daemon/plugin/probe.hpp"

#include "daemon/plugin/probe_report.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <poll.h>
#include <spawn.h>
#include <string_view>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

extern char** environ;

namespace plugin {
namespace {

using Clock = std::chrono::steady_clock;

class Fd {
public:
    explicit Fd(int fd = -1) noexcept : fd_{fd} {}
    Fd(Fd&& other) noexcept : fd_{std::exchange(other.fd_, -1)} {}
    Fd& operator=(Fd&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~Fd() { close(); }
    [[nodiscard]] int get() const noexcept { return fd_; }
    void close() noexcept {
        if (fd_ >= 0) ::close(std::exchange(fd_, -1));
    }

private:
    int fd_;
};

struct Pipe {
    Fd read, write;
};

// Both ends above the numbers that the child's descriptors get, so that none overwrites another.
std::optional<Pipe> make_pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return std::nullopt;
    const Fd low_read{ends[0]}, low_write{ends[1]};
    Pipe pipe{Fd{fcntl(ends[0], F_DUPFD_CLOEXEC, 10)}, Fd{fcntl(ends[1], F_DUPFD_CLOEXEC, 10)}};
    if (pipe.read.get() < 0 || pipe.write.get() < 0) return std::nullopt;
    fcntl(pipe.read.get(), F_SETFL, O_NONBLOCK);
    return pipe;
}

// Starts the child: no input, both outputs into `output`, the report on its own descriptor, nothing
// else inherited, signals as a fresh process has them, a process group of its own.
int spawn(const std::vector<std::string>& argv, int output, int report, pid_t& pid) {
    std::vector<char*> args;
    for (const std::string& arg : argv) args.push_back(const_cast<char*>(arg.c_str()));
    args.push_back(nullptr);

    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, output, 1);
    posix_spawn_file_actions_adddup2(&files, output, 2);
    posix_spawn_file_actions_adddup2(&files, report, report::kFd);
    posix_spawn_file_actions_addclosefrom_np(&files, report::kFd + 1);

    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    const int error = posix_spawn(&pid, args[0], &files, &attributes, args.data(), environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return error;
}

// Everything that can be read now; at most `limit` bytes are kept, the last ones when `keep_tail`.
void drain(Fd& fd, std::string& text, std::size_t limit, bool keep_tail) {
    char buffer[4096];
    while (fd.get() >= 0) {
        const ssize_t got = read(fd.get(), buffer, sizeof buffer);
        if (got > 0) {
            text.append(buffer, static_cast<std::size_t>(got));
            if (text.size() > limit)
                keep_tail ? text.erase(0, text.size() - limit) : text.erase(limit);
        } else if (got < 0 && errno == EINTR) {
            continue;
        } else if (got < 0 && errno == EAGAIN) {
            return;
        } else {
            fd.close();
        }
    }
}

std::string printable(std::string_view text) {
    std::string out{text};
    for (char& c : out)
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
    return out;
}

// The last thing that the child wrote to its outputs: a runtime's words about an abort, say.
std::string last_words(std::string_view output) {
    while (!output.empty() && output.back() == '\n') output.remove_suffix(1);
    const std::size_t start = output.rfind('\n');
    if (start != std::string_view::npos) output.remove_prefix(start + 1);
    return printable(output.substr(0, 300));
}

struct Parsed {
    std::string stage = "starting";
    std::string problem;
    bool done = false;
};

Parsed parse(std::string_view text, ProbeResult& result) {
    Parsed parsed;
    while (!text.empty()) {
        const std::size_t end = text.find('\n');
        if (end == std::string_view::npos) break;  // cut off: the child ended while writing
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(end + 1);
        if (line.empty()) continue;
        const std::string body = printable(line.substr(1));
        switch (line[0]) {
            case report::kStage:
                parsed.stage = body;
                break;
            case report::kProblem:
                parsed.problem += (parsed.problem.empty() ? "" : "; ") + body;
                break;
            case report::kFact: {
                const std::string_view pair = line.substr(1);
                const std::size_t tab = std::min(pair.find('\t'), pair.size());
                result.facts.emplace_back(printable(pair.substr(0, tab)),
                                          printable(pair.substr(std::min(tab + 1, pair.size()))));
                break;
            }
            case report::kDone:
                parsed.done = true;
                break;
            default:
                break;
        }
    }
    return parsed;
}

std::string signal_text(int signal) {
    const char* const name = sigabbrev_np(signal);
    return "signal " + std::to_string(signal) +
           (name != nullptr ? ", SIG" + std::string{name} : "");
}

std::string verdict(const Parsed& parsed, int status, const std::string& output) {
    if (!parsed.problem.empty()) return parsed.problem;
    const std::string words = last_words(output);
    const std::string wrote = words.empty() ? "" : "; last output: " + words;
    if (WIFSIGNALED(status))
        return "crashed in " + parsed.stage + " (" + signal_text(WTERMSIG(status)) + ")" + wrote;
    if (!parsed.done)
        return "ended the process with exit status " + std::to_string(WEXITSTATUS(status)) +
               " in " + parsed.stage + wrote;
    if (WEXITSTATUS(status) != 0)
        return "the probe ended with exit status " + std::to_string(WEXITSTATUS(status)) + wrote;
    return {};
}

std::string seconds(std::chrono::milliseconds time) {
    if (time.count() % 1000 == 0) return std::to_string(time.count() / 1000) + " s";
    return std::to_string(time.count()) + " ms";
}

}  // namespace

ProbeResult probe(const ProbeCommand& command, const std::filesystem::path& image,
                  std::chrono::milliseconds timeout) {
    ProbeResult result;
    const auto start = Clock::now();
    auto report = make_pipe();
    auto output = make_pipe();
    if (!report || !output) {
        result.problem =
            "not examined: no pipe for a child process: " + std::string{strerror(errno)};
        return result;
    }
    std::vector<std::string> argv = command.argv;
    argv.push_back(image.string());
    pid_t pid = -1;
    if (const int error = spawn(argv, output->write.get(), report->write.get(), pid); error != 0) {
        result.problem = "not examined: cannot start " + argv[0] + ": " + strerror(error);
        return result;
    }
    report->write.close();
    output->write.close();

    std::string report_text, output_text;
    int status = 0;
    bool ended = false;
    while (!ended) {
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(timeout - (Clock::now() - start));
        if (left.count() <= 0) break;
        // The pipes close when the child ends, unless a grandchild holds them: hence the short
        // waits.
        std::array<pollfd, 2> fds{pollfd{report->read.get(), POLLIN, 0},
                                  pollfd{output->read.get(), POLLIN, 0}};
        const bool both_closed = fds[0].fd < 0 && fds[1].fd < 0;
        poll(fds.data(), fds.size(),
             both_closed ? 1 : static_cast<int>(std::min<long>(20, left.count())));
        drain(report->read, report_text, report::kMaxBytes, false);
        drain(output->read, output_text, 4096, true);
        siginfo_t info{};  // not reaped yet, so that its number stays taken
        ended = waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                info.si_pid == pid;
    }
    kill(-pid, SIGKILL);  // the child when it is late, and whatever it started
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    drain(report->read, report_text, report::kMaxBytes, false);
    drain(output->read, output_text, 4096, true);

    const Parsed parsed = parse(report_text, result);
    result.problem = ended ? verdict(parsed, status, output_text)
                           : "hung in " + parsed.stage + ": no answer within " + seconds(timeout);
    result.duration = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
    return result;
}

const ProbeResult* ProbeCache::find(const std::string& sha256) const {
    const auto it = results_.find(sha256);
    return it == results_.end() ? nullptr : &it->second;
}

const ProbeResult& ProbeCache::keep(const std::string& sha256, ProbeResult result) {
    return results_[sha256] = std::move(result);
}

}  // namespace plugin
