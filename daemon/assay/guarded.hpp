#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "cxx/plugin.hpp"
#include "daemon/assay/tally.hpp"
#include "daemon/plugin/instance.hpp"

namespace assay {

/// Device memory for four-byte elements with 256 bytes of sentinels on both sides.
class Guarded {
public:
    Guarded(const plugin::Device& device, const plugin::Stream& stream, std::int64_t count)
        : device_{device}, stream_{stream}, count_{static_cast<std::size_t>(count)}, buffer_{device.alloc((count_ + 2 * kGuard) * 4)} {
        host_.assign(count_ + 2 * kGuard, std::bit_cast<float>(kSentinel));
        upload();
    }

    [[nodiscard]] float* data() const { return buffer_.as<float>() + kGuard; }
    [[nodiscard]] std::int32_t* ints() const { return buffer_.as<std::int32_t>() + kGuard; }
    /// Sets the elements.
    void set(std::span<const float> values) {
        std::memcpy(host_.data() + kGuard, values.data(), values.size_bytes());
        upload();
    }
    void set(std::span<const std::int32_t> values) {
        std::memcpy(host_.data() + kGuard, values.data(), values.size_bytes());
        upload();
    }
    void poison() {
        std::fill(host_.begin(), host_.end(), std::bit_cast<float>(kSentinel));
        upload();
    }
    /// Everything, guards included, as it is on the device now.
    [[nodiscard]] std::vector<float> whole() const {
        std::vector<float> out(host_.size());
        device_.copy(out.data(), buffer_.data(), out.size() * 4, stream_);
        stream_.sync();
        return out;
    }
    [[nodiscard]] std::vector<float> elements() const {
        std::vector<float> all = whole();
        return {all.begin() + kGuard, all.end() - kGuard};
    }
    /// "" or which guard was written to.
    [[nodiscard]] std::string damage() const {
        const std::vector<float> all = whole();
        const auto is_sentinel = [](float f) { return std::bit_cast<std::uint32_t>(f) == kSentinel; };
        for (std::size_t i = 0; i < kGuard; ++i) {
            if (!is_sentinel(all[kGuard - 1 - i])) return "wrote " + std::to_string(4 * (i + 1)) + " bytes before the beginning of its output";
            if (!is_sentinel(all[kGuard + count_ + i])) return "wrote " + std::to_string(4 * (i + 1)) + " bytes past the end of its output";
        }
        return {};
    }

private:
    static constexpr std::size_t kGuard = 64;
    void upload() {
        device_.copy(buffer_.data(), host_.data(), host_.size() * 4, stream_);
        stream_.sync();
    }

    const plugin::Device& device_;
    const plugin::Stream& stream_;
    std::size_t count_;
    plugin::Buffer buffer_;
    std::vector<float> host_;
};

/// Bits that two runs of one call must share.
[[nodiscard]] inline bool same_bits(std::span<const float> a, std::span<const float> b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

}  // namespace assay
