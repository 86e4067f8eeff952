#include "plugins/quant/ggml/bytes.hpp"
#include "plugins/quant/ggml/formats/decoders.hpp"

namespace ggml {

/// IEEE binary16.
void decode_f16(const std::uint8_t* blocks, std::int64_t num_blocks, float* out) {
    for (std::int64_t i = 0; i < num_blocks; ++i) out[i] = load_half(blocks + 2 * i);
}

}  // namespace ggml
