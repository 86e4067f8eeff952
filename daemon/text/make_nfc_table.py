#!/usr/bin/env python3
"""Writes nfc_table.cpp: canonical decompositions and combining classes.

Source: the Unicode Character Database, as Python's unicodedata module carries it. NFC of assigned
characters never changes, so a newer Python only adds characters.

Usage: python3 make_nfc_table.py > nfc_table.cpp
"""
import sys
import unicodedata

decompositions, classes = [], []
for code in range(0x110000):
    if 0xAC00 <= code <= 0xD7A3 or 0xD800 <= code <= 0xDFFF:
        continue  # Hangul syllables are computed
    char = chr(code)
    combining = unicodedata.combining(char)
    if combining:
        if classes and classes[-1][1] == code - 1 and classes[-1][2] == combining:
            classes[-1][1] = code
        else:
            classes.append([code, code, combining])
    decomposition = unicodedata.decomposition(char)
    if decomposition and not decomposition.startswith("<"):
        parts = [int(part, 16) for part in decomposition.split()]
        composes = len(parts) == 2 and unicodedata.normalize("NFC", char) == char
        decompositions.append((code, parts[0], parts[1] if len(parts) == 2 else 0, composes))


def rows(items, per_line):
    for start in range(0, len(items), per_line):
        print("    " + " ".join("{" + item + "}," for item in items[start : start + per_line]))


print(f"// Made by make_nfc_table.py from Unicode {unicodedata.unidata_version}.")
print('#include "daemon/text/nfc_table.hpp"\n\nnamespace text {\n\nnamespace {\n')
print("// clang-format off\nconstexpr Decomposition kDecompositions[] = {")
rows([f"0x{c:X}, 0x{a:X}, 0x{b:X}, {'true' if k else 'false'}" for c, a, b, k in decompositions], 3)
print("};\n\nconstexpr CombiningRange kCombining[] = {")
rows([f"0x{a:X}, 0x{b:X}, {k}" for a, b, k in classes], 4)
print("};\n// clang-format on\n\n}  // namespace\n")
print("std::span<const Decomposition> decompositions() { return kDecompositions; }")
print("std::span<const CombiningRange> combining_ranges() { return kCombining; }")
print("\n}  // namespace text")
sys.stdout.flush()
