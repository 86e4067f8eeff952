#pragma once

// One matmul call, checked and resolved: what the three operations have in common.

#include "abi/quant.h"
#include "plugins/quant/ggml/kernels.hpp"

#include <cstddef>
#include <cstdint>

namespace ggml {

/// A bump allocator over the workspace of a call; with a null base it only measures.
class Scratch {
public:
    explicit Scratch(void* base) noexcept : base_{static_cast<std::byte*>(base)} {}

    /// @return  64-byte aligned when the base is; null while measuring
    template <class T>
    T* take(std::int64_t count) noexcept {
        const std::uint64_t at = used_;
        used_ += (static_cast<std::uint64_t>(count) * sizeof(T) + 63) & ~std::uint64_t{63};
        return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + at);
    }
    [[nodiscard]] std::uint64_t used() const noexcept { return used_; }

private:
    std::byte* base_;
    std::uint64_t used_ = 0;
};

/// The rows of x that meet one expert's weights: slots [first, first + count).
struct Slots {
    std::int64_t first, count;
};

/// A checked call. Row indices of x: `s` is a slot (a row of y), `e` an expert or head.
struct Call {
    const assay_matmul* args;
    std::int32_t op;
    std::int64_t k, num_experts, num_slots;
    std::int64_t num_x_rows;  // of x, heads included
    const Format* format[ASSAY_MAX_FUSED];
    const WeightKernel* kernel[ASSAY_MAX_FUSED];

    /// Rows of quantized x that a row of x becomes: with ASSAY_MM_FINE a second one holds what the
    /// first one's rounding left, and the products of both are added.
    [[nodiscard]] int num_planes() const noexcept {
        return (args->flags & ASSAY_MM_FINE) != 0 ? kMaxPlanes : 1;
    }
    [[nodiscard]] bool is_glu() const noexcept { return args->glu != ASSAY_GLU_NONE; }
    /// Products with a y of their own.
    [[nodiscard]] int num_outputs() const noexcept { return is_glu() ? 1 : args->num_weights; }

    [[nodiscard]] Slots slots(std::int64_t e) const noexcept {
        if (op != ASSAY_Q_GROUPED) return {0, num_slots};
        const std::int32_t* offset = args->expert_offset;
        return {offset[e], offset[e + 1] - offset[e]};
    }
    /// Row of x that slot s of expert e reads.
    [[nodiscard]] std::int64_t x_row(std::int64_t s, std::int64_t e) const noexcept {
        if (op == ASSAY_Q_BATCHED) return s * num_experts + e;
        return op == ASSAY_Q_GROUPED && args->row_ids != nullptr ? args->row_ids[s] : s;
    }
    [[nodiscard]] const float* x(std::int64_t row) const noexcept {
        const auto* base = static_cast<const float*>(args->x.data);
        if (op != ASSAY_Q_BATCHED) return base + row * args->x.stride[0];
        return base + row / num_experts * args->x.stride[0] + row % num_experts * args->x.stride[1];
    }
    [[nodiscard]] float* y(int i, std::int64_t s, std::int64_t e) const noexcept {
        const assay_tensor& t = args->y[i];
        const std::int64_t head = op == ASSAY_Q_BATCHED ? e * t.stride[1] : 0;
        return static_cast<float*>(t.data) + s * t.stride[0] + head;
    }
    /// Bias of expert e from weight row r on, or null.
    [[nodiscard]] const float* bias(int i, std::int64_t e, std::int64_t r) const noexcept {
        const assay_tensor& t = args->bias[i];
        if (t.data == nullptr) return nullptr;
        return static_cast<const float*>(t.data) + (op == ASSAY_Q_GROUPED ? e * t.stride[0] : 0) +
               r;
    }
    /// Stored row r of expert e.
    [[nodiscard]] const std::uint8_t* w(int i, std::int64_t e, std::int64_t r) const noexcept {
        const std::int64_t row = e * args->w[i]->rows + r;
        return static_cast<const std::uint8_t*>(args->w[i]->data) + row * format[i]->row_bytes(k);
    }
};

/// Checks every argument and fills `call`. OK, or a status with words.
[[nodiscard]] assay_status resolve(const Tier& tier, std::int32_t op, const assay_matmul& args,
                                   Call& call, assay_error* err) noexcept;

}  // namespace ggml
