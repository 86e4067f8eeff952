#pragma once

// Rows over the lanes of a stream. Work is cut by rows, or by pieces of a row where elements do not
// meet, so the bits of a result depend neither on the lanes nor on how many rows there are.

#include "device.hpp"
#include "plugins/device/common/tensor_rows.hpp"

#include <algorithm>
#include <atomic>
#include <new>

namespace cpu {

using namespace views;

// Less than this is done by the calling thread: handing work to another costs some microseconds, in
// which one core gets through about this many elements.
constexpr std::int64_t kMinElements = 16384;
constexpr std::int64_t kPieceElements = 16384;  // of a wide row; a multiple of every vector width

// Relative to one element read and written.
constexpr std::int64_t kCostExp = 4;      // an exponential
constexpr std::int64_t kCostDouble = 16;  // a libm call in double

inline const RowKernels& kernels(void* self) {
    return *static_cast<const Device*>(self)->kernels;
}

/// Calls body(row) for each row, several rows an item, on the lanes of the stream. An exception of
/// the reference tier (it allocates) stops its item and becomes the status.
template <class Body>
assay_status for_rows(const assay_stream* s, std::int64_t num_rows, std::int64_t row_cost,
                      const Body& body) {
    if (num_rows <= 0) return ASSAY_OK;
    const assay_lanes* lanes = s != nullptr ? s->lanes : nullptr;
    const std::int64_t width = lanes != nullptr ? std::max<std::int64_t>(lanes->width, 1) : 1;
    std::int64_t rows =
        std::max<std::int64_t>(1, kMinElements / std::max<std::int64_t>(row_cost, 1));
    rows = std::max(rows, num_rows / (4 * width));
    const std::int64_t num_items = (num_rows + rows - 1) / rows;

    std::atomic<assay_status> status{ASSAY_OK};
    sdk::parallel_for(lanes, num_items, [&](std::uint32_t item, std::uint32_t) {
        try {
            const std::int64_t end = std::min(num_rows, (item + std::int64_t{1}) * rows);
            for (std::int64_t row = item * rows; row < end; ++row) body(row);
        } catch (const std::bad_alloc&) {
            status.store(ASSAY_NO_MEMORY);
        } catch (...) {
            status.store(ASSAY_INTERNAL);
        }
    });
    return status.load();
}

/// Calls body(row, first, count) for pieces of each row, for ops whose elements do not meet.
template <class Body>
assay_status for_pieces(const assay_stream* s, std::int64_t num_rows, std::int64_t width,
                        std::int64_t cost, const Body& body) {
    if (width == 0) return ASSAY_OK;
    const std::int64_t pieces = (width + kPieceElements - 1) / kPieceElements;
    const std::int64_t piece_width = pieces == 1 ? width : kPieceElements;
    return for_rows(s, num_rows * pieces, piece_width * cost, [&](std::int64_t item) {
        const std::int64_t first = item % pieces * kPieceElements;
        body(item / pieces, first, std::min(piece_width, width - first));
    });
}

}  // namespace cpu
