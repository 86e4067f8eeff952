#include "tests/plugins/quant/support.hpp"

#include "plugins/quant/ggml/bytes.hpp"
#include "plugins/quant/ggml/cpu.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <dlfcn.h>
#include <limits>
#include <stdexcept>
#include <sys/mman.h>
#include <unistd.h>

namespace quant_test {
namespace {

const assay_device_ref& cpu_device(int num_lanes) {
    static thread_local assay_device_ref device;
    device = {};
    device.size = sizeof device;
    device.kind = "cpu";
    device.num_units = num_lanes;
    return device;
}

/// Where a block keeps its fp16 scales, and the values that give elements around 1.
struct ScaleField {
    const char* format;
    int offset;
    float typical;
};
constexpr ScaleField kScaleFields[] = {
    {"q4_0", 0, 0.2f},    {"q4_1", 0, 0.15f},   {"q4_1", 2, 1.0f},    {"q5_0", 0, 0.1f},
    {"q5_1", 0, 0.07f},   {"q5_1", 2, 1.0f},    {"q8_0", 0, 0.012f},  {"q2_k", 80, 0.1f},
    {"q2_k", 82, 0.1f},   {"q3_k", 108, 0.03f}, {"q4_k", 0, 0.004f},  {"q4_k", 2, 0.03f},
    {"q5_k", 0, 0.002f},  {"q5_k", 2, 0.03f},   {"q6_k", 208, 4e-4f}, {"iq4_nl", 0, 0.012f},
    {"iq4_xs", 0, 4e-4f},
};

void fill_block(const ggml::Format& format, std::uint8_t* block, std::mt19937& rng) {
    std::normal_distribution<float> normal;
    std::uniform_real_distribution<float> spread{0.3f, 2.0f};
    const std::string_view id = format.abi.id;
    if (id == "f32") {
        const float value = normal(rng);
        std::memcpy(block, &value, 4);
        return;
    }
    if (id == "f16" || id == "bf16") {
        const float value = normal(rng);
        const std::uint16_t bits =
            id == "f16" ? ggml::float_to_half(value) : ggml::float_to_bf16(value);
        std::memcpy(block, &bits, 2);
        return;
    }
    for (std::uint32_t i = 0; i < format.abi.block_bytes; ++i)
        block[i] = static_cast<std::uint8_t>(rng());
    if (id == "mxfp4") block[0] = static_cast<std::uint8_t>(124 + rng() % 4);
    for (const ScaleField& field : kScaleFields) {
        if (id != field.format) continue;
        const float sign = rng() % 4 == 0 ? -1.0f : 1.0f;
        const std::uint16_t bits = ggml::float_to_half(sign * field.typical * spread(rng));
        std::memcpy(block + field.offset, &bits, 2);
    }
}

}  // namespace

const assay_quant& image() {
    static const assay_quant& quant = []() -> const assay_quant& {
        void* handle = dlopen(ASSAY_BUILD_DIR "/plugins/quant/ggml.so", RTLD_NOW | RTLD_LOCAL);
        if (handle == nullptr) throw std::runtime_error{dlerror()};
        const auto* module = static_cast<const assay_module*>(dlsym(handle, "assay_module_entry"));
        if (module == nullptr) throw std::runtime_error{dlerror()};
        assay_error err = sdk::make_error();
        if (module->open(nullptr, &err) != ASSAY_OK) throw std::runtime_error{err.text};
        return *static_cast<const assay_quant*>(module->query(ASSAY_KIND_QUANT));
    }();
    return quant;
}

std::vector<std::string> tiers() {
    std::vector<std::string> list;
    for (std::string_view tier : ggml::kTierNames)
        if (ggml::missing_features(tier).empty()) list.emplace_back(tier);
    return list;
}

Backend::Backend(const std::string& tier, int num_lanes) : tier_{tier} {
    const assay_option option{"tier", tier.c_str()};
    assay_quant_config config{};
    config.size = sizeof config;
    config.device = &cpu_device(num_lanes);
    config.options = &option;
    config.num_options = 1;
    assay_error err = sdk::make_error();
    char name[32];
    if (image().create(nullptr, &config, &self_, name, &err) != ASSAY_OK)
        throw std::runtime_error{err.text};
    if (tier != name) throw std::runtime_error{"asked for " + tier + ", got " + name};
}

Backend::~Backend() {
    image().destroy(self_);
}

GuardedBytes::GuardedBytes(std::size_t size) : size_{size} {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    mapped_ = (size + page - 1) / page * page + page;
    base_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base_ == MAP_FAILED) throw std::runtime_error{"mmap failed"};
    std::uint8_t* end = static_cast<std::uint8_t*>(base_) + mapped_ - page;
    if (mprotect(end, page, PROT_NONE) != 0) throw std::runtime_error{"mprotect failed"};
    data_ = end - size;
}

