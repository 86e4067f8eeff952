#include "machine.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sched.h>
#include <set>
#include <sstream>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

namespace cpu {
namespace {

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

std::string first_line(const std::string& path) {
    std::ifstream file{path};
    std::string line;
    std::getline(file, line);
    return line;
}

/// A whole number at the head of `text`, or `fallback` ("max" is such a case).
std::uint64_t number(const std::string& text, std::uint64_t fallback) {
    std::istringstream in{text};
    std::uint64_t value;
    return in >> value ? value : fallback;
}

/// The value of a "key : value" or "key: value kB" line.
std::string field(const std::string& path, std::string_view key) {
    std::ifstream file{path};
    for (std::string line; std::getline(file, line);) {
        if (!line.starts_with(key)) continue;
        const std::size_t colon = line.find(':');
        if (colon == std::string::npos) continue;
        const std::size_t start = line.find_first_not_of(" \t", colon + 1);
        return start == std::string::npos ? std::string{} : line.substr(start);
    }
    return {};
}

/// The folders of this process's control group (version 2) and of its parents.
std::vector<std::string> cgroup_folders() {
    const std::string root = "/sys/fs/cgroup";
    std::vector<std::string> folders{root};
    std::ifstream file{"/proc/self/cgroup"};
    for (std::string line; std::getline(file, line);) {
        if (!line.starts_with("0::/")) continue;
        std::string path = line.substr(3);
        while (path.size() > 1) {
            folders.push_back(root + path);
            path.resize(std::max<std::size_t>(path.rfind('/'), 1));
            if (path == "/") break;
        }
    }
    return folders;
}

/// Distinct (package, core) pairs among the allowed CPUs: two threads of one core share its vector
/// units and its cache, so they do not count twice.
std::int32_t allowed_cores() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    std::set<std::pair<std::uint64_t, std::uint64_t>> cores;
    for (std::uint64_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &set)) continue;
        const std::string topology =
            "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
        const std::string core = first_line(topology + "core_id");
        // Without a topology each CPU counts as a core of its own.
        cores.emplace(
            core.empty() ? kUnlimited : number(first_line(topology + "physical_package_id"), 0),
            core.empty() ? cpu : number(core, cpu));
    }
    return std::max(1, static_cast<std::int32_t>(cores.size()));
}

/// Whole CPUs' worth of time that the control groups allow, rounded up.
std::int32_t quota_cores() {
    double cores = 1e6;
    for (const std::string& folder : cgroup_folders()) {
        std::istringstream max{first_line(folder + "/cpu.max")};
        double quota, period;
        if (max >> quota >> period && period > 0) cores = std::min(cores, quota / period);
    }
    const double quota = static_cast<double>(
        number(first_line("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), kUnlimited));  // version 1
    const double period =
        static_cast<double>(number(first_line("/sys/fs/cgroup/cpu/cpu.cfs_period_us"), 0));
    if (period > 0) cores = std::min(cores, quota / period);
    return std::max(1, static_cast<std::int32_t>(cores + 0.999));
}

std::uint64_t l2_bytes() {
    for (int index = 0; index < 8; ++index) {
        const std::string cache =
            "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
        if (first_line(cache + "level") != "2") continue;
        const std::string size = first_line(cache + "size");
        const std::uint64_t unit = size.ends_with('M')   ? 1u << 20
                                   : size.ends_with('K') ? 1u << 10
                                                         : 1;
        return number(size, 0) * unit;
    }
    return 0;
}

}  // namespace

std::uint64_t free_in_group(const std::string& folder, std::uint64_t limit) {
    const std::uint64_t used = number(first_line(folder + "/memory.current"), 0);
    // Cached files, mapped ones among them, count as used and are given up when memory is needed.
    std::uint64_t cached = 0;
    std::ifstream stat{folder + "/memory.stat"};
    std::string key;
    for (std::uint64_t value; stat >> key >> value;)
        if (key == "inactive_file" || key == "active_file") cached += value;
    const std::uint64_t held = used - std::min(used, cached);
    return limit - std::min(limit, held);
}

void memory_now(std::uint64_t& free_bytes, std::uint64_t& total_bytes) {
    const auto page_bytes = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    total_bytes = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * page_bytes;
    free_bytes = static_cast<std::uint64_t>(sysconf(_SC_AVPHYS_PAGES)) * page_bytes;
    // The kernel's own estimate also counts caches that it would give up.
    free_bytes = std::max(free_bytes, number(field("/proc/meminfo", "MemAvailable:"), 0) * 1024);
    for (const std::string& folder : cgroup_folders()) {
        const std::uint64_t limit = number(first_line(folder + "/memory.max"), kUnlimited);
        if (limit >= total_bytes) continue;
        total_bytes = limit;
        free_bytes = std::min(free_bytes, free_in_group(folder, limit));
    }
}

Machine describe_machine() {
    Machine machine;
    machine.model = field("/proc/cpuinfo", "model name");
    if (machine.model.empty()) machine.model = "CPU";
    machine.num_cores = std::min(allowed_cores(), quota_cores());
    machine.l2_bytes = l2_bytes();
    std::uint64_t free_bytes;
    memory_now(free_bytes, machine.total_bytes);
    return machine;
}

}  // namespace cpu
