#include "plugins/quant/ggml/reference/tile.hpp"

namespace ggml {

void reference_tile_baseline(const TileArgs& args) {
    reference_tile<1>(args);
}

}  // namespace ggml
