#include "plugins/quant/cuda-ggml/weight_view.hpp"

#include "cxx/plugin.hpp"
#include "plugins/quant/ggml/query.hpp"

#include <cstring>

namespace cuda_ggml {
namespace {

constexpr std::uint64_t kPlaneAlignment = 256;

std::uint64_t aligned(std::uint64_t bytes) {
    return (bytes + kPlaneAlignment - 1) / kPlaneAlignment * kPlaneAlignment;
}

bool is_planar(const assay_weight& w) {
    return w.layout != nullptr && std::strcmp(w.layout, kPlanarLayout) == 0;
}

}  // namespace

Fields fields_of(FormatId id) noexcept {
    switch (id) {
        case FormatId::q8_0:  // integers, scale
            return {2, {{2, 32}, {0, 2}}};
        case FormatId::q6_k:  // low nibbles, high crumbs, scales, scale of all
            return {4, {{0, 128}, {128, 64}, {192, 16}, {208, 2}}};
        default:
            return {};
    }
}

FormatId format_id(const ggml::Format& format) noexcept {
    return static_cast<FormatId>(&format - ggml::formats().data());
}

std::uint64_t planar_bytes(FormatId id, std::int64_t num_blocks) noexcept {
    const Fields fields = fields_of(id);
    std::uint64_t bytes = 0;
    for (int i = 0; i < fields.count; ++i)
        bytes += aligned(static_cast<std::uint64_t>(num_blocks) * fields.field[i].bytes);
    return bytes;
}

WeightView view_of(const assay_weight& w) noexcept {
    const ggml::Format& format = *ggml::find_format(w.format);
    const std::int64_t blocks_per_row = w.cols / format.abi.block_cols;
    WeightView v{};
    v.id = format_id(format);
    v.is_planar = is_planar(w);
    v.block_bytes = static_cast<std::int32_t>(format.abi.block_bytes);
    const auto* at = static_cast<const std::uint8_t*>(w.data);
    if (!v.is_planar) {
        v.plane[0] = at;
        v.row_bytes[0] = format.row_bytes(w.cols);
        return v;
    }
    const Fields fields = fields_of(v.id);
    for (int i = 0; i < fields.count; ++i) {
        v.plane[i] = at;
        v.row_bytes[i] = blocks_per_row * fields.field[i].bytes;
        at += aligned(static_cast<std::uint64_t>(w.experts * w.rows * v.row_bytes[i]));
    }
    return v;
}

assay_weight as_stored(const assay_weight& w) noexcept {
    if (!is_planar(w)) return w;
    assay_weight stored = w;
    stored.layout = ASSAY_LAYOUT_STORED;
    return stored;  // no plane is smaller than its share of the blocks
}

assay_status check(const assay_weight* w, assay_error* err) noexcept {
    if (w == nullptr) return ggml::check_weight(w, err);
    const assay_weight stored = as_stored(*w);
    if (const assay_status s = ggml::check_weight(&stored, err); s != ASSAY_OK) return s;
    const ggml::Format& format = *ggml::find_format(w->format);
    if (is_planar(*w)) {
        const FormatId id = format_id(format);
        const std::uint64_t want =
            planar_bytes(id, w->experts * w->rows * (w->cols / format.abi.block_cols));
        if (want == 0)
            return sdk::fail(err, ASSAY_UNSUPPORTED, "%s has no layout \"%s\"", w->format, w->layout);
        if (w->data_bytes < want)
            return sdk::fail(err, ASSAY_INVALID, "%s in layout %s: data_bytes %llu, want %llu",
                             w->format, w->layout, static_cast<unsigned long long>(w->data_bytes),
                             static_cast<unsigned long long>(want));
    }
    // Device memory is aligned to 256 bytes; a view into the middle of a tensor might not be.
    if (reinterpret_cast<std::uintptr_t>(w->data) % 16 != 0)
        return sdk::fail(err, ASSAY_INVALID, "a weight whose data is not aligned to 16 bytes");
    return ASSAY_OK;
}

}  // namespace cuda_ggml
