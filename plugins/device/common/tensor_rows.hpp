#pragma once

// Checks on tensor arguments, and walking their rows: what the devices share.

#include "cxx/plugin.hpp"

#include <cstdint>

namespace views {

/// A tensor seen as rows over its last dimension, in row-major order of the others.
template <class T>
class Rows {
public:
    explicit Rows(const assay_tensor& t) : t_{&t} {
        for (int d = 0; d + 1 < t.rank; ++d) count_ *= t.shape[d];
    }
    [[nodiscard]] std::int64_t count() const noexcept { return count_; }
    [[nodiscard]] std::int64_t width() const noexcept { return t_->shape[t_->rank - 1]; }

    [[nodiscard]] T* operator[](std::int64_t row) const noexcept {
        std::int64_t offset = 0;
        for (int d = t_->rank - 2; d > 0; --d) {
            offset += row % t_->shape[d] * t_->stride[d];
            row /= t_->shape[d];
        }
        if (t_->rank >= 2) offset += row * t_->stride[0];
        return static_cast<T*>(t_->data) + offset;
    }

private:
    const assay_tensor* t_;
    std::int64_t count_ = 1;
};

/// A view of this rank (0: any), with memory behind it unless it is empty.
inline bool is_view(const assay_tensor* t, int rank = 0) noexcept {
    if (t == nullptr || t->rank < 1 || t->rank > ASSAY_MAX_RANK) return false;
    if (rank != 0 && t->rank != rank) return false;
    bool is_empty = false;
    for (int d = 0; d < t->rank; ++d) {
        if (t->shape[d] < 0) return false;
        is_empty = is_empty || t->shape[d] == 0;
    }
    return is_empty || t->data != nullptr;
}

inline bool has_dense_rows(const assay_tensor& t) noexcept {
    return t.stride[t.rank - 1] == 1 || t.shape[t.rank - 1] <= 1;
}

inline bool is_rows(const assay_tensor* t, std::int32_t dtype, int rank = 0) noexcept {
    return is_view(t, rank) && t->dtype == dtype && has_dense_rows(*t);
}

inline bool is_f32_rows(const assay_tensor* t, int rank = 0) noexcept {
    return is_rows(t, ASSAY_F32, rank);
}

/// An optional f32 vector of n elements: absent, or right.
inline bool is_absent(const assay_tensor* t) noexcept {
    return t == nullptr || t->data == nullptr;
}

inline bool is_vector(const assay_tensor* t, std::int64_t n) noexcept {
    return is_f32_rows(t, 1) && t->shape[0] == n;
}

inline bool same_shape(const assay_tensor& a, const assay_tensor& b) noexcept {
    if (a.rank != b.rank) return false;
    for (int d = 0; d < a.rank; ++d)
        if (a.shape[d] != b.shape[d]) return false;
    return true;
}

/// Of equal shape, and not two different views that begin at the same place.
inline bool may_map(const assay_tensor& x, const assay_tensor& out) noexcept {
    if (!same_shape(x, out)) return false;
    if (x.data != out.data) return true;
    for (int d = 0; d < x.rank; ++d)
        if (x.shape[d] > 1 && x.stride[d] != out.stride[d]) return false;
    return true;
}

inline const float* floats(const assay_tensor* t) noexcept {
    return t == nullptr ? nullptr : static_cast<const float*>(t->data);
}

}  // namespace views
