#include "daemon/metrics/process_figures.hpp"

#include <dirent.h>
#include <fstream>
#include <sstream>
#include <string>
#include <unistd.h>

namespace metrics {
namespace {

double boot_seconds() {
    std::ifstream file{"/proc/stat"};
    for (std::string word; file >> word;) {
        double value = 0;
        if (word == "btime" && file >> value) return value;
    }
    return 0;
}

double count_entries(const char* folder) {
    DIR* dir = ::opendir(folder);
    if (dir == nullptr) return 0;
    double n = 0;
    while (const dirent* entry = ::readdir(dir)) n += entry->d_name[0] != '.';
    ::closedir(dir);
    return n - 1;  // the one that reads this folder
}

}  // namespace

std::optional<ProcessFigures> read_process_figures() {
    std::ifstream file{"/proc/self/stat"};
    std::string line;
    if (!std::getline(file, line)) return std::nullopt;
    // The second field is the program's name in parentheses and may hold anything but the last ')'.
    const auto name_end = line.rfind(')');
    if (name_end == std::string::npos) return std::nullopt;
    std::istringstream fields{line.substr(name_end + 1)};
    double values[22] = {};  // fields 4 to 24 of proc(5), at index field - 3
    std::string state;
    fields >> state;
    for (int i = 1; i < 22; ++i)
        if (!(fields >> values[i])) return std::nullopt;

    const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
    static const double boot = boot_seconds();
    ProcessFigures out;
    out.cpu_seconds = (values[14 - 3] + values[15 - 3]) / ticks;
    out.num_threads = values[20 - 3];
    out.start_seconds = boot + values[22 - 3] / ticks;
    out.virtual_bytes = values[23 - 3];
    out.resident_bytes = values[24 - 3] * static_cast<double>(::sysconf(_SC_PAGESIZE));
    out.num_open_fds = count_entries("/proc/self/fd");
    return out;
}

}  // namespace metrics
