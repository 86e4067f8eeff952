#include "cxx/plugin.hpp"
#include "plugins/quant/ggml/bytes.hpp"
#include "plugins/quant/ggml/matmul.hpp"
#include "plugins/quant/ggml/query.hpp"

#include <algorithm>
#include <limits>

namespace ggml {
namespace {

constexpr std::int64_t kPiece = 256;  // elements decoded at once; a multiple of every block
constexpr std::int64_t kRowsPerTask = 8;

void store_piece(const assay_tensor& out, std::int64_t row, std::int64_t k0, const float* values,
                 std::int64_t n) {
    const std::int64_t at = row * out.stride[0] + k0;
    if (out.dtype == ASSAY_F32) {
        std::copy_n(values, n, static_cast<float*>(out.data) + at);
        return;
    }
    auto* to = static_cast<std::uint16_t*>(out.data) + at;
    for (std::int64_t i = 0; i < n; ++i)
        to[i] = out.dtype == ASSAY_F16 ? float_to_half(values[i]) : float_to_bf16(values[i]);
}

}  // namespace

assay_status run_rows(const assay_weight& w, const std::int32_t* row_ids, std::int64_t num_ids,
                      const assay_tensor& out, const assay_stream& stream,
                      assay_error* err) noexcept {
    if (const assay_status s = check_weight(&w, err); s != ASSAY_OK) return s;
    if (num_ids == 0) return ASSAY_OK;
    if (out.dtype != ASSAY_F32 && out.dtype != ASSAY_F16 && out.dtype != ASSAY_BF16)
        return sdk::fail(err, ASSAY_UNSUPPORTED, "rows: out is %s, want f32, f16 or bf16",
                         sdk::dtype_name(out.dtype));
    if (num_ids < 0 || row_ids == nullptr || out.data == nullptr || out.rank != 2 ||
        out.shape[0] != num_ids || out.shape[1] != w.cols || out.stride[1] != 1)
        return sdk::fail(err, ASSAY_INVALID, "rows: out or row_ids do not fit [%lld, %lld]",
                         static_cast<long long>(num_ids), static_cast<long long>(w.cols));

    const Format& format = *find_format(w.format);
    const std::int64_t num_rows = w.experts * w.rows, row_bytes = format.row_bytes(w.cols);
    const auto one_row = [&](std::int64_t i) {
        float piece[kPiece];
        const std::int64_t id = row_ids[i];
        const bool exists = id >= 0 && id < num_rows;
        const std::uint8_t* row =
            static_cast<const std::uint8_t*>(w.data) + (exists ? id * row_bytes : 0);
        if (!exists) std::fill_n(piece, kPiece, std::numeric_limits<float>::quiet_NaN());
        for (std::int64_t k0 = 0; k0 < w.cols; k0 += kPiece) {
            const std::int64_t n = std::min(kPiece, w.cols - k0);
            if (exists) format.decode(row + format.row_bytes(k0), n / format.abi.block_cols, piece);
            store_piece(out, i, k0, piece, n);
        }
    };
    const std::int64_t num_tasks = (num_ids + kRowsPerTask - 1) / kRowsPerTask;
    sdk::parallel_for(stream.lanes, num_tasks, [&](std::uint32_t task, std::uint32_t) {
        const std::int64_t end = std::min(num_ids, (task + std::int64_t{1}) * kRowsPerTask);
        for (std::int64_t i = task * kRowsPerTask; i < end; ++i) one_row(i);
    });
    return ASSAY_OK;
}

}  // namespace ggml
