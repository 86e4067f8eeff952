#pragma once

#include <cstdlib>
#include <string>

namespace support {

/// Where plugins/ and goldens/ lie: the build tree, or what TEST_BUILD_DIR names where the programs
/// were carried to another machine.
inline std::string build_dir() {
    const char* moved = std::getenv("TEST_BUILD_DIR");
    return moved != nullptr ? moved : ASSAY_BUILD_DIR;
}

}  // namespace support
