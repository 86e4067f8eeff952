// The kernels for the tier "avx512". Compiled with flags of its own: nothing inline of the standard
// library may be used here, or the linker could keep this copy of it for every processor.

#include "../common/convert.hpp"
#include "abi/common.h"
#include "kernels.hpp"

#include <immintrin.h>

namespace attention::flash {
namespace {
#include "simd_avx512.hpp"
#include "tile.inc"
}  // namespace

const Kernels kAvx512Kernels{"avx512", attend, merge, finish, index, narrow, widen};

}  // namespace attention::flash
