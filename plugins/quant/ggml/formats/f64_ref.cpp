#include "plugins/quant/ggml/bytes.hpp"
#include "plugins/quant/ggml/formats/decoders.hpp"

namespace ggml {

/// IEEE binary64, rounded to nearest even; beyond the range of f32 it is infinite.
void decode_f64(const std::uint8_t* blocks, std::int64_t num_blocks, float* out) {
    for (std::int64_t i = 0; i < num_blocks; ++i)
        out[i] = static_cast<float>(
            load<double>(blocks + static_cast<std::int64_t>(sizeof(double)) * i));
}

}  // namespace ggml
