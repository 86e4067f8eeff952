#pragma once

#include "plugins/loader/gguf/types.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace synth {

/// Makes blocks of one weight format at random: every quantized value is drawn uniformly, and the
/// scales so that the weights have mean 0 and a given root mean square. Nothing is quantized, so it
/// is as fast as memory. Immutable: any thread may fill from one object.
class BlockMaker {
public:
    /// @param rms  of the weights, in the range of the format's scales
    /// @throws std::invalid_argument for a format that holds no weights (integers, activations)
    BlockMaker(const gguf::TensorType& type, double rms);
    ~BlockMaker();
    BlockMaker(BlockMaker&&) noexcept;

    /// Fills `out`, whole blocks, from a seed. The same seed gives the same bytes.
    void fill(std::span<std::byte> out, std::uint64_t seed) const;

    struct Recipe;

private:
    const gguf::TensorType& type_;
    std::unique_ptr<Recipe> recipe_;
};

}  // namespace synth
