#include "plugins/quant/ggml/bytes.hpp"
#include "plugins/quant/ggml/format.hpp"
#include "plugins/quant/ggml/formats/decoders.hpp"

#include <array>

namespace ggml {
namespace {

constexpr char kSource[] = "GGUF tensor types, llama.cpp of August 2026";

bool is_bad_half(std::uint16_t h) noexcept {
    return (h & 0x7c00u) == 0x7c00u;
}

/// Checks the fp16 scales at the given offsets.
template <int... kOffsets>
bool has_bad_half(const std::uint8_t* block) {
    return (is_bad_half(load<std::uint16_t>(block + kOffsets)) || ...);
}

bool is_bad_f32(const std::uint8_t* block) {
    return (load<std::uint32_t>(block) & 0x7f800000u) == 0x7f800000u;
}

bool is_bad_bf16(const std::uint8_t* block) {
    return (load<std::uint16_t>(block) & 0x7f80u) == 0x7f80u;
}

bool is_bad_e8m0(const std::uint8_t* block) {
    return block[0] == 255;
}  // NaN by the OCP text

constexpr Format row(const char* id, std::uint32_t block_cols, std::uint32_t block_bytes,
                     DecodeFn decode, IsBadFn is_bad) {
    Format f{};
    f.abi.size = sizeof f.abi;
    f.abi.id = id;
    f.abi.block_rows = 1;
    f.abi.block_cols = block_cols;
    f.abi.block_bytes = block_bytes;
    f.abi.source = kSource;
    f.decode = decode;
    f.is_bad = is_bad;
    return f;
}

// To add a format: formats/<format>_ref.cpp, and a row here.
constexpr Format kFormats[] = {
    row("f32", 1, 4, decode_f32, is_bad_f32),
    row("f16", 1, 2, decode_f16, has_bad_half<0>),
    row("q4_0", 32, 18, decode_q4_0, has_bad_half<0>),
    row("q4_1", 32, 20, decode_q4_1, has_bad_half<0, 2>),
    row("q5_0", 32, 22, decode_q5_0, has_bad_half<0>),
    row("q5_1", 32, 24, decode_q5_1, has_bad_half<0, 2>),
    row("q8_0", 32, 34, decode_q8_0, has_bad_half<0>),
    row("q2_k", 256, 84, decode_q2_k, has_bad_half<80, 82>),
    row("q3_k", 256, 110, decode_q3_k, has_bad_half<108>),
    row("q4_k", 256, 144, decode_q4_k, has_bad_half<0, 2>),
    row("q5_k", 256, 176, decode_q5_k, has_bad_half<0, 2>),
    row("q6_k", 256, 210, decode_q6_k, has_bad_half<208>),
    row("iq4_nl", 32, 18, decode_iq4_nl, has_bad_half<0>),
    row("iq4_xs", 256, 136, decode_iq4_xs, has_bad_half<0>),
    row("bf16", 1, 2, decode_bf16, is_bad_bf16),
    row("mxfp4", 32, 17, decode_mxfp4, is_bad_e8m0),
};

constexpr std::size_t kNumFormats = std::size(kFormats);

constexpr auto kAbiFormats = [] {
    std::array<const assay_quant_format*, kNumFormats> list{};
    for (std::size_t i = 0; i < kNumFormats; ++i) list[i] = &kFormats[i].abi;
    return list;
}();

}  // namespace

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
