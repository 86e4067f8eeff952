#!/usr/bin/env python3
"""Cuts a vocabulary down to what a set of texts can need, and joins it with the expected ids.

  make_vocab_subset.py VOCAB.gguf texts.json GOLDEN.json [IDS.out] > vocab-NAME.json

A merge whose result occurs in none of the texts (byte-mapped; for SPM with U+2581 for spaces) can
never be applied in them, so leaving it out changes no id. Ids stay as they are: the test fills the
gaps with unused tokens. GOLDEN.json is a golden file of the vocabulary collection the texts come
from; IDS.out holds a line of ids for each text of texts.json that has no name.
"""
import json
import struct
import sys


def read_metadata(path):
    data = open(path, "rb").read()
    at = 8
    formats = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?",
               10: "<Q", 11: "<q", 12: "<d"}  # fmt: skip

    def take(fmt):
        nonlocal at
        values = struct.unpack_from(fmt, data, at)
        at += struct.calcsize(fmt)
        return values

    def string():
        nonlocal at
        (size,) = take("<Q")
        at += size
        return data[at - size : at].decode()

    def value(kind):
        if kind == 8:
            return string()
        if kind == 9:
            item, count = take("<IQ")
            return [value(item) for _ in range(count)]
        return take(formats[kind])[0]

    _, num_keys = take("<QQ")
    metadata = {}
    for _ in range(num_keys):
        key = string()
        metadata[key] = value(take("<I")[0])
    return metadata


def byte_characters():
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(0x100 + i) for i, b in enumerate(others)}}


metadata = read_metadata(sys.argv[1])
texts = json.load(open(sys.argv[2]))
golden = json.load(open(sys.argv[3]))
ids_of_unnamed = [[int(i) for i in line.split()] for line in open(sys.argv[4])] if len(sys.argv) > 4 else []

is_bpe = metadata["tokenizer.ggml.model"] == "gpt2"
is_wpm = metadata["tokenizer.ggml.model"] == "bert"
characters = byte_characters()
invalid = golden.get("invalid_utf8", {}).get("cases", [])
raw = [t["text"] for t in texts] + [bytes.fromhex(c["normalised_hex"] or "").decode() for c in invalid]
if is_bpe:
    import unicodedata

    raw += [unicodedata.normalize("NFC", text) for text in raw]
    haystack = "\n".join("".join(characters[b] for b in text.encode()) for text in raw)
elif is_wpm:
    import unicodedata

    haystack = "\n".join(unicodedata.normalize("NFD", text).lower() for text in raw)
    haystack = "".join(c for c in haystack if unicodedata.category(c) not in ("Mn", "Cf"))
else:
    haystack = "\n".join("\u2581" + text.replace(" ", "\u2581") for text in raw)

tokens = metadata.pop("tokenizer.ggml.tokens")
types = metadata.pop("tokenizer.ggml.token_type", [1] * len(tokens))
scores = metadata.pop("tokenizer.ggml.scores", None)
merges = metadata.pop("tokenizer.ggml.merges", None)
for key in list(metadata):
    if not key.startswith("tokenizer.ggml.") and key != "general.name":
        del metadata[key]

needed = set(i for case in golden["cases"] for i in case["ids"])
needed |= set(i for ids in ids_of_unnamed for i in ids)
needed |= set(i for piece in golden["pieces"] for i in piece["ids"])
kept = []
for i, (text, kind) in enumerate(zip(tokens, types)):
    if kind in (2, 3, 4, 6) and not text.startswith("[PAD") or text in haystack or is_wpm and text.removeprefix("\u2581") in haystack or len(text) == 1 or i in needed:
        kept.append([i, text, kind] + ([scores[i]] if scores else []))
if merges is not None:
    merges = [m for m in merges if (m[0] + m[1:].replace(" ", "", 1)) in haystack]

cases = []
named = {case["id"]: case for case in golden["cases"]}
unnamed = iter(ids_of_unnamed)
for text in texts:
    if "id" not in text:
        cases.append({"ids": next(unnamed)} if ids_of_unnamed else None)
        continue
    case = {"ids": named[text["id"]]["ids"]}
    if "ids_parse_special_false" in named[text["id"]]:
        case["ids_plain"] = named[text["id"]]["ids_parse_special_false"]
    if metadata["tokenizer.ggml.pre"] == "qwen2" and "others" in named[text["id"]]:  # all by NFC
        case["ids_nfc"] = next(iter(named[text["id"]]["others"].values()))
    cases.append(case)
json.dump(
    {
        "metadata": metadata,
        "vocab_size": len(tokens),
        "tokens": kept,
        "merges": merges,
        "cases": cases,
        "pieces": [
            {k: p[k] for k in ("ids", "piece_hex", "deltas", "flush")} for p in golden["pieces"]
        ],
        "invalid_utf8": [c for c in invalid if c["ids"] is not None],
    },
    sys.stdout,
    ensure_ascii=False,
    separators=(",", ":"),
)
