#include "weights.hpp"

#include "cxx/plugin.hpp"
#include "text.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
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

/// IQ1_M spreads its fp16 scale over the top nibbles of four 16-bit words.
std::uint32_t iq1_m_scale(const char* words) noexcept {
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 4; ++i) bits |= (load<std::uint16_t>(words + 2 * i) >> 12) << 4 * i;
    return bits;
}

// What must not be: each is true of a scale that is no number.
bool is_bad_f16(const char* p) noexcept {
    return (load<std::uint16_t>(p) & 0x7c00) == 0x7c00;
}
bool is_bad_bf16(const char* p) noexcept {
    return (load<std::uint16_t>(p) & 0x7f80) == 0x7f80;
}
bool is_bad_f32(const char* p) noexcept {
    return (load<std::uint32_t>(p) & 0x7f800000) == 0x7f800000;
}
bool is_bad_f64(const char* p) noexcept {
    return (load<std::uint64_t>(p) >> 52 & 0x7ff) == 0x7ff;
}
bool is_bad_e8m0(const char* p) noexcept {
    return load<std::uint8_t>(p) == 0xff;
}
bool is_bad_ue4m3(const char* p) noexcept {  // 0x7f is NaN; the sign bit is never set by a writer
    return load<std::uint8_t>(p) >= 0x7f;
}
bool is_bad_iq1_m(const char* p) noexcept {
    return (iq1_m_scale(p) & 0x7c00) == 0x7c00;
}

/// Walks blocks, `layout.count` scales each, `scale_bytes` apart. A stretch of blocks is looked at
/// without a branch, which compilers vectorise where blocks are single floats.
template <bool (*is_bad)(const char*) noexcept>
std::optional<std::uint64_t> walk(std::string_view data, std::uint32_t block_bytes,
                                  const ScaleLayout& layout, std::uint32_t scale_bytes) noexcept {
    constexpr std::uint64_t kStretch = 1024;
    const std::uint64_t num_blocks = data.size() / block_bytes;
    const auto any_bad = [&](std::uint64_t begin, std::uint64_t end) {
        const char* block = data.data() + layout.offset + begin * block_bytes;
        unsigned bad = 0;
        if (layout.count == 1)
            for (std::uint64_t b = begin; b < end; ++b, block += block_bytes) bad |= is_bad(block);
        else
            for (std::uint64_t b = begin; b < end; ++b, block += block_bytes)
                for (std::uint32_t i = 0; i < layout.count; ++i)
                    bad |= is_bad(block + std::size_t{i} * scale_bytes);
        return bad != 0;
    };
    for (std::uint64_t b = 0; b < num_blocks; b += kStretch) {
        const std::uint64_t end = std::min(b + kStretch, num_blocks);
        if (!any_bad(b, end)) continue;
        while (!any_bad(b, b + 1)) ++b;
        return b;
    }
    return std::nullopt;
}

/// The same for plain floats, whose width is known to the compiler.
template <class Word, Word kExponent>
std::optional<std::uint64_t> walk_floats(std::string_view data) noexcept {
    constexpr std::uint64_t kStretch = 4096;
    const std::uint64_t count = data.size() / sizeof(Word);
    const auto any_bad = [&](std::uint64_t begin, std::uint64_t end) {
        Word bad = 0;
        for (std::uint64_t i = begin; i < end; ++i) {
            const Word exponent = load<Word>(data.data() + i * sizeof(Word)) & kExponent;
            bad |= static_cast<Word>(exponent == kExponent);
        }
        return bad != 0;
    };
    for (std::uint64_t i = 0; i < count; i += kStretch) {
        const std::uint64_t end = std::min(i + kStretch, count);
        if (!any_bad(i, end)) continue;
        while (!any_bad(i, i + 1)) ++i;
        return i;
    }
    return std::nullopt;
}

