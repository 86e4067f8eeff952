#include "blocks.hpp"

#include "random.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>

namespace synth {
namespace {

/// Where a format keeps its scale, and the root mean square of its weights when that is 1 and every
/// other bit of the block is random (found by decoding such blocks; quants.md section 2).
enum class Kind {
    scale,        ///< fp16 d; weights are symmetric or d takes either sign
    scale_min,    ///< fp16 d and m: m = -c * d centres the values
    group_mins,   ///< Q4_K, Q5_K: d, dmin = c * d, and the 12 bytes of scales with each min its
                  ///< scale
    nibble_mins,  ///< Q2_K: a byte a group, low nibble scale, high nibble min: equal
    e8m0,
    ue4m3,
    iq1_m,
    f16,
    bf16,
    f32
};

struct Layout {
    std::string_view format;
    Kind kind;
    std::size_t at;  ///< of the scale in the block
    double unit_rms;
    double centre = 0;  ///< c above: the mean of the stored values
};

// clang-format off
constexpr Layout kLayouts[] = {
    {"f32", Kind::f32, 0, 1},          {"f16", Kind::f16, 0, 1},          {"bf16", Kind::bf16, 0, 1},
    {"q4_0", Kind::scale, 0, 4.633},   {"q5_0", Kind::scale, 0, 9.238},   {"q8_0", Kind::scale, 0, 73.6},
    {"q4_1", Kind::scale_min, 0, 4.610, 7.5},  {"q5_1", Kind::scale_min, 0, 9.233, 15.5},
    {"q2_k", Kind::nibble_mins, 80, 9.84, 1.5}, {"q3_k", Kind::scale, 108, 43.4},
    {"q4_k", Kind::group_mins, 0, 168.5, 7.5}, {"q5_k", Kind::group_mins, 0, 337.5, 15.5},
    {"q6_k", Kind::scale, 208, 1366},
    {"iq1_s", Kind::scale, 0, 7.19},   {"iq1_m", Kind::iq1_m, 48, 7.22},
    {"iq2_xxs", Kind::scale, 0, 53.4}, {"iq2_xs", Kind::scale, 0, 55.8},  {"iq2_s", Kind::scale, 0, 56.5},
    {"iq3_xxs", Kind::scale, 0, 142},  {"iq3_s", Kind::scale, 0, 140},
    {"iq4_nl", Kind::scale, 0, 67.6},  {"iq4_xs", Kind::scale, 0, 1246},
    {"tq1_0", Kind::scale, 52, 0.8176}, {"tq2_0", Kind::scale, 64, 1.225},
    {"mxfp4", Kind::e8m0, 0, 5.85},    {"nvfp4", Kind::ue4m3, 0, 2.93},
    {"q1_0", Kind::scale, 0, 1},       {"q2_0", Kind::scale, 0, 1.225},
};
// clang-format on

const Layout& layout_of(const gguf::TensorType& type) {
    for (const Layout& layout : kLayouts)
        if (layout.format == type.format) return layout;
    throw std::invalid_argument{std::string{"format \""} + type.format + "\" holds no weights"};
}

/// Nearest fp16, ties to even; subnormals included. |value| < 65504.
std::uint16_t to_f16(double value) {
    const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    const double size = std::fabs(value);
    if (size < std::ldexp(1.0, -14))  // a multiple of 2^-24
        return static_cast<std::uint16_t>(
            sign | static_cast<std::uint16_t>(std::nearbyint(std::ldexp(size, 24))));
    int exponent = 0;
    const double fraction = std::frexp(size, &exponent);  // [0.5, 1)
    const auto bits =
        static_cast<std::uint32_t>(std::nearbyint(std::ldexp(fraction, 11)));  // carries over
    return static_cast<std::uint16_t>(sign |
                                      ((static_cast<std::uint32_t>(exponent + 13) << 10) + bits));
}

void put16(std::byte* at, std::uint16_t value) {
    std::memcpy(at, &value, sizeof value);
}

constexpr std::size_t kVariants = 256;  // scales to draw from, so that blocks differ

/// 0.75 to 1.25 times the mean, either sign where the format allows it.
double variant_factor(std::size_t v, bool either_sign) {
    const double size = 0.75 + 0.5 * static_cast<double>(v / 2) / (kVariants / 2 - 1);
    return either_sign && v % 2 != 0 ? -size : size;
}

/// Random floats of one format as bits: any sign and mantissa, one of two neighbouring exponents,
/// drawn so that the root mean square is right. A value in [2^e, 2^(e+1)) has mean square 7/3 *
/// 4^e.
template <class Word>
struct FloatBits {
    Word keep = 0;   ///< sign and mantissa
    Word lower = 0;  ///< exponent bits of the lower binade; the higher is one more
    Word step = 0;
    Word threshold = 0;  ///< of `select` bits: below it the higher binade
    int shift = 0;       ///< where the select bits are in the random word
    Word select_mask = 0;

