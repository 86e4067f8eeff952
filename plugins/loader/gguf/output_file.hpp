#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gguf {

/// A file that appears under its name only when it is whole, and never in place of another.
///
/// Until commit() it is "<path>.partial-<process id>", which is removed when this object goes
/// without a commit. Everything throws sdk::Error{ASSAY_IO} with path and reason.
class OutputFile {
public:
    enum class Space {
        reserved,  ///< all of it is allocated at once: a full disk shows before any work is done
        sparse,    ///< holes until written
    };

    /// @param bytes  its size from the start; what is not written reads as zeros
    OutputFile(std::string path, std::uint64_t bytes, Space space = Space::reserved);
    ~OutputFile();
    OutputFile(const OutputFile&) = delete;
    OutputFile& operator=(const OutputFile&) = delete;

    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    /// Writes all of [data, data + bytes) at `offset`. Thread: any, ranges that do not overlap.
    void write(std::uint64_t offset, const void* data, std::uint64_t bytes) const;
    /// On the disk for good: survives a power cut. Before commit(), where that is wanted.
    void sync() const;
    /// Gives it its name; fails when another file has taken it meanwhile.
    void commit();

private:
    void check_room(std::uint64_t bytes) const;
    [[noreturn]] void fail(const std::string& what, int error) const;

    std::string path_, partial_;
    int fd_ = -1;
};

}  // namespace gguf
