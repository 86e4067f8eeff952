#include "output_file.hpp"

#include "cxx/plugin.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace gguf {
namespace {

/// Renames without replacing. File systems that cannot do it in one step are asked in two.
bool rename_new(const std::string& from, const std::string& to) {
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0)
        return true;
    if (errno != EINVAL && errno != ENOSYS) return false;
    if (::access(to.c_str(), F_OK) == 0) {
        errno = EEXIST;
        return false;
    }
    return std::rename(from.c_str(), to.c_str()) == 0;
}

}  // namespace

void OutputFile::fail(const std::string& what, int error) const {
    throw sdk::Error{ASSAY_IO, path_ + ": " + what + ": " + std::generic_category().message(error)};
}

OutputFile::OutputFile(std::string path, std::uint64_t bytes, Space space)
    : path_{std::move(path)}, partial_{path_ + ".partial-" + std::to_string(::getpid())} {
    struct stat info {};
    if (::lstat(path_.c_str(), &info) == 0)
        throw sdk::Error{ASSAY_IO, path_ + ": exists already, and is not overwritten"};
    fd_ = ::open(partial_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd_ < 0) fail("cannot be created", errno);
    try {
        if (space == Space::reserved) check_room(bytes);
        if (::ftruncate(fd_, static_cast<::off_t>(bytes)) != 0) fail("cannot be sized", errno);
        if (space == Space::sparse || bytes == 0) return;
        // EOPNOTSUPP: this file system allocates as it is written.
        if (::fallocate(fd_, 0, 0, static_cast<::off_t>(bytes)) != 0 && errno != EOPNOTSUPP &&
            errno != ENOSYS)
            fail("cannot be allocated", errno);
    } catch (...) {
        ::close(fd_);
        ::unlink(partial_.c_str());
        throw;
    }
}

/// Asked first: an allocation that fails may have filled the disk until then.
void OutputFile::check_room(std::uint64_t bytes) const {
    struct statvfs disk {};
    if (::fstatvfs(fd_, &disk) != 0) return;
    const std::uint64_t free = std::uint64_t{disk.f_bavail} * disk.f_frsize;
    if (bytes > free)
        fail("needs " + std::to_string(bytes) + " bytes, " + std::to_string(free) + " are free",
             ENOSPC);
}

OutputFile::~OutputFile() {
    if (fd_ < 0) return;
    ::close(fd_);
    ::unlink(partial_.c_str());
}

void OutputFile::write(std::uint64_t offset, const void* data, std::uint64_t bytes) const {
    constexpr std::uint64_t kMaxWrite = 1ull << 30;
    const auto* from = static_cast<const char*>(data);
    while (bytes > 0) {
        const ::ssize_t done =
            ::pwrite(fd_, from, std::min(bytes, kMaxWrite), static_cast<::off_t>(offset));
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0)
            fail("cannot be written at byte " + std::to_string(offset), done < 0 ? errno : ENOSPC);
        from += done;
        offset += static_cast<std::uint64_t>(done);
        bytes -= static_cast<std::uint64_t>(done);
    }
}

void OutputFile::sync() const {
    if (::fsync(fd_) != 0) fail("cannot be written to the disk", errno);
}

void OutputFile::commit() {
    if (!rename_new(partial_, path_)) fail("cannot be named so", errno);
    // Only now: a close that fails (a network disk that is full) takes the file away again.
    const int fd = std::exchange(fd_, -1);
    if (::close(fd) != 0) {
        const int error = errno;
        ::unlink(path_.c_str());
        fail("cannot be closed", error);
    }
}

}  // namespace gguf
