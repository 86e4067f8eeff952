#include "plugins/quant/ggml/bytes.hpp"
#include "plugins/quant/ggml/format.hpp"
#include "plugins/quant/ggml/formats/decoders.hpp"
#include "plugins/quant/ggml/formats/iq.hpp"

#include <array>
#include <cmath>

namespace ggml {
namespace {

constexpr char kSource[] = "GGUF tensor types, llama.cpp of August 2026";

bool is_bad_half(std::uint16_t h) noexcept {
    return (h & 0x7c00u) == 0x7c00u;
}

bool is_bad_f32(const std::uint8_t* block) {
    return (load<std::uint32_t>(block) & 0x7f800000u) == 0x7f800000u;
}

/// Values beyond the range of f32 would be infinite here.
bool is_bad_f64(const std::uint8_t* block) {
    return !std::isfinite(static_cast<float>(load<double>(block)));
}

bool is_bad_bf16(const std::uint8_t* block) {
    return (load<std::uint16_t>(block) & 0x7f80u) == 0x7f80u;
}

/// NaN by the OCP text.
bool is_bad_e8m0(const std::uint8_t* block) {
    return block[0] == 255;
}

/// Scales have no sign: writers clear the bit, and what ignores it and what does not disagree.
bool is_bad_ue4m3(const std::uint8_t* block) {
    return ((block[0] | block[1] | block[2] | block[3]) & 0x80) != 0;
}

bool is_bad_iq1_m(const std::uint8_t* block) {
    return is_bad_half(iq1_m_scale(block));
}

constexpr ScaleCheck halves(std::int16_t scale_at, std::int16_t min_at = -1) {
    return {scale_at, min_at, nullptr};
}
constexpr ScaleCheck nothing{};

constexpr Format row(const char* id, std::uint32_t block_cols, std::uint32_t block_bytes,
                     DecodeFn decode, ScaleCheck check) {
    Format f{};
    f.abi.size = sizeof f.abi;
    f.abi.id = id;
    f.abi.block_rows = 1;
    f.abi.block_cols = block_cols;
    f.abi.block_bytes = block_bytes;
    f.abi.source = kSource;
    f.decode = decode;
    f.check = check;
    return f;
}
constexpr Format row(const char* id, std::uint32_t block_cols, std::uint32_t block_bytes,
                     DecodeFn decode, bool (*is_bad)(const std::uint8_t*)) {
    return row(id, block_cols, block_bytes, decode, ScaleCheck{-1, -1, is_bad});
}

constexpr Format kFormats[] = {
#define FORMAT(id, block_cols, block_bytes, check) \
    row(#id, block_cols, block_bytes, decode_##id, check),
#include "plugins/quant/ggml/formats/formats.inc"
#undef FORMAT
};

constexpr std::size_t kNumFormats = std::size(kFormats);

constexpr auto kAbiFormats = [] {
    std::array<const assay_quant_format*, kNumFormats> list{};
    for (std::size_t i = 0; i < kNumFormats; ++i) list[i] = &kFormats[i].abi;
    return list;
}();

}  // namespace

bool Format::is_bad(const std::uint8_t* block) const noexcept {
    const auto is_bad_at = [block](std::int16_t at) {
        return at >= 0 && is_bad_half(load<std::uint16_t>(block + at));
    };
    return check.is_bad != nullptr ? check.is_bad(block)
                                   : is_bad_at(check.scale_at) || is_bad_at(check.min_at);
}

std::span<const Format> formats() noexcept {
    return kFormats;
}

const assay_quant_format* const* abi_formats() noexcept {
    return kAbiFormats.data();
}

const Format* find_format(std::string_view id) noexcept {
    for (const Format& f : kFormats)
        if (id == f.abi.id) return &f;
    return nullptr;
}

}  // namespace ggml
