#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "daemon/base/error.hpp"
#include "daemon/model/event.hpp"
#include "daemon/plugin/instance.hpp"

namespace model {

/// The way of bytes from a file to a device whose memory the host cannot write: pieces of pinned memory,
/// filled in turn, so that one is read while the one before is copied.
///
/// Thread: control.
class Staging {
public:
    Staging(const plugin::Device& device, const plugin::Stream& stream)
        : device_{device}, stream_{stream}, pieces_{Piece{device, stream}, Piece{device, stream}} {}

    /// Queues the copy of `bytes` to `dst`; they are there once the stream has passed it.
    /// @param read  read(offset, bytes, to) fills pinned memory; may throw
    template <class Read>
    void upload(void* dst, std::uint64_t bytes, Read&& read) {
        for (std::uint64_t at = 0; at < bytes; at += kPieceBytes) {
            Piece& piece = pieces_[next_];
            next_ = (next_ + 1) % pieces_.size();
            const std::uint64_t count = std::min(kPieceBytes, bytes - at);
            check(piece.copied.wait());
            read(at, count, piece.memory.data());
            device_.copy(static_cast<char*>(dst) + at, piece.memory.data(), count, stream_);
            check(piece.copied.record());
        }
    }

private:
    static constexpr std::uint64_t kPieceBytes = 64ULL << 20U;
    struct Piece {
        Piece(const plugin::Device& device, const plugin::Stream& stream)
            : memory{device.alloc(kPieceBytes, ASSAY_SPACE_PINNED)}, copied{device, stream} {}
        plugin::Buffer memory;
        Event copied;  // the device has what was here
    };
    void check(assay_status status) const {
        if (status != ASSAY_OK)
            throw base::AssayError{"device plugin \"" + device_.id() + "\": copying weights: status " +
                                   std::to_string(status)};
    }

    const plugin::Device& device_;
    const plugin::Stream& stream_;
    std::array<Piece, 2> pieces_;
    std::size_t next_ = 0;
};

}  // namespace model
