#include "plugins/quant/ggml/reference/tile.hpp"

namespace ggml {

void reference_tile_avx512(const TileArgs& args) {
    reference_tile<8>(args);
}

}  // namespace ggml
