#pragma once

// What the nibbles of the non-linear formats mean.

#include <cstdint>

namespace ggml {

/// iq4_nl and iq4_xs.
inline constexpr std::int8_t kIq4Levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};

/// mxfp4 and nvfp4: twice the E2M1 value; code 8 is zero, not minus zero.
inline constexpr std::int8_t kFp4Levels[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                               0, -1, -2, -3, -4, -6, -8, -12};

}  // namespace ggml
