#include "daemon/base/cgroup.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>

namespace base {

std::uint32_t quota_processors() { return quota_processors("/sys/fs/cgroup", "/proc/self/cgroup"); }

std::uint32_t quota_processors(const std::string& root, const std::string& process) {
    std::string path;
    std::ifstream groups{process};
    for (std::string line; std::getline(groups, line);)
        if (line.starts_with("0::/")) path = line.substr(3);
    double processors = std::numeric_limits<std::uint32_t>::max();
    for (;;) {  // the group, then its parents, the root last
        std::ifstream file{root + path + "/cpu.max"};
        double quota = 0, period = 0;  // "max 100000" where there is none
        if (file >> quota >> period && quota > 0 && period > 0) processors = std::min(processors, quota / period);
        if (path.empty()) break;
        path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
    }
    return static_cast<std::uint32_t>(std::max(1.0, std::ceil(processors)));
}

}  // namespace base
