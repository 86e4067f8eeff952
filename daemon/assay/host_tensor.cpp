#include "daemon/assay/host_tensor.hpp"

#include <cstring>

#include "daemon/assay/tally.hpp"
#include "daemon/base/check.hpp"

namespace assay {

HostTensor::HostTensor(const assay_tensor& tensor, const plugin::Device& device, const plugin::Stream& stream)
    : tensor_{tensor} {
    if (tensor.data == nullptr) return;
    CHECK(tensor.dtype == ASSAY_F32 || tensor.dtype == ASSAY_I32);
    std::int64_t extent = 1;
    for (int d = 0; d < tensor.rank; ++d) {
        if (tensor.shape[d] == 0) return;
        extent += (tensor.shape[d] - 1) * tensor.stride[d];
    }
    data_.resize(static_cast<std::size_t>(extent));
    device.copy(data_.data(), tensor.data, data_.size() * sizeof(float), stream);
    stream.sync();
}

void HostTensor::poison(const plugin::Device& device, const plugin::Stream& stream) {
    if (data_.empty()) return;
    for_each([&](std::int64_t offset) { data_[static_cast<std::size_t>(offset)] = std::bit_cast<float>(kSentinel); });
    restore(device, stream);
}

void HostTensor::restore(const plugin::Device& device, const plugin::Stream& stream) const {
    if (data_.empty()) return;
    device.copy(tensor_.data, data_.data(), data_.size() * sizeof(float), stream);
    stream.sync();
}

bool HostTensor::equals(const HostTensor& other) const {
    return data_.size() == other.data_.size() && std::memcmp(data_.data(), other.data_.data(), data_.size() * sizeof(float)) == 0;
}

bool HostTensor::equals_outside(const HostTensor& before) const {
    if (data_.empty()) return true;
    std::vector<float> own = data_, other = before.data_;
    for_each([&](std::int64_t offset) {
        own[static_cast<std::size_t>(offset)] = 0;
        other[static_cast<std::size_t>(offset)] = 0;
    });
    return std::memcmp(own.data(), other.data(), own.size() * sizeof(float)) == 0;  // NaN equals itself
}

std::vector<std::int32_t> host_ints(const std::int32_t* device_data, std::int64_t count, const plugin::Device& device,
                                    const plugin::Stream& stream) {
    std::vector<std::int32_t> out(static_cast<std::size_t>(count));
    if (count == 0) return out;
    device.copy(out.data(), device_data, out.size() * sizeof(std::int32_t), stream);
    stream.sync();
    return out;
}

}  // namespace assay