GuardedBytes::~GuardedBytes() {
    munmap(base_, mapped_);
}

Weights::Weights(const std::string& id, std::int64_t experts, std::int64_t rows, std::int64_t cols,
                 std::mt19937& rng)
    : format{ggml::find_format(id)},
      bytes{static_cast<std::size_t>(experts * rows * format->row_bytes(cols))} {
    const std::int64_t num_blocks = experts * rows * cols / format->abi.block_cols;
    for (std::int64_t i = 0; i < num_blocks; ++i)
        fill_block(*format, bytes.data() + i * format->abi.block_bytes, rng);
    decoded.resize(static_cast<std::size_t>(experts * rows * cols));
    format->decode(bytes.data(), num_blocks, decoded.data());
    abi.size = sizeof abi;
    abi.format = format->abi.id;
    abi.layout = ASSAY_LAYOUT_STORED;
    abi.experts = experts;
    abi.rows = rows;
    abi.cols = cols;
    abi.data = bytes.data();
    abi.data_bytes = bytes.size();
}

Rows::Rows(std::int64_t num_rows, std::int64_t cols, float filler)
    : num_rows_{num_rows},
      cols_{cols},
      stride_{cols + kPad},
      filler_{filler},
      data_(static_cast<std::size_t>(2 * kGuard + num_rows * stride_), filler) {}

assay_tensor Rows::tensor() const {
    assay_tensor t = sdk::make_tensor(row(0), ASSAY_F32, num_rows_, cols_);
    t.stride[0] = stride_;
    return t;
}

assay_tensor Rows::tensor3(std::int64_t middle) const {
    assay_tensor t = sdk::make_tensor(row(0), ASSAY_F32, num_rows_ / middle, middle, cols_);
    t.stride[0] = middle * stride_;
    t.stride[1] = stride_;
    return t;
}

void Rows::fill_normal(std::mt19937& rng, float scale) {
    std::normal_distribution<float> normal{0, scale};
    for (std::int64_t r = 0; r < num_rows_; ++r)
        for (std::int64_t i = 0; i < cols_; ++i) row(r)[i] = normal(rng);
}

bool Rows::is_outside_untouched() const {
    const auto want = std::bit_cast<std::uint32_t>(filler_);
    for (std::size_t i = 0; i < data_.size(); ++i) {
        const std::int64_t at = static_cast<std::int64_t>(i) - kGuard;
        const bool is_inside = at >= 0 && at < num_rows_ * stride_ && at % stride_ < cols_;
        if (!is_inside && std::bit_cast<std::uint32_t>(data_[i]) != want) return false;
    }
    return true;
}

std::vector<float> Rows::copy() const {
    std::vector<float> all;
    for (std::int64_t r = 0; r < num_rows_; ++r) all.insert(all.end(), row(r), row(r) + cols_);
    return all;
}

Workspace::Workspace(std::uint64_t bytes)
    : bytes_{bytes}, data_(static_cast<std::size_t>(bytes) + 2 * kGuard, 0xff) {
    offset_ = kGuard - reinterpret_cast<std::uintptr_t>(data_.data()) % kGuard;
}

void* Workspace::data() noexcept {
    return data_.data() + offset_;
}

bool Workspace::is_guard_untouched() const noexcept {
    const auto begin = data_.begin() + static_cast<std::ptrdiff_t>(offset_ + bytes_);
    return std::all_of(begin, data_.end(), [](std::uint8_t b) { return b == 0xff; });
}

assay_stream stream(const assay_lanes* lanes) {
    static thread_local assay_device_ref device;
    device = cpu_device(static_cast<int>(lanes->width));
    return {&device, nullptr, lanes};
}

Definition define(const float* w, const float* x, std::int64_t k) {
    Definition d{};
    for (std::int64_t g = 0; g < k; g += 32) {
        const std::int64_t end = std::min(k, g + 32);
        double peak = 0, sum_w = 0;
        for (std::int64_t i = g; i < end; ++i) {
            const double product = double{w[i]} * x[i];
            d.value += product;
            d.magnitude += std::fabs(product);
            peak = std::max(peak, std::fabs(double{x[i]}));
            sum_w += std::fabs(double{w[i]});
        }
        d.rounding_of_x += sum_w * peak / 254;
    }
    return d;
}

}  // namespace quant_test
