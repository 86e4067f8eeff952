#include "file.hpp"

#include "cxx/plugin.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace gguf {
namespace {

std::string reason(int error) {
    return std::generic_category().message(error);
}

[[noreturn]] void throw_io(const std::string& path, const std::string& what) {
    throw sdk::Error{ASSAY_IO, path + ": " + what};
}

const char* kind_of(mode_t mode) noexcept {
    if (S_ISDIR(mode)) return "a folder";
    if (S_ISFIFO(mode)) return "a pipe";
    if (S_ISSOCK(mode)) return "a socket";
    return "a device";
}

}  // namespace

MappedFile MappedFile::open(std::string path) {
    MappedFile file;  // releases what it holds when a step throws
    file.path_ = std::move(path);
    // O_NONBLOCK: opening a pipe must not wait for a writer before we can refuse it.
    file.fd_ = ::open(file.path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file.fd_ < 0) throw_io(file.path_, "cannot open: " + reason(errno));

    struct stat info {};
    if (::fstat(file.fd_, &info) != 0) throw_io(file.path_, "cannot stat: " + reason(errno));
    if (!S_ISREG(info.st_mode))
        throw_io(file.path_,
                 std::string{"expected a regular file, found "} + kind_of(info.st_mode));
    file.bytes_ = static_cast<std::uint64_t>(info.st_size);
    if (file.bytes_ == 0) return file;  // nothing to map; the parser says what is missing

    void* mapping = ::mmap(nullptr, file.bytes_, PROT_READ, MAP_SHARED, file.fd_, 0);
    if (mapping == MAP_FAILED)
        throw_io(file.path_,
                 "cannot map " + std::to_string(file.bytes_) + " bytes: " + reason(errno));
    file.mapping_ = mapping;
    return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_{std::move(other.path_)},
      bytes_{std::exchange(other.bytes_, 0)},
      fd_{std::exchange(other.fd_, -1)},
      mapping_{std::exchange(other.mapping_, nullptr)} {}

MappedFile::~MappedFile() {
    if (mapping_ != nullptr) ::munmap(mapping_, bytes_);
    if (fd_ >= 0) ::close(fd_);
}

void MappedFile::check_not_shrunk(std::uint64_t end) const {
    struct stat info {};
    if (::fstat(fd_, &info) != 0) throw_io(path_, "cannot stat: " + reason(errno));
    if (static_cast<std::uint64_t>(info.st_size) < end)
        throw_io(path_, "the file shrank while in use: expected at least " + std::to_string(end) +
                            " bytes, found " + std::to_string(info.st_size));
}

void MappedFile::read(std::uint64_t offset, std::uint64_t bytes, void* dst) const {
    constexpr std::uint64_t kMaxRead = 1ull << 30;  // the kernel returns less than 2 GiB at once
    auto* out = static_cast<char*>(dst);
    while (bytes > 0) {
        const ::ssize_t got =
            ::pread(fd_, out, std::min(bytes, kMaxRead), static_cast<::off_t>(offset));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            throw_io(path_, "cannot read at byte " + std::to_string(offset) + ": " + reason(errno));
        if (got == 0)
            throw_io(path_, "the file shrank while in use: it ends at byte " +
                                std::to_string(offset) + ", " + std::to_string(bytes) +
                                " bytes short");
        const auto done = static_cast<std::uint64_t>(got);
        out += done;
        offset += done;
        bytes -= done;
    }
}

void MappedFile::will_need(std::uint64_t offset, std::uint64_t bytes) const noexcept {
    if (mapping_ == nullptr || bytes == 0 || !contains(offset, bytes)) return;
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    const std::uint64_t start = offset & ~(page - 1);
    (void)::madvise(static_cast<char*>(mapping_) + start, offset + bytes - start, MADV_WILLNEED);
}

}  // namespace gguf