/// "NaN (0x7e00)" of the first value of a block that is no number.
std::string describe_bad(const ScaleLayout& layout, const char* block) {
    const auto text = [](bool is_nan, bool is_negative, std::uint64_t bits, int digits) {
        char out[40];
        std::snprintf(out, sizeof out, "%s (0x%0*llx)",
                      is_nan        ? "NaN"
                      : is_negative ? "-Inf"
                                    : "+Inf",
                      digits, static_cast<unsigned long long>(bits));
        return std::string{out};
    };
    const char* at = block + layout.offset;
    switch (layout.kind) {
        case Scale::f16:
        case Scale::bf16: {
            const bool is_half = layout.kind == Scale::f16;
            std::uint32_t i = 0;
            while (i + 1 < layout.count && !is_bad_f16(at + 2 * i)) ++i;
            const auto bits = load<std::uint16_t>(at + 2 * i);
            return text((bits & (is_half ? 0x3ff : 0x7f)) != 0, bits >> 15 != 0, bits, 4);
        }
        case Scale::iq1_m: {
            const std::uint32_t bits = iq1_m_scale(at);
            return text((bits & 0x3ff) != 0, bits >> 15 != 0, bits, 4);
        }
        case Scale::f32: {
            const auto bits = load<std::uint32_t>(at);
            return text((bits & 0x7fffff) != 0, bits >> 31 != 0, bits, 8);
        }
        case Scale::f64: {
            const auto bits = load<std::uint64_t>(at);
            return text((bits & ((1ull << 52) - 1)) != 0, bits >> 63 != 0, bits, 16);
        }
        case Scale::e8m0:
            return text(true, false, load<std::uint8_t>(at), 2);
        case Scale::ue4m3: {
            std::uint32_t i = 0;
            while (i + 1 < layout.count && !is_bad_ue4m3(at + i)) ++i;
            return text(true, false, load<std::uint8_t>(at + i), 2);
        }
        case Scale::none:
            break;
    }
    return "?";
}

/// Whether any of the first scales of whole blocks, or any plain float, is not 0. Ends at the
/// first.
bool has_weight(const TensorType& type, std::string_view data) noexcept {
    const ScaleLayout layout = layout_of(type);
    const bool is_half = layout.kind == Scale::f16 || layout.kind == Scale::bf16;
    const bool is_float = layout.kind == Scale::f32;
    for (std::size_t at = 0; at < data.size(); at += type.block_bytes) {
        const char* block = data.data() + at;
        if (is_half) {
            if ((load<std::uint16_t>(block + layout.offset) & 0x7fff) != 0) return true;
        } else if (is_float) {
            if ((load<std::uint32_t>(block + layout.offset) & 0x7fffffff) != 0) return true;
        } else if (std::any_of(block, block + type.block_bytes, [](char c) { return c != 0; })) {
            return true;
        }
    }
    return false;
}

/// A stretch of blocks of one tensor; enough of them to keep all lanes and the disk busy.
struct Piece {
    const WeightSource* source;
    const TensorInfo* tensor;
    std::uint64_t first_block, num_blocks;
    std::uint64_t bad_block = kNone;
    bool has_weight = false;

    static constexpr std::uint64_t kNone = UINT64_MAX;
    [[nodiscard]] std::string_view data() const {
        const std::uint64_t block_bytes = tensor->type->block_bytes;
        return {reinterpret_cast<const char*>(source->file.data()) + tensor->offset +
                    first_block * block_bytes,
                num_blocks * block_bytes};
    }
};

std::vector<Piece> cut(std::span<const WeightSource> sources) {
    constexpr std::uint64_t kPieceBytes = 8ull << 20;
    std::vector<Piece> pieces;
    for (const WeightSource& source : sources) {
        for (const TensorInfo& tensor : source.header->tensors) {
            const std::uint64_t num_blocks = tensor.bytes / tensor.type->block_bytes;
            const std::uint64_t step = kPieceBytes / tensor.type->block_bytes;
            for (std::uint64_t b = 0; b < num_blocks; b += step)
                pieces.push_back({&source, &tensor, b, std::min(step, num_blocks - b)});
        }
    }
    return pieces;
}

/// Asks the kernel for the pages of a stretch of a mapping; a hint.
void prefetch(std::string_view data) noexcept {
    static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto begin = reinterpret_cast<std::uintptr_t>(data.data()) & ~(page - 1);
    const auto end = reinterpret_cast<std::uintptr_t>(data.data() + data.size());
    (void)::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);
}

[[noreturn]] void refuse_empty(const Piece& piece, std::size_t num_empty_tensors) {
    const TensorInfo& tensor = *piece.tensor;
    refuse(piece.source->name,
           "tensor " + quoted(tensor.name) + " at byte " + std::to_string(tensor.offset) +
               ": expected weights, found " +
               (tensor.type->block_elements == 1 ? "0 in every element"
                                                 : "a scale of 0 in every block") +
               " of " + tensor.type->format +
               (num_empty_tensors > 1
                    ? "; " + std::to_string(num_empty_tensors) + " tensors are like that"
                    : "") +
               ": the file is damaged, has holes, or was quantized wrongly");
}

