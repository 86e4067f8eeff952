#pragma once

// What the tests of the quant image share: the image itself, opened as the daemon does; weights
// with random but sane blocks; the definition of a product in f64.

#include "cxx/plugin.hpp"
#include "plugins/quant/ggml/format.hpp"
#include "tests/support/lanes.hpp"

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace quant_test {

/// The image, through its one symbol. Opened once; never closed, as in the daemon.
[[nodiscard]] const assay_quant& image();

/// A file of the golden data of formats, whole; empty when there is none.
[[nodiscard]] std::vector<std::uint8_t> golden(const std::string& name);

/// The tiers that this processor runs, "reference" included.
[[nodiscard]] std::vector<std::string> tiers();

/// How a backend computes a product: what its bounds rest on.
enum class Arithmetic {
    f64,      // sums in f64, rounded once
    f32,      // x and w as they are, sums in f32
    integer,  // x in 8 bits a group of 32 (with FINE twice), integer sums within a group
    half,     // x and w in 16 bits on tensor cores, sums in f32 (FINE and plain weights: x twice)
};

/// An instance of the image with one tier.
class Backend {
public:
    /// @param num_lanes  what create() is told; the workspaces are for so many
    explicit Backend(const std::string& tier, int num_lanes = 3);
    ~Backend();
    Backend(const Backend&) = delete;
    Backend& operator=(const Backend&) = delete;

    [[nodiscard]] void* self() const noexcept { return self_; }
    [[nodiscard]] const std::string& tier() const noexcept { return tier_; }
    [[nodiscard]] bool is_reference() const noexcept { return tier_ == "reference"; }
    /// @param slots  rows of y that meet one weight
    [[nodiscard]] Arithmetic arithmetic(const ggml::Format& format, std::int32_t op, std::int64_t slots,
                                        std::uint32_t flags) const;

private:
    std::string tier_;
    void* self_ = nullptr;
};

/// Bytes whose end is the end of a page that no readable one follows: a kernel that reads beyond
/// them ends the program, in every build.
class GuardedBytes {
public:
    explicit GuardedBytes(std::size_t size);
    ~GuardedBytes();
    GuardedBytes(const GuardedBytes&) = delete;
    GuardedBytes& operator=(const GuardedBytes&) = delete;

    [[nodiscard]] std::uint8_t* data() const noexcept { return data_; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }

private:
    std::size_t size_, mapped_;
    void* base_;
    std::uint8_t* data_;
};

/// [experts, rows, cols] of random blocks: integers over their whole range, scales such that
/// decoded values are around 1. Bytes behind the last block belong to another allocation.
struct Weights {
    Weights(const std::string& format, std::int64_t experts, std::int64_t rows, std::int64_t cols,
            std::mt19937& rng);

    const ggml::Format* format;
    assay_weight abi{};
    GuardedBytes bytes;
    std::vector<float> decoded;  // [experts, rows, cols], by the format's definition
    [[nodiscard]] const float* row(std::int64_t e, std::int64_t r) const {
        return decoded.data() + (e * abi.rows + r) * abi.cols;
    }
};

/// Rows longer than their shape, filled with `filler` outside of it and guarded on both sides.
class Rows {
public:
    Rows(std::int64_t num_rows, std::int64_t cols, float filler);

    [[nodiscard]] float* row(std::int64_t r) { return data_.data() + kGuard + r * stride_; }
    [[nodiscard]] const float* row(std::int64_t r) const {
        return data_.data() + kGuard + r * stride_;
    }
    [[nodiscard]] assay_tensor tensor() const;
    /// As [num_rows / middle, middle, cols].
    [[nodiscard]] assay_tensor tensor3(std::int64_t middle) const;
    void fill_normal(std::mt19937& rng, float scale);
    /// True when every float outside of the shape still has the bits of the filler.
    [[nodiscard]] bool is_outside_untouched() const;
    [[nodiscard]] std::vector<float> copy() const;  // [num_rows, cols]

private:
    static constexpr std::int64_t kGuard = 37, kPad = 3;
    std::int64_t num_rows_, cols_, stride_;
    float filler_;
    std::vector<float> data_;
};

/// Workspace of exactly the size that the image asks for, poisoned, with a guard behind it.
class Workspace {
public:
    explicit Workspace(std::uint64_t bytes);
    [[nodiscard]] void* data() noexcept;
    [[nodiscard]] bool is_guard_untouched() const noexcept;

private:
    static constexpr std::size_t kGuard = 256;
    std::uint64_t bytes_;
    std::vector<std::uint8_t> data_;
    std::size_t offset_ = 0;
};

/// The stream of a CPU device with these lanes.
[[nodiscard]] assay_stream stream(const assay_lanes* lanes);

/// A product and what it is made of, for bounds.
struct Definition {
    double value;      // sum of w x
    double magnitude;  // sum of |w x|
    /// Sum of |w| times half a step of x in 8 bits per group of 32: the most that rounding x can
    /// do.
    double rounding_of_x;
};
[[nodiscard]] Definition define(const float* w, const float* x, std::int64_t k);

}  // namespace quant_test
