#include "daemon/app/model_watch.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "daemon/base/error.hpp"

namespace app {

bool ModelWatch::look(Entry& entry) {
    struct stat s{};
    if (::stat(entry.path.c_str(), &s) != 0) return false;
    entry.device = s.st_dev;
    entry.inode = s.st_ino;
    entry.size = static_cast<std::uint64_t>(s.st_size);
    entry.modified_ns = std::int64_t{s.st_mtim.tv_sec} * 1'000'000'000 + s.st_mtim.tv_nsec;
    return true;
}

ModelWatch::ModelWatch(const std::vector<std::string>& files) {
    for (const std::string& file : files) {
        Entry entry;
        entry.path = file;
        if (look(entry)) entries_.push_back(entry);
    }
}

std::string ModelWatch::change() const {
    for (const Entry& before : entries_) {
        Entry now;
        now.path = before.path;
        if (!look(now) || now.device != before.device || now.inode != before.inode) continue;  // another file
        if (now.size != before.size)
            return before.path + " had " + std::to_string(before.size) + " bytes and has " + std::to_string(now.size);
        if (now.modified_ns != before.modified_ns) return before.path + " was written to";
    }
    return {};
}

// ---- SIGBUS -------------------------------------------------------------------------------------
// Everything below runs, or is read, in a signal handler: no allocation, no lock, no stdio.

namespace {

constexpr std::size_t kMaxPath = 4096;
char model_paths[64 * 1024];  // each ended by a NUL, an empty one behind the last
int log_descriptor = -1;

void say(const char* text) {
    const std::size_t size = std::strlen(text);
    for (const int fd : {STDERR_FILENO, log_descriptor})
        if (fd >= 0 && ::write(fd, text, size) < 0) continue;  // there is nobody left to tell
}

/// One line of /proc/self/maps as it arrives, byte by byte.
struct MapsLine {
    std::uintptr_t begin = 0, end = 0;
    int field = 0;  // 0 begin, 1 end, 2… the rest, separated by spaces; the path is field 6
    bool was_space = false;
    char path[kMaxPath] = {};
    std::size_t path_bytes = 0;

    void take(char c) {
        if (field < 2) {
            const bool is_digit = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
            std::uintptr_t& number = field == 0 ? begin : end;
            if (is_digit) number = number * 16 + static_cast<std::uintptr_t>(c <= '9' ? c - '0' : c - 'a' + 10);
            if (!is_digit) ++field;
            was_space = c == ' ';
        } else if (field < 6) {
            if (c != ' ' && was_space) ++field;  // permissions are field 3, offset 4, device 5, inode 6
            was_space = c == ' ';
        }
        if (field >= 6 && c == '/' && path_bytes == 0) path[path_bytes++] = c;
        else if (path_bytes > 0 && path_bytes + 1 < kMaxPath) path[path_bytes++] = c;
    }
};

/// The file whose mapping holds the address; "" for none.
void file_at(std::uintptr_t address, char (&path)[kMaxPath]) {
    static MapsLine line;  // too large for a thread's alternate stack
    path[0] = '\0';
    const int fd = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    static char buffer[8192];
    line = {};
    for (ssize_t n = 0; (n = ::read(fd, buffer, sizeof buffer)) > 0;) {
        for (ssize_t i = 0; i < n; ++i) {
            if (buffer[i] != '\n') {
                line.take(buffer[i]);
                continue;
            }
            if (line.begin <= address && address < line.end) {
                std::memcpy(path, line.path, line.path_bytes + 1);
                ::close(fd);
                return;
            }
            line = {};
        }
    }
    ::close(fd);
}

bool is_model_file(const char* path) {
    for (const char* model = model_paths; *model != '\0'; model += std::strlen(model) + 1)
        if (std::strcmp(model, path) == 0) return true;
    return false;
}

void on_bus_error(int, siginfo_t* info, void*) {
    // The second thread that gets here waits for the first to end the process.
    static volatile sig_atomic_t entered = 0;
    if (__atomic_exchange_n(&entered, 1, __ATOMIC_SEQ_CST) != 0) ::pause();
    static char path[kMaxPath];
    file_at(reinterpret_cast<std::uintptr_t>(info->si_addr), path);
    say("assayd: ");
    say(path[0] != '\0' ? path : "memory that is no file's");
    say(": mapped bytes are gone (SIGBUS): the file was cut short or written over while it was served, or its disk "
        "failed. Replace a model file with mv, never in place.\n");
    if (is_model_file(path)) ::_exit(static_cast<int>(base::ExitCode::bad_model));
    ::signal(SIGBUS, SIG_DFL);
    entered = 0;  // returns to the instruction, which faults again
}

}  // namespace

void explain_bus_errors(const std::vector<std::string>& model_files, int log_fd) {
    std::size_t at = 0;
    for (const std::string& file : model_files) {
        std::error_code error;
        const std::filesystem::path real = std::filesystem::canonical(file, error);
        const std::string path = error ? file : real.string();
        if (at + path.size() + 2 > sizeof model_paths) break;
        std::memcpy(model_paths + at, path.c_str(), path.size() + 1);
        at += path.size() + 1;
    }
    log_descriptor = log_fd;
    struct sigaction action{};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace app
