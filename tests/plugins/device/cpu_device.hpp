#pragma once

// The cpu image, opened through its one symbol like any host would (with TEST_CUDA: the cuda image),
// and f32 matrices that notice writes beyond their views.

#include "cxx/plugin.hpp"
#include "tests/support/lanes.hpp"
#if defined(TEST_CUDA)
#include "cuda_device.hpp"
#endif

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <dlfcn.h>
#include <random>
#include <string>
#include <vector>

namespace device_test {

#if !defined(TEST_CUDA)

inline const assay_module& cpu_module() {
    static const assay_module* const module = [] {
        void* image = dlopen(ASSAY_BUILD_DIR "/plugins/device/cpu.so", RTLD_NOW | RTLD_LOCAL);
        if (image == nullptr) throw std::runtime_error{dlerror()};
        return static_cast<const assay_module*>(dlsym(image, "assay_module_entry"));
    }();
    return *module;
}

inline const assay_device& cpu_table() {
    return *static_cast<const assay_device*>(cpu_module().query(ASSAY_KIND_DEVICE));
}

/// Opens with one option; OK, or the refusal and its words.
inline assay_status open_with(const char* key, const char* value, void** self,
                              assay_device_ref* ref, assay_error* err) {
    const assay_option option{key, value};
    const assay_device_config config{sizeof config, 0, &option, 1};
    return cpu_table().open(nullptr, &config, self, ref, err);
}

/// An opened device of one tier, with a stream of `width` lanes.
class CpuDevice {
public:
    explicit CpuDevice(const char* tier = "auto", std::uint32_t width = 1) : lanes_{width} {
        assay_error err = sdk::make_error();
        if (open_with("tier", tier, &self_, &ref_, &err) != ASSAY_OK)
            throw std::runtime_error{err.text};
        cpu_table().stream_create(self_, 0, lanes_.get(), &stream_, nullptr);
    }
    ~CpuDevice() {
        cpu_table().stream_destroy(self_, &stream_);
        cpu_table().close(self_);
    }
    CpuDevice(const CpuDevice&) = delete;
    CpuDevice& operator=(const CpuDevice&) = delete;

    [[nodiscard]] void* self() const { return self_; }
    [[nodiscard]] const assay_ops& ops() const { return *cpu_table().ops; }
    [[nodiscard]] const assay_stream* stream() const { return &stream_; }
    [[nodiscard]] const assay_device_ref& ref() const { return ref_; }

private:
    support::TestLanes lanes_;
    void* self_ = nullptr;
    assay_device_ref ref_{};
    assay_stream stream_{};
};

/// The tiers that this processor runs, "reference" included.
inline std::vector<std::string> runnable_tiers() {
    std::vector<std::string> tiers;
    for (const char* tier : {"reference", "baseline", "avx2", "avx512"}) {
        void* self = nullptr;
        assay_device_ref ref{};
        if (open_with("tier", tier, &self, &ref, nullptr) != ASSAY_OK) continue;
        cpu_table().close(self);
        tiers.emplace_back(tier);
    }
    return tiers;
}

#endif  // the device

/// A NaN that no arithmetic makes: what outputs hold before a call, and guards after it too.
inline float sentinel() {
    return std::bit_cast<float>(0x7fc5a5a5u);
}
inline bool is_sentinel(float x) {
    return std::bit_cast<std::uint32_t>(x) == 0x7fc5a5a5u;
}

/// [rows, width] f32 inside a larger array of sentinels: `gap` of them after each row, and a block
/// before the first row and after the last.
class Matrix {
public:
    Matrix(std::int64_t rows, std::int64_t width, std::int64_t gap = 0)
        : rows_{rows},
          width_{width},
          stride_{width + gap},
          data_(static_cast<std::size_t>(2 * kMargin + rows * (width + gap)), sentinel()) {}

    Matrix(const std::vector<float>& dense, std::int64_t rows, std::int64_t width, std::int64_t gap)
        : Matrix(rows, width, gap) {
        for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t i = 0; i < width; ++i)
                row(r)[i] = dense[static_cast<std::size_t>(r * width + i)];
    }

    [[nodiscard]] float* row(std::int64_t r) { return data_.data() + kMargin + r * stride_; }

    [[nodiscard]] assay_tensor view() {
        assay_tensor t = sdk::make_tensor(row(0), ASSAY_F32, rows_, width_);
        t.stride[0] = stride_;
        return t;
    }
    /// The same as [rows, heads, width / heads].
    [[nodiscard]] assay_tensor heads(std::int64_t num_heads) {
        assay_tensor t = sdk::make_tensor(row(0), ASSAY_F32, rows_, num_heads, width_ / num_heads);
        t.stride[0] = stride_;
        return t;
    }

    [[nodiscard]] std::vector<float> dense() {
        std::vector<float> out;
        for (std::int64_t r = 0; r < rows_; ++r) out.insert(out.end(), row(r), row(r) + width_);
        return out;
    }

    /// Index of the first guard that was written to, or -1.
    [[nodiscard]] std::int64_t first_broken_guard() const {
        for (std::int64_t i = 0; i < static_cast<std::int64_t>(data_.size()); ++i) {
            const std::int64_t from = i - kMargin;
            const bool is_inside = from >= 0 && from < rows_ * stride_ && from % stride_ < width_;
            if (!is_inside && !is_sentinel(data_[static_cast<std::size_t>(i)])) return i;
        }
        return -1;
    }

private:
    static constexpr std::int64_t kMargin = 64;
    std::int64_t rows_, width_, stride_;
    std::vector<float> data_;
};

using Rng = std::mt19937_64;

/// A seed that differs from run to run and is printed with every failure.
inline std::uint64_t fresh_seed() {
    return std::random_device{}();
}

inline std::vector<float> normals(Rng& rng, std::int64_t n, float deviation = 1, float mean = 0) {
    std::normal_distribution<float> distribution{mean, deviation};
    std::vector<float> values(static_cast<std::size_t>(n));
    for (float& v : values) v = distribution(rng);
    return values;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() &&
           (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

}  // namespace device_test
