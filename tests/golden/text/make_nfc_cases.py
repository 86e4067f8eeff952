#!/usr/bin/env python3
"""Writes nfc.json: random strings of characters that NFC may change, with Python's own NFC of them."""
import json
import random
import unicodedata

random.seed(20260314)
composed, marks = [], []
for code in range(0x110000):
    char = chr(code)
    if unicodedata.combining(char):
        marks.append(char)
    if unicodedata.normalize("NFD", char) != char and not 0xD800 <= code <= 0xDFFF:
        composed.append(char)
jamo = [chr(c) for c in [*range(0x1100, 0x1113), *range(0x1161, 0x1176), *range(0x11A8, 0x11C3)]]
cases = []
for _ in range(400):
    text = ""
    for _ in range(random.randrange(1, 9)):
        kind = random.randrange(5)
        char = random.choice((composed, marks, jamo, "aeoAEO \u0915\u0bc6\u0653", marks)[kind])
        text += unicodedata.normalize("NFD", char) if random.random() < 0.5 else char
    cases.append([text, unicodedata.normalize("NFC", text)])
json.dump(cases, open("nfc.json", "w"), indent=0)
