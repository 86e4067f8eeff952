#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "abi/plugin.h"
#include "daemon/plugin/instance.hpp"

namespace assay {

/// What lies under a device tensor, on the host: every byte from its first element to its last, those
/// between its rows included. Reading waits for the stream; nothing is read through a device pointer.
class HostTensor {
public:
    HostTensor() = default;
    HostTensor(const assay_tensor& tensor, const plugin::Device& device, const plugin::Stream& stream);

    /// Elements of an f32 tensor; missing leading indices of a tensor of lower rank are left out.
    [[nodiscard]] float at(std::int64_t i) const { return f32(i * stride(0)); }
    [[nodiscard]] float at(std::int64_t i, std::int64_t j) const { return f32(i * stride(0) + j * stride(1)); }
    [[nodiscard]] float at(std::int64_t i, std::int64_t j, std::int64_t k) const {
        return f32(i * stride(0) + j * stride(1) + k * stride(2));
    }
    /// The same of an i32 tensor.
    [[nodiscard]] std::int32_t int_at(std::int64_t i) const { return i32(i * stride(0)); }
    [[nodiscard]] std::int32_t int_at(std::int64_t i, std::int64_t j) const { return i32(i * stride(0) + j * stride(1)); }
    /// Elements of the innermost dimension at the leading indices, which have stride 1.
    [[nodiscard]] const float* row(std::int64_t i) const { return floats() + i * stride(0); }
    [[nodiscard]] const float* row(std::int64_t i, std::int64_t j) const { return floats() + i * stride(0) + j * stride(1); }
    [[nodiscard]] const assay_tensor& shape() const { return tensor_; }
    [[nodiscard]] std::int64_t size(int dim) const { return tensor_.shape[dim]; }
    [[nodiscard]] bool is_absent() const { return tensor_.data == nullptr; }

    /// Sets every element of the tensor, and nothing between its rows, to the sentinel, here and on the
    /// device.
    void poison(const plugin::Device& device, const plugin::Stream& stream);
    /// Writes everything back to where it was read.
    void restore(const plugin::Device& device, const plugin::Stream& stream) const;
    /// The same bits, those between the rows included.
    [[nodiscard]] bool equals(const HostTensor& other) const;
    /// Whether what lies between the rows is as it was in `before`.
    [[nodiscard]] bool equals_outside(const HostTensor& before) const;

    /// Calls visit(offset) with the offset, in elements, of each element of the tensor.
    template <class Visit>
    void for_each(Visit&& visit) const {
        walk(0, 0, visit);
    }
    [[nodiscard]] std::uint32_t bits(std::int64_t offset) const {
        return std::bit_cast<std::uint32_t>(data_[static_cast<std::size_t>(offset)]);
    }

private:
    [[nodiscard]] std::int64_t stride(int dim) const { return tensor_.stride[dim]; }
    [[nodiscard]] const float* floats() const { return data_.data(); }
    [[nodiscard]] float f32(std::int64_t offset) const { return floats()[offset]; }
    [[nodiscard]] std::int32_t i32(std::int64_t offset) const {
        return static_cast<std::int32_t>(bits(offset));
    }
    template <class Visit>
    void walk(int dim, std::int64_t offset, Visit& visit) const {
        for (std::int64_t i = 0; i < tensor_.shape[dim]; ++i) {
            const std::int64_t at = offset + i * tensor_.stride[dim];
            if (dim + 1 == tensor_.rank)
                visit(at);
            else
                walk(dim + 1, at, visit);
        }
    }

    assay_tensor tensor_{};
    std::vector<float> data_;  // of an i32 tensor the same bits
};

/// A host array of `count` four-byte elements that lie together in device memory.
[[nodiscard]] std::vector<std::int32_t> host_ints(const std::int32_t* device_data, std::int64_t count,
                                                  const plugin::Device& device, const plugin::Stream& stream);

}  // namespace assay