    FloatBits(double rms, int mantissa_bits, int exponent_bias) {
        constexpr int kBits = sizeof(Word) * 8;
        const int exponent_bits = kBits - 1 - mantissa_bits;
        const double mean_square = rms * rms * 3.0 / 7.0;
        const int e = static_cast<int>(std::floor(std::log2(mean_square) / 2.0));
        const double low = std::pow(4.0, e);
        const double share = (mean_square - low) / (3.0 * low);  // of the higher binade
        const Word sign = static_cast<Word>(Word{1} << (kBits - 1));
        keep = static_cast<Word>(sign | static_cast<Word>((Word{1} << mantissa_bits) - 1));
        lower = static_cast<Word>(static_cast<Word>(e + exponent_bias) << mantissa_bits);
        step = static_cast<Word>(Word{1} << mantissa_bits);
        shift = mantissa_bits;
        select_mask = static_cast<Word>((Word{1} << exponent_bits) - 1);
        threshold = static_cast<Word>(share * std::pow(2.0, exponent_bits));
    }

    void shape(std::span<std::byte> bytes) const {
        const std::size_t count = bytes.size() / sizeof(Word);
        std::byte* at = bytes.data();
        for (std::size_t i = 0; i < count; ++i, at += sizeof(Word)) {
            Word word;
            std::memcpy(&word, at, sizeof word);
            const auto select = static_cast<Word>(word >> shift & select_mask);
            const auto raise = static_cast<Word>(select < threshold ? step : 0);
            word = static_cast<Word>((word & keep) | (lower + raise));
            std::memcpy(at, &word, sizeof word);
        }
    }
};

}  // namespace

/// What is written over the random bytes of each block.
struct BlockMaker::Recipe {
    const Layout& layout;
    double rms;
    std::size_t header_bytes = 0;
    std::array<std::array<std::byte, 16>, kVariants> headers{};

    Recipe(const gguf::TensorType& type, double target) : layout{layout_of(type)}, rms{target} {
        const double scale = target / layout.unit_rms;
        for (std::size_t v = 0; v < kVariants; ++v) build(headers[v].data(), v, scale);
    }

