#pragma once

// A weight as kernels see it, and the packed layout.

#include "abi/quant.h"
#include "plugins/quant/ggml/format.hpp"

#include <cstdint>

namespace cuda_ggml {

/// In the order of formats.inc.
enum class FormatId : std::int32_t {
#define FORMAT(id, block_cols, block_bytes, check) id,
#include "plugins/quant/ggml/formats/formats.inc"
#undef FORMAT
    count
};

/// Layout "planar/1": blocks whose size is no multiple of 16 bytes cannot be read by 16-byte loads. So
/// each field of the block becomes an array of its own, [experts * rows, blocks a row, field bytes],
/// beginning at a multiple of 256 bytes. Not one byte is added inside of them.
inline constexpr char kPlanarLayout[] = "planar/1";
inline constexpr int kMaxFields = 4;

struct Field {
    std::uint32_t offset, bytes;  // within a stored block
};
struct Fields {
    int count = 0;  // 0: the stored layout is used
    Field field[kMaxFields];
};
/// The fields of a format in the order of its planes.
[[nodiscard]] Fields fields_of(FormatId id) noexcept;

/// Passed to kernels by value.
struct WeightView {
    const std::uint8_t* plane[kMaxFields];  // planar; stored: plane[0] is the data
    std::int64_t row_bytes[kMaxFields];     // of a row in each plane
    FormatId id;
    bool is_planar;
    std::int32_t block_bytes;
};

[[nodiscard]] FormatId format_id(const ggml::Format& format) noexcept;
/// Bytes of the planar form; 0 where the stored form is served.
[[nodiscard]] std::uint64_t planar_bytes(FormatId id, std::int64_t num_blocks) noexcept;
/// The view of a weight that passed check().
[[nodiscard]] WeightView view_of(const assay_weight& w) noexcept;

/// Checks a weight in either layout. OK, or a status with words.
[[nodiscard]] assay_status check(const assay_weight* w, assay_error* err) noexcept;
/// The same weight as it would be with its stored bytes: for checks that know no other layout.
[[nodiscard]] assay_weight as_stored(const assay_weight& w) noexcept;

}  // namespace cuda_ggml
