// Random blocks, held to the decoders of the quant plugin.

#include "tools/synth/blocks.hpp"

#include "plugins/quant/ggml/format.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <stdexcept>
#include <vector>

namespace synth {
namespace {

std::vector<std::byte> blocks_of(const gguf::TensorType& type, double rms, std::size_t num_blocks,
                                 std::uint64_t seed) {
    std::vector<std::byte> out(num_blocks * type.block_bytes);
    BlockMaker{type, rms}.fill(out, seed);
    return out;
}

bool holds_weights(const gguf::TensorType& type) {
    const std::string_view name = type.format;
    return !(name.starts_with("i") && !name.starts_with("iq")) && name != "f64" && name != "q8_1" &&
           name != "q8_k";
}

TEST(BlockMaker, EveryFormatOfTheQuantPluginHasTheScaleAskedFor) {
    const std::uint64_t seed = std::random_device{}();
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    for (const ggml::Format& format : ggml::formats()) {
        const gguf::TensorType* type = gguf::find_type(std::string_view{format.abi.id});
        if (type == nullptr || !holds_weights(*type)) continue;
        for (const double rms : {1.0 / std::sqrt(256.0), 1.0 / std::sqrt(18432.0), 1.0}) {
            SCOPED_TRACE(testing::Message() << format.abi.id << ", rms " << rms);
            // UE4M3 scales end at 2^-6: without the tensor's own second scale there is nothing
            // below.
            if (std::string_view{format.abi.id} == "nvfp4" && rms < 0.05) continue;
            const std::size_t num_blocks = 65536 / type->block_elements;
            const auto bytes = blocks_of(*type, rms, num_blocks, seed);
            const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
            for (std::size_t b = 0; b < num_blocks; ++b)
                ASSERT_FALSE(format.is_bad(data + b * type->block_bytes)) << "block " << b;
            std::vector<float> values(num_blocks * type->block_elements);
            format.decode(data, static_cast<std::int64_t>(num_blocks), values.data());
            double sum = 0, squares = 0;
            for (const float v : values) {
                sum += v;
                squares += static_cast<double>(v) * v;
            }
            const auto n = static_cast<double>(values.size());
            EXPECT_NEAR(std::sqrt(squares / n) / rms, 1.0, 0.08);
            EXPECT_NEAR(sum / n / rms, 0.0, 0.05);
        }
    }
}

TEST(BlockMaker, BlocksDifferAndSeedsRepeat) {
    for (const char* name : {"f32", "bf16", "q4_k", "q8_0", "iq4_xs", "mxfp4"}) {
        const gguf::TensorType& type = *gguf::find_type(std::string_view{name});
        const auto first = blocks_of(type, 0.02, 512, 7);
        EXPECT_EQ(first, blocks_of(type, 0.02, 512, 7)) << name;
        EXPECT_NE(first, blocks_of(type, 0.02, 512, 8)) << name;
        const std::size_t half = first.size() / 2;
        EXPECT_NE(std::memcmp(first.data(), first.data() + half, half), 0) << name;
    }
}

TEST(BlockMaker, Q8_0HoldsNoMinus128) {
    const auto bytes = blocks_of(*gguf::find_type(std::string_view{"q8_0"}), 0.02, 4096, 1);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        if (i % 34 < 2) continue;  // the scale
        ASSERT_NE(bytes[i], std::byte{0x80}) << i;
    }
}

TEST(BlockMaker, IntegersAreNoWeights) {
    EXPECT_THROW((BlockMaker{*gguf::find_type(std::string_view{"i32"}), 1.0}),
                 std::invalid_argument);
    EXPECT_THROW((BlockMaker{*gguf::find_type(std::string_view{"q8_k"}), 1.0}),
                 std::invalid_argument);
}

}  // namespace
}  // namespace synth