    void build(std::byte* header, std::size_t v, double scale) {
        switch (layout.kind) {
            case Kind::scale:
                header_bytes = 2;
                return put16(header, to_f16(scale * variant_factor(v, true)));
            case Kind::scale_min:
            case Kind::nibble_mins: {
                header_bytes = 4;
                const double d = scale * variant_factor(v, false);
                put16(header, to_f16(d));
                return put16(header + 2,
                             to_f16(layout.kind == Kind::scale_min ? -layout.centre * d
                                                                   : layout.centre * d));
            }
            case Kind::group_mins: {
                header_bytes = 16;
                const double d = scale * variant_factor(v, false);
                put16(header, to_f16(d));
                put16(header + 2, to_f16(layout.centre * d));
                for (std::size_t i = 0; i < 4; ++i) {
                    const std::uint64_t bits = mix(v * 4 + i);
                    header[4 + i] = header[8 + i] = static_cast<std::byte>(bits & 0xff);
                    header[12 + i] = static_cast<std::byte>((bits >> 8 & 15) * 17);
                }
                return;
            }
            case Kind::e8m0: {  // 2^(x - 128); of two neighbours, so that the mean square is right
                header_bytes = 1;
                const double exponent = std::floor(std::log2(scale));
                const double share = (std::pow(scale / std::exp2(exponent), 2.0) - 1.0) / 3.0;
                const bool raise = static_cast<double>(v) < share * kVariants;
                header[0] =
                    static_cast<std::byte>(128 + static_cast<int>(exponent) + (raise ? 1 : 0));
                return;
            }
            case Kind::ue4m3:  // (1 + m/8) * 2^(e - 7), four a block; from 2^-6 to 2^8
                header_bytes = 4;
                for (std::size_t i = 0; i < 4; ++i) {
                    const double want =
                        std::clamp(scale * variant_factor((v + 64 * i) % kVariants, false),
                                   std::exp2(-6), 256.0);
                    const double e = std::floor(std::log2(want));
                    const int m =
                        std::min(7, static_cast<int>((want / std::exp2(e) - 1.0) * 8.0 + 0.5));
                    header[i] = static_cast<std::byte>((static_cast<int>(e) + 7) * 8 + m);
                }
                return;
            case Kind::iq1_m: {  // the fp16 scale in the top nibbles of four words
                header_bytes = 4;
                const std::uint16_t d = to_f16(scale * variant_factor(v, true));
                for (std::size_t i = 0; i < 4; ++i)
                    header[i] = static_cast<std::byte>((d >> 4 * i & 15) << 4);
                return;
            }
            case Kind::f16:
            case Kind::bf16:
            case Kind::f32:
                return;
        }
    }

    void shape_block(std::byte* block, std::size_t v) const {
        const std::byte* header = headers[v].data();
        if (layout.kind == Kind::iq1_m) {
            for (std::size_t i = 0; i < 4; ++i) {
                std::byte& top = block[layout.at + 2 * i + 1];
                top = (top & std::byte{15}) | header[i];
            }
            return;
        }
        std::memcpy(block + layout.at, header, header_bytes);
        if (layout.kind == Kind::nibble_mins)
            for (std::size_t i = 0; i < 16; ++i)
                block[i] = (block[i] & std::byte{15}) | (block[i] << 4);
    }
};

BlockMaker::BlockMaker(const gguf::TensorType& type, double rms)
    : type_{type}, recipe_{std::make_unique<Recipe>(type, rms)} {}
BlockMaker::~BlockMaker() = default;
BlockMaker::BlockMaker(BlockMaker&&) noexcept = default;

void BlockMaker::fill(std::span<std::byte> out, std::uint64_t seed) const {
    RandomBytes{seed}.fill(out);
    switch (recipe_->layout.kind) {
        case Kind::f16:
            return FloatBits<std::uint16_t>{recipe_->rms, 10, 15}.shape(out);
        case Kind::bf16:
            return FloatBits<std::uint16_t>{recipe_->rms, 7, 127}.shape(out);
        case Kind::f32:
            return FloatBits<std::uint32_t>{recipe_->rms, 23, 127}.shape(out);
        default:
            break;
    }
    // -128 has no opposite, and no quantizer of Q8_0 writes it.
    if (recipe_->layout.format == "q8_0")
        for (std::byte& b : out) b = b == std::byte{0x80} ? std::byte{0x81} : b;
    const std::size_t num_blocks = out.size() / type_.block_bytes;
    std::byte* block = out.data();
    std::uint64_t draw = 0;
    for (std::size_t i = 0; i < num_blocks; ++i, block += type_.block_bytes) {
        if (i % 8 == 0) draw = mix(seed ^ i);
        recipe_->shape_block(block, draw & 0xff);
        draw >>= 8;
    }
}

}  // namespace synth
