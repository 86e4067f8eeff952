// The kernels for the tier "scalar". Compiled with flags of its own: nothing inline of the standard
// library may be used here, or the linker could keep this copy of it for every processor.

#include "../common/convert.hpp"
#include "abi/common.h"
#include "kernels.hpp"

namespace attention::flash {
namespace {
#include "simd_scalar.hpp"
#include "tile.inc"
}  // namespace

const Kernels kScalarKernels{"scalar", attend, merge, finish, index, narrow, widen};

}  // namespace attention::flash
