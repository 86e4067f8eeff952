#!/bin/sh
# tier_symbols.sh LIBRARY: the translation units that are compiled for newer processors define nothing
# with external linkage but their one entry each. Anything else could be merged by the linker with the
# same function of a unit for all processors, and end them with an illegal instruction.
set -eu
symbols=$(nm -A -g --defined-only "$1" 2>/dev/null | grep -E ':(tier_avx|tile_avx)[a-z0-9_]*\.cpp\.o:' |
    grep -E ' [TWVuiBD] ' | grep -v ' DW\.ref\.')
entries=$(printf '%s\n' "$symbols" | grep -cE ' T _ZN4ggml[0-9]+(tier|reference_tile)_avx')
others=$(printf '%s\n' "$symbols" | grep -vE ' T _ZN4ggml[0-9]+(tier|reference_tile)_avx' || true)
if [ "$entries" -ne 5 ]; then
    echo "want 5 entries, found $entries:"
    printf '%s\n' "$symbols"
    exit 1
fi
if [ -n "$others" ]; then
    echo "symbols that other units could share:"
    printf '%s\n' "$others"
    exit 1
fi
