#!/usr/bin/env python3
"""Writes lowercase_table.cpp: which characters have a lower-case form of one character.

Source: the Unicode Character Database, as Python's unicodedata module carries it (simple case
mappings; the one full mapping to two characters, of U+0130, is added by lowercase.cpp).

Usage: python3 make_lowercase_table.py > lowercase_table.cpp
"""
import unicodedata

runs = []  # first, last, step, distance
for code in range(0x110000):
    lower = chr(code).lower()
    if 0xD800 <= code <= 0xDFFF or len(lower) != 1 or ord(lower) == code:
        continue
    distance = ord(lower) - code
    if runs and runs[-1][3] == distance:
        first, last, step, _ = runs[-1]
        if first == last and code - last <= 2:
            runs[-1] = [first, code, code - last, distance]
            continue
        if code - last == step:
            runs[-1][1] = code
            continue
    runs.append([code, code, 1, distance])

print(f"// Made by make_lowercase_table.py from Unicode {unicodedata.unidata_version}.")
print('#include "daemon/text/lowercase.hpp"\n\nnamespace text {\n\nnamespace {\n')
print("// clang-format off\nconstexpr LowercaseRun kRuns[] = {")
rows = [f"{{0x{a:X}, 0x{b:X}, {s}, {d}}}," for a, b, s, d in runs]
for start in range(0, len(rows), 4):
    print("    " + " ".join(rows[start : start + 4]))
print("};\n// clang-format on\n\n}  // namespace\n")
print("std::span<const LowercaseRun> lowercase_runs() { return kRuns; }\n\n}  // namespace text")
