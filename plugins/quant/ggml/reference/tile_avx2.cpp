#include "plugins/quant/ggml/reference/tile.hpp"

namespace ggml {

void reference_tile_avx2(const TileArgs& args) {
    reference_tile<2>(args);
}

}  // namespace ggml
