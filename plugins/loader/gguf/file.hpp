#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace gguf {

/// A regular file, open for reading and mapped whole; the mapping costs no memory until touched.
/// Move-only. Thread: any, after construction.
class MappedFile {
public:
    /// @throws sdk::Error{ASSAY_IO} with path and reason: absent, unreadable, not a regular file
    [[nodiscard]] static MappedFile open(std::string path);
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&&) = delete;
    ~MappedFile();

    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
    [[nodiscard]] std::span<const std::byte> content() const noexcept {
        return {static_cast<const std::byte*>(mapping_), static_cast<std::size_t>(bytes_)};
    }

    /// Whether [offset, offset + bytes) lies in the file as it was when opened.
    [[nodiscard]] bool contains(std::uint64_t offset, std::uint64_t bytes) const noexcept {
        return offset <= bytes_ && bytes <= bytes_ - offset;
    }

    /// @throws sdk::Error{ASSAY_IO} when the file is now shorter than `end`: touching its mapping
    ///         there would kill the process
    void check_not_shrunk(std::uint64_t end) const;
    /// Fills dst with [offset, offset + bytes). @throws sdk::Error{ASSAY_IO}
    void read(std::uint64_t offset, std::uint64_t bytes, void* dst) const;
    /// Asks the kernel to fetch a range; a hint.
    void will_need(std::uint64_t offset, std::uint64_t bytes) const noexcept;

private:
    MappedFile() = default;

    std::string path_;
    std::uint64_t bytes_ = 0;
    int fd_ = -1;
    void* mapping_ = nullptr;
};

}  // namespace gguf
