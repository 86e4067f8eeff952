#include "daemon/model/residency.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fstream>
#include <system_error>
#include <vector>

#include "cxx/plugin.hpp"
#include "daemon/base/error.hpp"

namespace model {
namespace {

#ifndef MADV_POPULATE_READ
constexpr int MADV_POPULATE_READ = 22;  // Linux 5.14
#endif

struct Range {
    const FileTensor* tensor;
    const char* data;
    std::uint64_t bytes;
};

std::uint64_t page_bytes() {
    static const auto bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    return bytes;
}

/// Whole pages around a range.
std::pair<void*, std::size_t> pages_of(const Range& range) {
    const auto begin = reinterpret_cast<std::uintptr_t>(range.data) & ~(page_bytes() - 1);
    const auto end = reinterpret_cast<std::uintptr_t>(range.data) + range.bytes;
    return {reinterpret_cast<void*>(begin), end - begin};
}

/// Each tensor that some parameter is made from, once.
std::vector<const FileTensor*> tensors_read(const ModelFile& file, const AuditReport& audit) {
    std::vector<bool> is_read(file.tensors().size(), false);
    const auto add = [&](const TensorMap::Roles& roles) {
        for (const std::int64_t index : roles)
            if (index >= 0) is_read[static_cast<std::size_t>(index)] = true;
    };
    add(audit.map.whole);
    for (const auto& roles : audit.map.layers) add(roles);
    std::vector<const FileTensor*> out;
    for (std::size_t i = 0; i < is_read.size(); ++i)
        if (is_read[i]) out.push_back(&file.tensors()[i]);
    return out;
}

/// 0, or the errno of what went wrong.
int populate(const Range& range) {
    const auto [begin, bytes] = pages_of(range);
    if (::madvise(begin, bytes, MADV_POPULATE_READ) == 0) return 0;
    if (errno != EINVAL) return errno;
    // A kernel that cannot: fetch ahead, then touch.
    (void)::madvise(begin, bytes, MADV_WILLNEED);
    const auto* page = static_cast<const volatile char*>(begin);
    for (std::size_t at = 0; at < bytes; at += page_bytes()) (void)page[at];
    return 0;
}

std::string reason(int error) {
    return std::generic_category().message(error);
}

}  // namespace

std::uint64_t bytes_read(const ModelFile& file, const AuditReport& audit) {
    std::uint64_t bytes = 0;
    for (const FileTensor* tensor : tensors_read(file, audit)) bytes += tensor->bytes;
    return bytes;
}

std::uint64_t available_memory() {
    std::ifstream in{"/proc/meminfo"};
    std::string key, unit;
    std::uint64_t kib = 0;
    while (in >> key >> kib) {
        std::getline(in, unit);
        if (key == "MemAvailable:") return kib * 1024;
    }
    return 0;
}

Residency make_resident(const ModelFile& file, const AuditReport& audit, const assay_lanes* lanes,
                        const ResidencyOptions& options, const std::function<void(std::uint64_t)>& on_bytes) {
    constexpr std::uint64_t kPieceBytes = 16ULL << 20U;
    Residency residency;
    std::vector<Range> whole, pieces;
    for (const FileTensor* tensor : tensors_read(file, audit)) {
        residency.bytes += tensor->bytes;
        const auto* data = static_cast<const char*>(file.map(*tensor));
        if (data == nullptr) continue;  // a loader that only reads
        whole.push_back({tensor, data, tensor->bytes});
        for (std::uint64_t at = 0; at < tensor->bytes; at += kPieceBytes)
            pieces.push_back({tensor, data + at, std::min(kPieceBytes, tensor->bytes - at)});
    }
    const std::uint64_t memory = options.memory_bytes > 0 ? options.memory_bytes : available_memory();
    if (pieces.empty() || (memory != 0 && residency.bytes > memory && !options.lock)) return residency;

    std::atomic<std::size_t> failed{pieces.size()};
    std::atomic<int> error{0};
    sdk::parallel_for(lanes, static_cast<std::int64_t>(pieces.size()), [&](std::uint32_t i, std::uint32_t) noexcept {
        if (error != 0) return;
        if (const int e = populate(pieces[i]); e != 0) {
            failed = i;
            error = e;
        } else if (on_bytes) {
            on_bytes(pieces[i].bytes);
        }
    });
    if (error != 0)
        throw base::ModelError{file.path() + ": tensor \"" + pieces[failed].tensor->name + "\" cannot be read: " +
                               reason(error)};
    residency.is_resident = true;
    if (!options.lock) return residency;
    for (const Range& range : whole) {
        const auto [begin, bytes] = pages_of(range);
        if (::mlock(begin, bytes) != 0)
            throw base::ConfigError{"model.lock_memory: " + std::to_string(residency.bytes) +
                                    " bytes of weights cannot be locked: " + reason(errno) +
                                    "; raise the limit of locked memory (LimitMEMLOCK in systemd, ulimit -l) or set "
                                    "it to false"};
    }
    return residency;
}

}  // namespace model
