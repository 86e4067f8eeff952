#include "plugins/quant/ggml/bytes.hpp"
#include "plugins/quant/ggml/formats/decoders.hpp"

namespace ggml {

/// Two's complement, rounded to nearest even.
void decode_i64(const std::uint8_t* blocks, std::int64_t num_blocks, float* out) {
    for (std::int64_t i = 0; i < num_blocks; ++i)
        out[i] = static_cast<float>(
            load<std::int64_t>(blocks + static_cast<std::int64_t>(sizeof(std::int64_t)) * i));
}

}  // namespace ggml
