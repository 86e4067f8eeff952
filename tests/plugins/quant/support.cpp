#include "tests/plugins/quant/support.hpp"

#include "plugins/quant/ggml/bytes.hpp"
#include "tests/support/build_dir.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <sys/mman.h>
#include <unistd.h>

namespace quant_test {
namespace {

void put_half(std::uint8_t* at, float value) {
    const std::uint16_t bits = ggml::float_to_half(value);
    std::memcpy(at, &bits, 2);
}

/// Writes the one scale of a block that is not named in the table of formats.
void put_odd_scale(std::string_view id, std::uint8_t* block, float value, std::mt19937& rng) {
    if (id == "q8_k") std::memcpy(block, &value, 4);
    if (id == "mxfp4") block[0] = static_cast<std::uint8_t>(124 + rng() % 4);
    if (id == "nvfp4")  // from 2^-4 to 2^-1
        for (int g = 0; g < 4; ++g) block[g] = static_cast<std::uint8_t>(0x18 + rng() % 0x18);
    if (id == "iq1_m") {
        const std::uint16_t bits = ggml::float_to_half(value);
        for (int i = 0; i < 4; ++i) {
            std::uint8_t& byte = block[49 + 2 * i];
            byte = static_cast<std::uint8_t>((byte & 15) | (bits >> (4 * i) & 15) << 4);
        }
    }
}

/// Random integers, and these scales.
void fill_quantized(const ggml::Format& format, std::uint8_t* block, float scale, float min,
                    std::mt19937& rng) {
    for (std::uint32_t i = 0; i < format.abi.block_bytes; ++i)
        block[i] = static_cast<std::uint8_t>(rng());
    if (format.check.scale_at >= 0) put_half(block + format.check.scale_at, scale);
    if (format.check.min_at >= 0) put_half(block + format.check.min_at, min);
    put_odd_scale(format.abi.id, block, scale, rng);
}

/// Root mean square of the elements of random blocks with these scales.
double rms_of(const ggml::Format& format, float scale, float min) {
    std::mt19937 rng{1};
    std::vector<std::uint8_t> block(format.abi.block_bytes);
    std::vector<float> out(format.abi.block_cols);
    double sum = 0;
    constexpr int kBlocks = 20;
    for (int i = 0; i < kBlocks; ++i) {
        fill_quantized(format, block.data(), scale, min, rng);
        format.decode(block.data(), 1, out.data());
        for (const float value : out) sum += double{value} * value;
    }
    return std::sqrt(sum / (kBlocks * static_cast<double>(out.size())));
}

/// The scale and min that give elements around 1.
struct TypicalScales {
    explicit TypicalScales(const ggml::Format& format) {
        if (const double rms = rms_of(format, 1, 0); rms > 0) scale = static_cast<float>(1 / rms);
        if (const double rms = rms_of(format, 0, 1); rms > 0) min = static_cast<float>(1 / rms);
    }
    float scale = 1, min = 1;
};

template <class T>
void put_value(std::uint8_t* block, T value) {
    std::memcpy(block, &value, sizeof value);
}

/// One element of a plain type.
void fill_plain(std::string_view id, std::uint8_t* block, std::mt19937& rng) {
    std::normal_distribution<float> normal;
    const float value = normal(rng);
    if (id == "f32") return put_value(block, value);
    if (id == "f64") return put_value(block, double{value} * 1.000000001);
    if (id == "f16") return put_value(block, ggml::float_to_half(value));
    if (id == "bf16") return put_value(block, ggml::float_to_bf16(value));
    const auto integer = static_cast<std::int64_t>(4 * value);
    if (id == "i8") return put_value(block, static_cast<std::int8_t>(integer));
    if (id == "i16") return put_value(block, static_cast<std::int16_t>(integer));
    if (id == "i32") return put_value(block, static_cast<std::int32_t>(integer));
    if (id == "i64") return put_value(block, integer);
    throw std::logic_error{"no random values for " + std::string{id}};
}

void fill_blocks(const ggml::Format& format, std::uint8_t* blocks, std::int64_t num_blocks,
                 std::mt19937& rng) {
    std::uniform_real_distribution<float> spread{0.3f, 2.0f};
    const auto factor = [&] { return (rng() % 4 == 0 ? -1.0f : 1.0f) * spread(rng); };
    if (format.abi.block_cols == 1) {
        for (std::int64_t i = 0; i < num_blocks; ++i)
            fill_plain(format.abi.id, blocks + i * format.abi.block_bytes, rng);
        return;
    }
    const TypicalScales typical{format};
    for (std::int64_t i = 0; i < num_blocks; ++i)
        fill_quantized(format, blocks + i * format.abi.block_bytes, typical.scale * factor(),
                       typical.min * factor(), rng);
}

}  // namespace

std::vector<std::uint8_t> golden(const std::string& name) {
    std::ifstream file{support::build_dir() + "/goldens/quants/" + name, std::ios::binary};
    return {std::istreambuf_iterator<char>{file}, {}};
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
    fill_blocks(*format, bytes.data(), num_blocks, rng);
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
