#include "weights.hpp"

#include "cxx/plugin.hpp"
#include "text.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace gguf {
namespace {

/// How a block stores what must be finite.
enum class Scale { none, f16, bf16, f32, f64, e8m0, ue4m3, iq1_m };

struct ScaleLayout {
    const char* format;
    Scale kind;
    std::uint32_t offset;  // of the first scale in the block
    std::uint32_t count;   // scales that follow each other
};

// clang-format off
constexpr ScaleLayout kLayouts[] = {
    {"f32", Scale::f32, 0, 1},     {"f16", Scale::f16, 0, 1},     {"bf16", Scale::bf16, 0, 1},
    {"f64", Scale::f64, 0, 1},     {"q4_0", Scale::f16, 0, 1},    {"q4_1", Scale::f16, 0, 2},
    {"q5_0", Scale::f16, 0, 1},    {"q5_1", Scale::f16, 0, 2},    {"q8_0", Scale::f16, 0, 1},
    {"q8_1", Scale::f16, 0, 2},    {"q2_k", Scale::f16, 80, 2},   {"q3_k", Scale::f16, 108, 1},
    {"q4_k", Scale::f16, 0, 2},    {"q5_k", Scale::f16, 0, 2},    {"q6_k", Scale::f16, 208, 1},
    {"q8_k", Scale::f32, 0, 1},    {"iq2_xxs", Scale::f16, 0, 1}, {"iq2_xs", Scale::f16, 0, 1},
    {"iq3_xxs", Scale::f16, 0, 1}, {"iq1_s", Scale::f16, 0, 1},   {"iq4_nl", Scale::f16, 0, 1},
    {"iq3_s", Scale::f16, 0, 1},   {"iq2_s", Scale::f16, 0, 1},   {"iq4_xs", Scale::f16, 0, 1},
    {"iq1_m", Scale::iq1_m, 48, 1}, {"tq1_0", Scale::f16, 52, 1}, {"tq2_0", Scale::f16, 64, 1},
    {"mxfp4", Scale::e8m0, 0, 1},  {"nvfp4", Scale::ue4m3, 0, 4}, {"q1_0", Scale::f16, 0, 1},
    {"q2_0", Scale::f16, 0, 1},
};
// clang-format on

ScaleLayout layout_of(const TensorType& type) noexcept {
    for (const ScaleLayout& layout : kLayouts)
        if (std::string_view{layout.format} == type.format) return layout;
    return {type.format, Scale::none, 0, 0};
}

template <class T>
T load(const char* at) noexcept {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

constexpr bool is_f16_finite(std::uint32_t bits) noexcept {
    return (bits & 0x7c00) != 0x7c00;
}

/// IQ1_M spreads its fp16 scale over the top nibbles of four 16-bit words.
std::uint32_t iq1_m_scale(const char* words) noexcept {
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 4; ++i) bits |= (load<std::uint16_t>(words + 2 * i) >> 12) << 4 * i;
    return bits;
}

/// Walks blocks of `block_bytes`, `count` scales each, `scale_bytes` apart.
template <class IsFinite>
std::optional<std::uint64_t> walk(std::string_view data, std::uint32_t block_bytes,
                                  const ScaleLayout& layout, std::uint32_t scale_bytes,
                                  IsFinite is_finite) noexcept {
    const std::uint64_t num_blocks = data.size() / block_bytes;
    const char* block = data.data() + layout.offset;
    for (std::uint64_t b = 0; b < num_blocks; ++b, block += block_bytes)
        for (std::uint32_t i = 0; i < layout.count; ++i)
            if (!is_finite(block + std::size_t{i} * scale_bytes)) return b;
    return std::nullopt;
}

}  // namespace

std::optional<std::uint64_t> find_non_finite(const TensorType& type,
                                             std::string_view data) noexcept {
    const ScaleLayout layout = layout_of(type);
    const std::uint32_t bytes = type.block_bytes;
    switch (layout.kind) {
        case Scale::none:
            return std::nullopt;
        case Scale::f16:
            return walk(data, bytes, layout, 2,
                        [](const char* p) { return is_f16_finite(load<std::uint16_t>(p)); });
        case Scale::bf16:
            return walk(data, bytes, layout, 2,
                        [](const char* p) { return (load<std::uint16_t>(p) & 0x7f80) != 0x7f80; });
        case Scale::f32:
            return walk(data, bytes, layout, 4, [](const char* p) {
                return (load<std::uint32_t>(p) & 0x7f800000) != 0x7f800000;
            });
        case Scale::f64:
            return walk(data, bytes, layout, 8, [](const char* p) {
                return (load<std::uint64_t>(p) >> 52 & 0x7ff) != 0x7ff;
            });
        case Scale::e8m0:
            return walk(data, bytes, layout, 1,
                        [](const char* p) { return load<std::uint8_t>(p) != 0xff; });
        case Scale::ue4m3:  // 0x7f is NaN; the sign bit is never set by a writer
            return walk(data, bytes, layout, 1,
                        [](const char* p) { return load<std::uint8_t>(p) < 0x7f; });
        case Scale::iq1_m:
            return walk(data, bytes, layout, 8,
                        [](const char* p) { return is_f16_finite(iq1_m_scale(p)); });
    }
    return std::nullopt;
}

void check_weights(const Header& header, std::span<const std::byte> file, std::string_view name,
                   const assay_lanes* lanes) {
    constexpr std::uint64_t kPieceBytes = 16ull << 20;  // enough pieces to keep all lanes busy
    constexpr std::uint64_t kNone = UINT64_MAX;
    struct Piece {
        const TensorInfo* tensor;
        std::uint64_t first_block, num_blocks;
        std::uint64_t bad_block = kNone;
    };
    std::vector<Piece> pieces;
    for (const TensorInfo& tensor : header.tensors) {
        const std::uint64_t num_blocks = tensor.bytes / tensor.type->block_bytes;
        const std::uint64_t step = kPieceBytes / tensor.type->block_bytes;
        for (std::uint64_t b = 0; b < num_blocks; b += step)
            pieces.push_back({&tensor, b, std::min(step, num_blocks - b)});
    }
    const auto* bytes = reinterpret_cast<const char*>(file.data());
    sdk::parallel_for(
        lanes, static_cast<std::int64_t>(pieces.size()),
        [&](std::uint32_t i, std::uint32_t) noexcept {
            Piece& piece = pieces[i];
            const TensorType& type = *piece.tensor->type;
            const char* start = bytes + piece.tensor->offset + piece.first_block * type.block_bytes;
            const auto found = find_non_finite(type, {start, piece.num_blocks * type.block_bytes});
            if (found) piece.bad_block = piece.first_block + *found;
        });
    for (const Piece& piece : pieces) {
        if (piece.bad_block == kNone) continue;
        const TensorInfo& tensor = *piece.tensor;
        refuse(name,
               "tensor " + quoted(tensor.name) + " at byte " +
                   std::to_string(tensor.offset + piece.bad_block * tensor.type->block_bytes) +
                   ": weight is not finite: expected numbers, found Inf or NaN in block " +
                   std::to_string(piece.bad_block) + " of " + tensor.type->format);
    }
}

}  // namespace gguf
