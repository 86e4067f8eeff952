// The kernels for the tier "avx2". Compiled with flags of its own: nothing inline of the standard
// library may be used here, or the linker could keep this copy of it for every processor.

#include "../common/convert.hpp"
#include "abi/common.h"
#include "kernels.hpp"

#include <immintrin.h>

namespace attention::flash {
namespace {
#include "simd_avx2.hpp"
#include "tile.inc"
}  // namespace

const Kernels kAvx2Kernels{"avx2", attend, merge, finish, index, narrow, widen};

}  // namespace attention::flash
