#!/usr/bin/env python3
"""make_codebooks.py TABLES_DIR > codebooks.inc: the codebooks of the iq formats as sets.

TABLES_DIR holds <name>_grid.bin, one byte an element, as tests/golden/quants unpacks them. Every codebook
lists its entries in the order of their codes: with L levels and the element j at level l(j), the code is the
sum of l(j) * L^j. So a set of codes says everything, and bit c of the bitmap says whether c is in it.
"""
import pathlib
import sys

LEVELS2 = [8, 25, 43]
BOOKS = [
    # name, elements an entry, levels
    ("iq2xxs", 8, LEVELS2),
    ("iq2xs", 8, LEVELS2),
    ("iq2s", 8, LEVELS2),
    ("iq3xxs", 4, [4, 12, 20, 28, 36, 44, 52, 62]),
    ("iq3s", 4, [1, 3, 5, 7, 9, 11, 13, 15]),
    ("iq1s", 8, [255, 0, 1]),  # -1 as a byte
]


def main():
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} TABLES_DIR > codebooks.inc")
    folder = pathlib.Path(sys.argv[1])
    print("// Written by make_codebooks.py: bit c of a bitmap says whether the entry of code c is in the codebook.")
    print("// clang-format off")
    for name, width, levels in BOOKS:
        data = (folder / f"{name}_grid.bin").read_bytes()
        codes = [
            sum(levels.index(value) * len(levels) ** j for j, value in enumerate(data[at : at + width]))
            for at in range(0, len(data), width)
        ]
        if codes != sorted(set(codes)):
            sys.exit(f"{name}: entries are not in the order of their codes")
        words = [0] * -(-len(levels) ** width // 64)
        for code in codes:
            words[code // 64] |= 1 << code % 64
        print(f"constexpr std::uint64_t k{name.capitalize()}Set[] = {{")
        for at in range(0, len(words), 5):
            print("    " + " ".join(f"0x{word:016x}," for word in words[at : at + 5]))
        print("};")
    print("// clang-format on")


main()
