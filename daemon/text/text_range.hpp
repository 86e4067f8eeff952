#pragma once

#include <cstddef>

namespace text {

/// A stretch of a text, in bytes.
struct TextRange {
    std::size_t begin = 0, end = 0;
};

}  // namespace text
