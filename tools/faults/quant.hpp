#pragma once

// quant/1 of the image: the wrapped plugin with one call, or one weight, changed.

#include "tools/faults/fault.hpp"
#include "tools/faults/healthy.hpp"

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace faults {

struct QuantCall;

/// One row of the table.
struct QuantFault {
    const char* id;
    const char* what;
    /// Changes a copy of a weight's stored bytes; false: not for this op. Products and lookups see
    /// the copy.
    bool (*alter)(const assay_weight& w, std::int32_t op, std::uint8_t* data) = nullptr;
    /// In place of matmul, batched_matmul and grouped_matmul.
    assay_status (*product)(QuantCall& call) = nullptr;
    /// Changes the ids that rows() is asked for.
    void (*ids)(std::vector<std::int32_t>& ids, std::int64_t num_rows) = nullptr;
    /// Refuses formats and operations that the wrapped plugin has.
    bool (*lacks)(const assay_quant_query& query) = nullptr;
};

/// The base is the wrapped plugin's table.
struct QuantInstance : assay_quant {
    explicit QuantInstance(Options o)
        : assay_quant{*faults::healthy().quant}, options{std::move(o)}, trigger{options} {}

    void* self = nullptr;  // of the wrapped plugin
    const QuantFault* fault = nullptr;
    Options options;
    Trigger trigger;
    std::atomic<std::uint64_t> num_calls{0};
    std::mutex mutex;
    // By the address of the stored bytes and the op.
    std::map<std::pair<const void*, std::int32_t>, std::vector<std::uint8_t>> altered;

    /// Whether the options "format" and "rows" mean this weight.
    [[nodiscard]] bool selects(const assay_weight& w) const {
        return (options.format.empty() || options.format == w.format) &&
               (options.rows == 0 || options.rows == w.rows);
    }
};

/// One product, to be changed and run.
struct QuantCall {
    QuantInstance& in;
    std::int32_t op;  ///< assay_quant_op
    assay_matmul args;
    const assay_stream* stream;
    assay_error* err;

    assay_status healthy() const;
    [[nodiscard]] std::int32_t num_outputs() const {
        return args.glu != ASSAY_GLU_NONE ? 1 : args.num_weights;
    }
    /// Rows of y; a batched product has one a token, of experts * N elements.
    [[nodiscard]] std::int64_t num_rows() const { return args.y[0].shape[0]; }
    [[nodiscard]] std::int64_t heads() const {
        return op == ASSAY_Q_BATCHED ? args.y[0].shape[1] : 1;
    }
    [[nodiscard]] std::int64_t width(std::int32_t i) const {
        return args.y[i].shape[args.y[i].rank - 1];
    }
    [[nodiscard]] float* y(std::int32_t i, std::int64_t row, std::int64_t head = 0) const {
        const assay_tensor& t = args.y[i];
        return static_cast<float*>(t.data) + row * t.stride[0] +
               (op == ASSAY_Q_BATCHED ? head * t.stride[1] : 0);
    }
    /// Calls visit(first element, count) for each contiguous piece of a row of every output.
    template <class Visit>
    void for_row(std::int64_t row, Visit&& visit) const {
        for (std::int32_t i = 0; i < num_outputs(); ++i)
            for (std::int64_t h = 0; h < heads(); ++h) visit(y(i, row, h), width(i));
    }
};

/// The row of the table that a configuration names; null: healthy. Throws sdk::Error.
[[nodiscard]] const QuantFault* find_quant_fault(const std::string& id);

}  // namespace faults