[[noreturn]] void refuse_bad(const Piece& piece, std::size_t num_bad_tensors) {
    const TensorInfo& tensor = *piece.tensor;
    const TensorType& type = *tensor.type;
    const std::uint64_t row_blocks = tensor.ne[0] / type.block_elements;
    const std::uint64_t row = piece.bad_block / row_blocks;
    const std::uint64_t at = tensor.offset + piece.bad_block * type.block_bytes;
    const char* block = reinterpret_cast<const char*>(piece.source->file.data()) + at;
    std::string place = "row " + std::to_string(row % tensor.ne[1]);
    if (tensor.rank > 2) place = "matrix " + std::to_string(row / tensor.ne[1]) + ", " + place;
    refuse(piece.source->name,
           "tensor " + quoted(tensor.name) + " at byte " + std::to_string(at) +
               ": weight is not finite: expected numbers, found " +
               describe_bad(layout_of(type), block) + " in block " +
               std::to_string(piece.bad_block) + " of " + type.format + " (" + place + ", block " +
               std::to_string(piece.bad_block % row_blocks) + ")" +
               (num_bad_tensors > 1
                    ? "; " + std::to_string(num_bad_tensors) + " tensors have such weights"
                    : "") +
               ": the file is damaged or was quantized wrongly");
}

/// Vectors may be 0, matrices have no reason to.
void refuse_empty_matrices(std::span<const Piece> pieces) {
    const Piece* first_empty = nullptr;
    std::size_t num_empty = 0;
    for (std::size_t i = 0; i < pieces.size();) {
        const Piece& piece = pieces[i];
        bool is_empty = piece.tensor->rank > 1;
        for (; i < pieces.size() && pieces[i].tensor == piece.tensor; ++i)
            is_empty = is_empty && !pieces[i].has_weight;
        if (!is_empty) continue;
        if (first_empty == nullptr) first_empty = &piece;
        ++num_empty;
    }
    if (first_empty != nullptr) refuse_empty(*first_empty, num_empty);
}

}  // namespace

std::optional<std::uint64_t> find_non_finite(const TensorType& type,
                                             std::string_view data) noexcept {
    const ScaleLayout layout = layout_of(type);
    const std::uint32_t bytes = type.block_bytes;
    const bool is_plain = type.block_elements == 1;
    switch (layout.kind) {
        case Scale::none:
            return std::nullopt;
        case Scale::f16:
            return is_plain ? walk_floats<std::uint16_t, 0x7c00>(data)
                            : walk<is_bad_f16>(data, bytes, layout, 2);
        case Scale::bf16:
            return is_plain ? walk_floats<std::uint16_t, 0x7f80>(data)
                            : walk<is_bad_bf16>(data, bytes, layout, 2);
        case Scale::f32:
            return is_plain ? walk_floats<std::uint32_t, 0x7f800000>(data)
                            : walk<is_bad_f32>(data, bytes, layout, 4);
        case Scale::f64:
            return walk<is_bad_f64>(data, bytes, layout, 8);
        case Scale::e8m0:
            return walk<is_bad_e8m0>(data, bytes, layout, 1);
        case Scale::ue4m3:
            return walk<is_bad_ue4m3>(data, bytes, layout, 1);
        case Scale::iq1_m:
            return walk<is_bad_iq1_m>(data, bytes, layout, 8);
    }
    return std::nullopt;
}

void check_weights(std::span<const WeightSource> sources, const assay_lanes* lanes,
                   const std::function<void(std::uint64_t)>& on_bytes) {
    std::vector<Piece> pieces = cut(sources);
    const std::size_t ahead = lanes != nullptr ? 2 * std::size_t{lanes->width} : 2;
    for (std::size_t i = 0; i < std::min(ahead, pieces.size()); ++i) prefetch(pieces[i].data());
    sdk::parallel_for(lanes, static_cast<std::int64_t>(pieces.size()),
                      [&](std::uint32_t i, std::uint32_t) noexcept {
                          if (i + ahead < pieces.size()) prefetch(pieces[i + ahead].data());
                          Piece& piece = pieces[i];
                          const auto found = find_non_finite(*piece.tensor->type, piece.data());
                          if (found) piece.bad_block = piece.first_block + *found;
                          piece.has_weight = has_weight(*piece.tensor->type, piece.data());
                          if (on_bytes) on_bytes(piece.data().size());
                      });
    const Piece* first = nullptr;
    const TensorInfo* last = nullptr;
    std::size_t num_bad_tensors = 0;
    for (const Piece& piece : pieces) {
        if (piece.bad_block == Piece::kNone || piece.tensor == last) continue;
        if (first == nullptr) first = &piece;
        last = piece.tensor;
        ++num_bad_tensors;
    }
    if (first != nullptr) refuse_bad(*first, num_bad_tensors);
    refuse_empty_matrices(pieces);
}

}  // namespace gguf
