#!/usr/bin/env python3
"""Generate small valid and malformed GGUF files plus manifest.json.

Usage: make.py OUT_DIR
Standard library only; output is byte-for-byte deterministic.

Every entry of the manifest has:
  file     name inside OUT_DIR
  layer    "container" (format parser) or "model" (metadata/semantic checks)
  expect   "accept" | "reject: <reason>" | "either: <note>"
           ("either" = both results are defensible, but no crash, hang,
            huge allocation or out-of-bounds access is allowed)
  note     what is wrong and where
"""
import hashlib
import json
import os
import struct
import sys

# metadata value type ids
U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARR, U64, I64, F64 = range(13)
SCALAR = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f",
          BOOL: "B", U64: "Q", I64: "q", F64: "d"}

# tensor types: name -> (id, elements per block, bytes per block)
TT = {
    "F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20),
    "Q5_0": (6, 32, 22), "Q5_1": (7, 32, 24), "Q8_0": (8, 32, 34), "Q8_1": (9, 32, 36),
    "Q2_K": (10, 256, 84), "Q3_K": (11, 256, 110), "Q4_K": (12, 256, 144),
    "Q5_K": (13, 256, 176), "Q6_K": (14, 256, 210), "Q8_K": (15, 256, 292),
    "IQ2_XXS": (16, 256, 66), "IQ2_XS": (17, 256, 74), "IQ3_XXS": (18, 256, 98),
    "IQ1_S": (19, 256, 50), "IQ4_NL": (20, 32, 18), "IQ3_S": (21, 256, 110),
    "IQ2_S": (22, 256, 82), "IQ4_XS": (23, 256, 136), "I8": (24, 1, 1), "I16": (25, 1, 2),
    "I32": (26, 1, 4), "I64": (27, 1, 8), "F64": (28, 1, 8), "IQ1_M": (29, 256, 56),
    "BF16": (30, 1, 2), "TQ1_0": (34, 256, 54), "TQ2_0": (35, 256, 66),
    "MXFP4": (39, 32, 17), "NVFP4": (40, 64, 36), "Q1_0": (41, 128, 18), "Q2_0": (42, 64, 18),
}
M64 = (1 << 64) - 1


def pad(n, a):
    return (n + a - 1) // a * a


class W:
    """Byte writer; e is '<' or '>'; wide=False gives 32-bit counts (version 1)."""

    def __init__(self, e="<", wide=True):
        self.b = bytearray()
        self.e = e
        self.wide = wide

    def p(self, fmt, *v):
        self.b += struct.pack(self.e + fmt, *v)
        return self

    def cnt(self, n):
        return self.p("Q" if self.wide else "I", n)

    def raw(self, data):
        self.b += data
        return self

    def s(self, text, declared=None):
        d = text if isinstance(text, bytes) else text.encode()
        self.cnt(len(d) if declared is None else declared)
        return self.raw(d)

    def val(self, t, v):
        if t == STR:
            return self.s(v)
        if t == ARR:
            et, items = v
            self.p("I", et).cnt(len(items))
            for it in items:
                self.val(et, it)
            return self
        return self.p(SCALAR[t], v)

    def kv(self, key, t, v):
        return self.s(key).p("I", t).val(t, v)

    def tinfo(self, name, dims, ttype, offset, n_dims=None):
        self.s(name).p("I", len(dims) if n_dims is None else n_dims)
        for d in dims:
            self.cnt(d & M64)
        return self.p("I", ttype & 0xFFFFFFFF).p("Q", offset & M64)


def header(w, n_tensors, n_kv, version=3, magic=b"GGUF"):
    w.raw(magic)
    w.p("I", version)
    w.cnt(n_tensors & M64)
    return w.cnt(n_kv & M64)


def fill(n, seed=1):
    out = bytearray()
    x = seed & 0xFFFFFFFF
    while len(out) < n:
        x = (x * 1664525 + 1013904223) & 0xFFFFFFFF
        out.append((x >> 24) & 0x3F)      # small bytes: never an Inf/NaN fp16 exponent
    return bytes(out[:n])


ARCH = [("general.architecture", STR, "llama")]


def build(kvs=ARCH, tensors=(), align=32, version=3, e="<", trailing_pad=True, tail=b"", data=None):
    """Well-formed file. tensors: list of (name, dims, typename)."""
    w = header(W(e, version >= 2), len(tensors), len(kvs), version)
    for k, t, v in kvs:
        w.kv(k, t, v)
    off, sizes = 0, []
    for name, dims, tn in tensors:
        tid, be, bb = TT[tn]
        n = 1
        for d in dims:
            n *= d
        size = n // be * bb
        w.tinfo(name, dims, tid, off)
        sizes.append(size)
        off = pad(off + size, align)
    if tensors:
        w.raw(b"\0" * (pad(len(w.b), align) - len(w.b)))
    for i, size in enumerate(sizes):
        w.raw(fill(size, i + 1) if data is None else data[i])
        if i + 1 < len(sizes) or trailing_pad:
            w.raw(b"\0" * (pad(size, align) - size))
    return bytes(w.b) + tail


def infos(entries, align=32, kvs=ARCH, data_len=0, n_tensors=None, do_pad=True):
    """File with hand-written tensor infos: entries are tinfo() argument tuples."""
    w = header(W(), len(entries) if n_tensors is None else n_tensors, len(kvs))
    for k, t, v in kvs:
        w.kv(k, t, v)
    for en in entries:
        w.tinfo(*en)
    if do_pad:
        w.raw(b"\0" * (pad(len(w.b), align) - len(w.b)))
    return bytes(w.raw(fill(data_len, 7)).b)


def kvfile(writer, n_kv=1, tail=b""):
    """Header with n_kv and zero tensors, then whatever writer() emits."""
    w = header(W(), 0, n_kv)
    writer(w)
    return bytes(w.b) + tail


CASES = []


def add(name, blob, expect, note, layer="container"):
    assert len(blob) < 65536, name
    CASES.append((name + ".gguf", blob, expect, note, layer))


def rej(name, blob, reason, note, layer="container"):
    add(name, blob, "reject: " + reason, note, layer)


def make():
    F = TT["F32"][0]
    one = [("t", [8], F, 0)]

    # ------------------------------------------------------------------ valid
    std = ARCH + [("general.name", STR, "tiny"), ("general.file_type", U32, 0)]
    two = [("token_embd.weight", [8, 4], "F32"), ("output_norm.weight", [8], "F32")]
    add("valid_v3_minimal", build(std, two), "accept", "version 3, two F32 tensors, default alignment 32")
    add("valid_v2_minimal", build(std, two, version=2), "accept", "version 2 has the same layout as 3 (little-endian only)")
    for a in (8, 64, 4096):
        add("valid_alignment_%d" % a, build(std + [("general.alignment", U32, a)], two, align=a), "accept",
            "non-default general.alignment = %d" % a)
    add("valid_zero_tensors", build(std, []), "accept", "metadata only; nothing after the last KV, not even padding")
    add("valid_zero_kv_zero_tensors", build([], []), "accept", "24-byte header alone (a model loader rejects it later: no architecture)")
    add("valid_empty_arrays", build(ARCH + [("x.empty_str", ARR, (STR, [])), ("x.empty_f32", ARR, (F32, [])),
                                            ("x.empty_bool", ARR, (BOOL, [])), ("x.empty_string", STR, "")], two),
        "accept", "zero-length arrays of three element types and a zero-length string value")
    add("valid_all_value_types", build(ARCH + [
        ("v.u8", U8, 255), ("v.i8", I8, -128), ("v.u16", U16, 65535), ("v.i16", I16, -32768),
        ("v.u32", U32, 4294967295), ("v.i32", I32, -2147483648), ("v.f32", F32, 1.5), ("v.bool", BOOL, 1),
        ("v.str", STR, "h\u00e9llo"), ("v.u64", U64, M64), ("v.i64", I64, -(1 << 63)), ("v.f64", F64, -2.25),
        ("v.arr_u8", ARR, (U8, [0, 1, 255])), ("v.arr_i16", ARR, (I16, [-1, 2])), ("v.arr_f64", ARR, (F64, [0.5])),
        ("v.arr_bool", ARR, (BOOL, [0, 1, 1])), ("v.arr_str", ARR, (STR, ["", "a", "bc"])),
        ("v.arr_u64", ARR, (U64, [1, M64]))], []), "accept", "every metadata value type, as scalar and inside arrays")
    store = [n for n in TT if n not in ("Q8_1", "Q8_K")]
    add("valid_all_tensor_types", build(ARCH + [("general.quantization_version", U32, 2)],
                                        [("t.%s" % n.lower(), [TT[n][1] * 2, 2], n) for n in store]), "accept",
        "one [2 blocks, 2 rows] tensor of every storable tensor type (Q8_1 and Q8_K left out)")
    add("valid_4d_tensor", build(ARCH, [("t", [32, 2, 3, 4], "Q8_0")]), "accept", "four dimensions")
    add("valid_scalar_ndims0", infos([("scalar", [], F, 0)], data_len=4), "accept", "n_dims = 0 means one element")
    add("valid_name_63_bytes", infos([("n" * 63, [8], F, 0)], data_len=32), "accept", "longest tensor name mainline takes")
    add("valid_no_trailing_padding", build(std, [("a", [8], "F32"), ("b", [3], "F32")], trailing_pad=False), "accept",
        "last tensor is 12 bytes and the file ends right after it, without padding to 32")
    add("valid_many_kv", build(ARCH + [("k.%04d" % i, U32, i) for i in range(1500)], []), "accept",
        "1500 keys: duplicate detection must not be quadratic enough to matter")
    add("valid_tokenizer_small", build(ARCH + [
        ("tokenizer.ggml.model", STR, "llama"), ("tokenizer.ggml.tokens", ARR, (STR, ["<unk>", "<s>", "</s>", "a"])),
        ("tokenizer.ggml.scores", ARR, (F32, [0.0, 0.0, 0.0, -1.0])),
        ("tokenizer.ggml.token_type", ARR, (I32, [2, 3, 3, 1])), ("tokenizer.ggml.bos_token_id", U32, 1),
        ("tokenizer.ggml.eos_token_id", U32, 2)], []), "accept", "consistent tokenizer arrays")

    # ------------------------------------------------------- header malformed
    good = build(std, two)
    rej("empty_file", b"", "truncated_header", "zero bytes")
    rej("short_magic", b"GGU", "truncated_header", "three bytes")
    rej("magic_only", b"GGUF", "truncated_header", "four bytes")
    rej("truncated_in_counts", good[:20], "truncated_header", "ends inside the KV count")
    rej("bad_magic", b"GGML" + good[4:], "bad_magic", "legacy GGML magic")
    rej("bad_magic_reversed", b"FUGG" + good[4:], "bad_magic", "byte-swapped magic")
    rej("version_0", build(std, two, version=3).replace(struct.pack("<I", 3), struct.pack("<I", 0), 1), "unsupported_version", "version 0")
    rej("version_1", build(std, two, version=1), "unsupported_version", "genuine version 1 layout with 32-bit counts; mainline refuses it")
    rej("version_4", good[:4] + struct.pack("<I", 4) + good[8:], "unsupported_version", "future version")
    rej("version_huge", good[:4] + struct.pack("<I", 0xFFFFFFFF) + good[8:], "unsupported_version", "version 2^32-1")
    rej("big_endian_v3", build(std, two, e=">"), "wrong_endianness", "well-formed big-endian file; version reads as 0x03000000")
    rej("n_kv_minus1", bytes(header(W(), 0, -1).b), "count_too_large", "KV count = 2^64-1")
    rej("n_kv_2_62", bytes(header(W(), 0, 1 << 62).b), "count_too_large", "KV count * sizeof(entry) overflows 64 bits (class of CVE-2024-23605)")
    rej("n_kv_one_too_many", build(ARCH, []).replace(struct.pack("<Q", 1), struct.pack("<Q", 2), 1), "truncated_kv", "KV count says 2, one is present")
    rej("n_kv_billion", bytes(header(W(), 0, 1000000000).b), "count_too_large", "10^9 KVs in a 24-byte file: must fail before reserving memory")
    rej("n_tensors_minus1", bytes(header(W(), -1, 0).b), "count_too_large", "tensor count = 2^64-1")
    rej("n_tensors_2_58", bytes(header(W(), 1 << 58, 0).b), "count_too_large", "tensor count * per-tensor overhead overflows (class of CVE-2024-21836, issue 15711)")
    rej("n_tensors_one_too_many", infos(one, n_tensors=2, data_len=32, do_pad=False)[:-32], "truncated_tensor_info", "tensor count says 2, one info is present, then end of file")
    rej("n_kv_too_small", build(ARCH + [("a.b", U32, 1)], two).replace(struct.pack("<Q", 2) * 2, struct.pack("<QQ", 2, 1), 1), "bad_tensor_info", "two KVs stored, count says 1: the second KV is read as a tensor info and yields nonsense")

    # ----------------------------------------------------------- KV malformed
    rej("key_len_huge", kvfile(lambda w: w.s(b"abc", declared=M64)), "string_too_long", "key length 2^64-1: length+1 wraps to 0 (class of CVE-2024-23496)")
    rej("key_len_2_40", kvfile(lambda w: w.s(b"abc", declared=1 << 40)), "string_too_long", "key length 2^40 in a tiny file")
    rej("key_len_past_eof_by_1", kvfile(lambda w: w.s(b"abcdef", declared=7)), "truncated_kv", "key length one byte beyond end of file")
    rej("key_empty", kvfile(lambda w: w.kv("", U32, 1)), "empty_key", "zero-length key")
    rej("key_embedded_nul", kvfile(lambda w: w.kv(b"general.alignment\0x", U32, 64)), "invalid_key", "NUL inside key: C-string comparison sees general.alignment")
    rej("key_invalid_utf8", kvfile(lambda w: w.kv(b"gen\xff\xfe", U32, 64)), "invalid_key", "non-ASCII bytes in key; the format demands ASCII keys")
    rej("dup_key", kvfile(lambda w: w.kv("a.b", U32, 1).kv("a.b", U32, 2), 2), "duplicate_key", "same key twice")
    rej("dup_key_alignment", kvfile(lambda w: w.kv("general.alignment", U32, 32).kv("general.alignment", U32, 64), 2), "duplicate_key", "two alignments: readers disagree on which one counts")
    for t in (13, 14, 255, 0x7FFFFFFF, 0xFFFFFFFF):
        rej("value_type_%s" % ("minus1" if t == 0xFFFFFFFF else t), kvfile(lambda w: w.s("a.b").p("I", t).p("Q", 0)), "bad_value_type", "value type id %d" % t)
    rej("kv_truncated_after_key", kvfile(lambda w: w.s("a.b")), "truncated_kv", "no value type")
    rej("kv_truncated_in_value", kvfile(lambda w: w.s("a.b").p("I", U64).raw(b"\1\2\3")), "truncated_kv", "u64 value has 3 bytes")
    rej("str_len_huge", kvfile(lambda w: w.s("a.b").p("I", STR).s(b"x", declared=M64 - 7)), "string_too_long", "string value length near 2^64: position + length wraps")
    rej("str_len_2_31", kvfile(lambda w: w.s("a.b").p("I", STR).s(b"x", declared=1 << 31)), "string_too_long", "string value length 2^31 (above the 2^30 limit, and negative as int32)")
    rej("str_len_past_eof_by_1", kvfile(lambda w: w.s("a.b").p("I", STR).s(b"xyz", declared=4)), "truncated_kv", "string value one byte beyond end of file")
    rej("arr_truncated_header", kvfile(lambda w: w.s("a.b").p("I", ARR).p("I", U32)), "truncated_kv", "array without a count")
    rej("arr_count_minus1", kvfile(lambda w: w.s("a.b").p("I", ARR).p("I", U8).p("Q", M64)), "array_too_long", "array count 2^64-1")
    rej("arr_count_mul_wrap", kvfile(lambda w: w.s("a.b").p("I", ARR).p("I", U64).p("Q", (1 << 61) + 1).p("Q", 5)), "array_too_long", "count*8 wraps to 8 and would fit the file (class of CVE-2024-21825)")
    rej("arr_count_mul_wrap_u32", kvfile(lambda w: w.s("a.b").p("I", ARR).p("I", U32).p("Q", (1 << 62) + 2).p("Q", 5)), "array_too_long", "count*4 wraps to 8")
    rej("arr_str_count_huge", kvfile(lambda w: w.s("a.b").p("I", ARR).p("I", STR).p("Q", 1 << 40).s("x")), "array_too_long", "2^40 strings: each needs at least 8 bytes, so the count cannot fit")
    rej("arr_str_count_mul_wrap", kvfile(lambda w: w.s("a.b").p("I", ARR).p("I", STR).p("Q", (1 << 60) + 1).s("x")), "array_too_long", "count*16 (string header struct) wraps to 16: under-allocation, then out-of-bounds write")
    rej("arr_one_past_eof", kvfile(lambda w: w.s("a.b").p("I", ARR).p("I", U32).p("Q", 3).p("II", 1, 2)), "truncated_kv", "three elements declared, two stored")
    rej("arr_elem_string_len_huge", kvfile(lambda w: w.s("a.b").p("I", ARR).p("I", STR).p("Q", 2).s("ok").s(b"x", declared=1 << 62)), "string_too_long", "second string of an array has length 2^62")
    rej("arr_bad_elem_type", kvfile(lambda w: w.s("a.b").p("I", ARR).p("I", 77).p("Q", 1).p("Q", 0)), "bad_array_type", "element type 77")
    rej("arr_bad_elem_type_empty", kvfile(lambda w: w.s("a.b").p("I", ARR).p("I", 77).p("Q", 0)), "bad_array_type", "element type 77 with zero elements")
    rej("arr_nested", kvfile(lambda w: w.kv("a.b", ARR, (ARR, [(U32, [1, 2]), (U32, [3])]))), "nested_array", "array of arrays: format text allows it, mainline C++ rejects it")

    def deep(w):
        w.s("a.b").p("I", ARR)
        for _ in range(3000):
            w.p("I", ARR).p("Q", 1)
        w.p("I", U8).p("Q", 1).p("B", 7)
    rej("arr_nested_3000_deep", kvfile(deep), "nested_array", "3000 nested one-element arrays: recursive readers overflow their stack")
    add("bool_value_2", kvfile(lambda w: w.kv("a.b", BOOL, 2)), "either: strict readers reject, mainline reads it as true", "bool byte = 2")
    add("string_value_not_utf8", kvfile(lambda w: w.kv("a.b", STR, b"\xff\xfe\x80")), "either: keep as bytes or reject; never assume valid UTF-8", "string value with invalid UTF-8")
    add("string_value_embedded_nul", kvfile(lambda w: w.kv("a.b", STR, b"abc\0def")), "either: length must stay 7 if accepted", "NUL inside a string value")

    # ------------------------------------------------------------- alignment
    def al(t, v):
        return infos(one, kvs=ARCH + [("general.alignment", t, v)], data_len=64)
    rej("align_zero", al(U32, 0), "bad_alignment", "general.alignment = 0 (division by zero in modulo padding)")
    rej("align_3", al(U32, 3), "bad_alignment", "not a power of two")
    rej("align_33", al(U32, 33), "bad_alignment", "not a power of two")
    rej("align_2_31", al(U32, 1 << 31), "bad_alignment", "power of two but data would start at 2 GiB; 32-bit padding arithmetic wraps")
    rej("align_max_u32", al(U32, 0xFFFFFFFF), "bad_alignment", "2^32-1")
    rej("align_type_u64", al(U64, 32), "bad_alignment_type", "alignment stored as u64")
    rej("align_type_i32", al(I32, -32), "bad_alignment_type", "alignment stored as i32, negative")
    rej("align_type_string", al(STR, "32"), "bad_alignment_type", "alignment stored as string")
    rej("align_type_array", al(ARR, (U32, [32])), "bad_alignment_type", "alignment stored as one-element array")
    add("align_1", infos([("t", [8], F, 0)], align=1, kvs=ARCH + [("general.alignment", U32, 1)], data_len=32), "either: mainline accepts, format text wants a multiple of 8", "general.alignment = 1")

    # ----------------------------------------------------------- tensor infos
    rej("name_len_huge", infos([], n_tensors=1, do_pad=False) + struct.pack("<Q", M64) + b"abc", "string_too_long", "tensor name length 2^64-1")
    rej("name_64_bytes", infos([("n" * 64, [8], F, 0)], data_len=32), "tensor_name_too_long", "64-byte name: mainline's limit is 63 plus NUL")
    rej("name_empty", infos([("", [8], F, 0)], data_len=32), "empty_tensor_name", "zero-length tensor name")
    rej("name_embedded_nul", infos([(b"w\0x", [8], F, 0)], data_len=32), "invalid_tensor_name", "NUL inside a tensor name")
    rej("dup_tensor", infos([("w", [8], F, 0), ("w", [8], F, 32)], data_len=64), "duplicate_tensor", "same tensor name twice")
    rej("dup_tensor_via_nul", infos([("w", [8], F, 0), (b"w\0b", [8], F, 32)], data_len=64), "invalid_tensor_name", "names equal only as C strings")
    rej("n_dims_5", infos([("t", [2, 2, 2, 2, 2], F, 0)], data_len=128), "too_many_dims", "five dimensions: writes past a 4-entry array (class of CVE-2024-21802)")
    rej("n_dims_million", infos([("t", [1] * 8, F, 0, 1000000)], data_len=64), "too_many_dims", "n_dims = 10^6")
    rej("n_dims_minus1", infos([("t", [1] * 4, F, 0, 0xFFFFFFFF)], data_len=64), "too_many_dims", "n_dims = 2^32-1 (negative as int32)")
    rej("dim_zero_second", infos([("t", [4, 0], F, 0)], data_len=32), "zero_dimension", "ne[1] = 0: INT64_MAX/ne[1] divides by zero (SIGFPE in older mainline; current mainline accepts as an empty tensor)")
    rej("dim_zero_first", infos([("t", [0], F, 0)], data_len=32), "zero_dimension", "ne[0] = 0")
    rej("dim_negative", infos([("t", [-1], F, 0)], data_len=32), "dimension_too_large", "dimension 2^64-1")
    rej("dim_int64_min", infos([("t", [1 << 63], F, 0)], data_len=32), "dimension_too_large", "dimension 2^63")
    rej("dims_product_wraps_to_4", infos([("t", [4194305, 4194305, 211106198978564], F, 0)], data_len=32), "size_overflow", "true product is huge, product mod 2^64 is 4")
    rej("dims_product_wraps_to_0", infos([("t", [1 << 32, 1 << 32], F, 0)], data_len=32), "size_overflow", "product mod 2^64 is 0: looks like an empty tensor")
    rej("dims_product_wraps_to_0_4d", infos([("t", [1 << 16, 1 << 16, 1 << 16, 1 << 16], F, 0)], data_len=32), "size_overflow", "four factors 2^16, product mod 2^64 is 0")
    rej("dims_product_negative", infos([("t", [1 << 32, 1 << 31], TT["I8"][0], 0)], data_len=32), "size_overflow", "product 2^63 is negative as int64")
    rej("nbytes_overflow_f32", infos([("t", [1 << 62], F, 0)], data_len=32), "size_overflow", "2^62 elements fit int64, times 4 bytes wraps to 0 (class of CVE-2026-33298)")
    rej("nbytes_overflow_f64", infos([("t", [(1 << 61) + 4], TT["F64"][0], 0)], data_len=32), "size_overflow", "byte size mod 2^64 is 32, which fits the file")
    rej("huge_q4k", infos([("t", [256, 1 << 54], TT["Q4_K"][0], 0)], data_len=144), "data_out_of_range", "2^54 blocks of 144 bytes: representable, but far beyond the file")
    rej("pad_overflow", infos([("a", [64], F, 0), ("b", [4, (1 << 30) - 1, (1 << 30) + 1], F, 256)], data_len=256), "size_overflow", "size 2^64-16 fits, rounding it up to 32 wraps to 0 (upstream issue 26978)")
    big = 0x7FFFFFFFFFFFFFC0
    rej("accumulated_size_overflow", infos([("a", [big], TT["I8"][0], 0), ("b", [big], TT["I8"][0], big), ("c", [256], TT["I8"][0], 2 * big)], data_len=32), "size_overflow", "running total of padded sizes wraps (class of CVE-2025-53630 and CVE-2026-27940)")
    rej("tensor_larger_than_file", infos([("t", [1 << 20], F, 0)], data_len=32), "data_out_of_range", "4 MiB tensor in a tiny file (class of CVE-2026-7482)")
    for t, why in ((4, "removed Q4_2"), (5, "removed Q4_3"), (31, "removed Q4_0_4_4"), (33, "removed Q4_0_8_8"), (36, "removed IQ4_NL_4_4, or I2_S of a fork"), (43, "first id past the end"),
                   (97, "id used only by a fork"), (137, "IQ2_K of a fork"), (0x7FFFFFFF, "int32 max")):
        rej("ttype_%d" % t, infos([("t", [256], t, 0)], data_len=1024), "bad_tensor_type", "tensor type %d: %s" % (t, why))
    rej("ttype_minus1", infos([("t", [256], -1, 0)], data_len=1024), "bad_tensor_type", "tensor type -1: negative index into the type table")
    add("ttype_q8_1", infos([("t", [32], TT["Q8_1"][0], 0)], data_len=64), "either: mainline's container parser accepts, no writer stores it", "activation-only type Q8_1 as weight")
    add("ttype_q8_k", infos([("t", [256], TT["Q8_K"][0], 0)], data_len=320), "either: mainline's container parser accepts, no writer stores it", "activation-only type Q8_K as weight")
    rej("row_not_block_multiple_q4_0", infos([("t", [33], TT["Q4_0"][0], 0)], data_len=64), "row_not_multiple_of_block", "33 elements per row, block 32")
    rej("row_not_block_multiple_q4_k", infos([("t", [128, 2], TT["Q4_K"][0], 0)], data_len=160), "row_not_multiple_of_block", "rows of 128 in a 256-element block type although the total is 256")
    rej("row_not_block_multiple_nvfp4", infos([("t", [32, 2], TT["NVFP4"][0], 0)], data_len=64), "row_not_multiple_of_block", "rows of 32 in a 64-element block type")
    rej("ndims0_quantized", infos([("t", [], TT["Q4_0"][0], 0)], data_len=32), "row_not_multiple_of_block", "n_dims = 0 with a block type: one element is not a whole block")
    base = infos(one, data_len=32)
    e0 = len(infos(one, do_pad=False))
    for cut, where in ((e0 - 4, "offset"), (e0 - 10, "type"), (e0 - 16, "dimension"), (e0 - 22, "n_dims"), (e0 - 25, "name")):
        rej("tinfo_truncated_in_%s" % where, base[:cut], "truncated_tensor_info", "file ends inside the tensor %s" % where)

    # -------------------------------------------------------- offsets and data
    rej("offset_misaligned", infos([("a", [8], F, 4)], data_len=64), "bad_offset", "offset 4 is not a multiple of 32")
    rej("offset_misaligned_second", infos([("a", [8], F, 0), ("b", [8], F, 40)], data_len=96), "bad_offset", "second offset 40")
    rej("offset_past_eof", infos([("a", [8], F, 1 << 20)], data_len=32), "data_out_of_range", "offset 1 MiB in a tiny file")
    rej("offset_wraps", infos([("a", [8], F, (1 << 64) - 32)], data_len=32), "data_out_of_range", "data start + offset wraps back into the header")
    rej("offset_plus_size_wraps", infos([("a", [1 << 20], F, (1 << 64) - (1 << 22))], data_len=32), "data_out_of_range", "offset + size = 2^64")
    rej("offset_end_past_eof_by_1", infos([("a", [8], F, 0)], data_len=31), "data_out_of_range", "last byte of the tensor is missing")
    rej("data_missing", infos([("a", [8], F, 0)], data_len=0), "data_out_of_range", "file ends where data should start")
    rej("data_start_past_eof", infos([("a", [8], F, 0)], do_pad=False), "data_out_of_range", "file ends before the padding to the data section")
    rej("overlap_identical", infos([("a", [8], F, 0), ("b", [8], F, 0)], data_len=64), "overlap", "two tensors share one offset")
    rej("overlap_partial", infos([("a", [16], F, 0), ("b", [16], F, 32)], data_len=128), "overlap", "second tensor starts inside the first")
    rej("overlap_containing", infos([("a", [8], F, 32), ("b", [64], F, 0)], data_len=256), "overlap", "later tensor contains the earlier one")
    add("offset_gap", infos([("a", [8], F, 0), ("b", [8], F, 96)], data_len=128), "either: mainline demands gapless offsets and rejects; the format text allows a gap", "64 unused bytes between two tensors")
    add("offset_out_of_order", infos([("a", [8], F, 32), ("b", [8], F, 0)], data_len=64), "either: mainline demands ascending offsets and rejects; the format text allows any order", "tensors stored in reverse order")
    add("trailing_garbage", build(std, two, tail=b"\xAA" * 100), "either: mainline accepts and ignores it", "100 bytes after the last tensor")
    clean = build(std, two)
    h0 = len(clean) - 160                       # two tensors of 128 + 32 bytes follow
    h1 = len(header(W(), 0, 0).b)
    while clean[h0 - 1] == 0 and h0 > h1:
        h0 -= 1                                 # h0 = end of the last non-zero header byte
    npad = len(clean) - 160 - h0 - 7            # offset 32 of the second info ends with 7 zero bytes
    add("padding_not_zero", clean[:h0 + 7] + b"\x55" * npad + clean[h0 + 7 + npad:], "either: mainline does not look at padding bytes", "padding before the data holds non-zero bytes")
    nanq = struct.pack("<H", 0x7E00) + bytes(16)
    add("data_nan_scale_q4_0", build(ARCH, [("w", [32], "Q4_0")], data=[nanq]), "either: container accepts; an optional weight check rejects", "fp16 scale is NaN", "model")
    infq = struct.pack("<H", 0x7C00) + bytes(32)
    add("data_inf_scale_q8_0", build(ARCH, [("w", [32], "Q8_0")], data=[infq]), "either: container accepts; an optional weight check rejects", "fp16 scale is infinite", "model")
    add("data_mxfp4_e_255", build(ARCH, [("w", [32], "MXFP4")], data=[b"\xff" + bytes(16)]), "either: container accepts; an optional weight check rejects", "E8M0 exponent 255 is NaN", "model")

    # --------------------------------------------------------- model semantics
    def meta(name, kvs, reason, note):
        rej(name, build(kvs, []), reason, note, "model")
    meta("arch_missing", [("general.name", STR, "x")], "missing_architecture", "no general.architecture")
    meta("arch_wrong_type", [("general.architecture", U32, 7)], "bad_metadata_type", "general.architecture is a u32")
    meta("arch_unknown", [("general.architecture", STR, "nosucharch")], "unknown_architecture", "unknown architecture name")
    hp = ARCH + [("llama.context_length", U32, 64), ("llama.embedding_length", U32, 32), ("llama.feed_forward_length", U32, 64)]
    meta("head_count_zero", hp + [("llama.block_count", U32, 1), ("llama.attention.head_count", U32, 0)], "bad_hyperparameter", "head_count 0: embedding_length / head_count divides by zero")
    meta("block_count_zero", hp + [("llama.block_count", U32, 0), ("llama.attention.head_count", U32, 4)], "bad_hyperparameter", "block_count 0")
    meta("block_count_4e9", hp + [("llama.block_count", U32, 4000000000), ("llama.attention.head_count", U32, 4)], "bad_hyperparameter", "block_count 4*10^9: per-layer arrays must be bounded (mainline limit 512)")
    meta("head_count_kv_array_short", hp + [("llama.block_count", U32, 4), ("llama.attention.head_count", U32, 4), ("llama.attention.head_count_kv", ARR, (U32, [2, 2]))], "bad_array_length", "per-layer array has 2 entries for 4 layers")
    tok = ("tokenizer.ggml.tokens", ARR, (STR, ["a", "b", "c", "d"]))
    tm = ("tokenizer.ggml.model", STR, "llama")
    meta("tok_scores_u8", ARCH + [tm, tok, ("tokenizer.ggml.scores", ARR, (U8, [0, 0, 0, 0]))], "bad_array_type", "scores stored as u8: reading them as f32 runs past the buffer (upstream issue 24888)")
    meta("tok_type_short", ARCH + [tm, tok, ("tokenizer.ggml.token_type", ARR, (I32, [1, 1]))], "bad_array_length", "token_type has 2 entries for 4 tokens")
    meta("tok_scores_short", ARCH + [tm, tok, ("tokenizer.ggml.scores", ARR, (F32, [0.0]))], "bad_array_length", "scores has 1 entry for 4 tokens")
    meta("tok_tokens_not_strings", ARCH + [tm, ("tokenizer.ggml.tokens", ARR, (U32, [1, 2]))], "bad_array_type", "tokens is an array of u32")
    meta("tok_tokens_scalar", ARCH + [tm, ("tokenizer.ggml.tokens", STR, "a b c")], "bad_metadata_type", "tokens is a single string")
    meta("tok_bos_out_of_range", ARCH + [tm, tok, ("tokenizer.ggml.bos_token_id", U32, 4)], "bad_token_id", "bos id equals the vocabulary size")
    meta("tok_eos_minus1", ARCH + [tm, tok, ("tokenizer.ggml.eos_token_id", U32, 0xFFFFFFFF)], "bad_token_id", "eos id 2^32-1")
    meta("tok_merge_without_space", ARCH + [("tokenizer.ggml.model", STR, "gpt2"), tok, ("tokenizer.ggml.merges", ARR, (STR, ["ab"]))], "bad_merge", "BPE merge rule without a separating space")
    meta("tok_charsmap_short", ARCH + [("tokenizer.ggml.model", STR, "t5"), tok, ("tokenizer.ggml.precompiled_charsmap", ARR, (U8, [255, 255]))], "bad_charsmap", "UGM charsmap shorter than its own 4-byte length prefix")
    sp = [("split.no", U16, 0), ("split.count", U16, 2), ("split.tensors.count", I32, 2)]
    meta("split_no_ge_count", ARCH + [("split.no", U16, 5), ("split.count", U16, 2), ("split.tensors.count", I32, 2)], "bad_split", "split.no 5 of 2")
    meta("split_count_wrong_type", ARCH + [("split.no", U16, 0), ("split.count", U64, 1 << 40), ("split.tensors.count", I32, 2)], "bad_metadata_type", "split.count as u64 2^40 (mainline demands u16)")
    meta("split_tensors_negative", ARCH + [("split.no", U16, 0), ("split.count", U16, 1), ("split.tensors.count", I32, -1)], "bad_split", "negative total tensor count")
    meta("split_not_first", ARCH + [("split.no", U16, 1), ("split.count", U16, 2), ("split.tensors.count", I32, 2)], "bad_split", "entry file is not shard 0")
    rej("split_siblings_missing-00001-of-00002", build(ARCH + sp, [("a", [8], "F32")]), "missing_shard", "shard 2 of 2 does not exist next to it", "model")
    a1 = build(ARCH + sp, [("a", [8], "F32")])
    a2 = build([("split.no", U16, 1), ("split.count", U16, 2), ("split.tensors.count", I32, 2)], [("b", [8], "F32")])
    add("valid_split-00001-of-00002", a1, "accept", "first of two shards; open this one")
    add("valid_split-00002-of-00002", a2, "accept", "second shard; opening it alone must be refused by a model loader, the container parser accepts it")
    d2 = build([("split.no", U16, 1), ("split.count", U16, 2), ("split.tensors.count", I32, 2)], [("a", [8], "F32")])
    rej("split_dup_tensor-00001-of-00002", a1, "duplicate_tensor", "shard 2 repeats tensor a of shard 1", "model")
    rej("split_dup_tensor-00002-of-00002", d2, "bad_split", "second shard of split_dup_tensor; alone it is not the first shard", "model")
    w2 = build([("split.no", U16, 1), ("split.count", U16, 2), ("split.tensors.count", I32, 2)], [("b", [8], "F32"), ("c", [8], "F32")])
    rej("split_total_mismatch-00001-of-00002", a1, "bad_split", "split.tensors.count says 2, both shards together hold 3", "model")
    rej("split_total_mismatch-00002-of-00002", w2, "bad_split", "second shard of split_total_mismatch", "model")


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: make.py OUT_DIR")
    out = sys.argv[1]
    os.makedirs(out, exist_ok=True)
    make()
    names = [c[0] for c in CASES]
    assert len(names) == len(set(names)), "duplicate case name"
    rows = []
    for name, blob, expect, note, layer in CASES:
        with open(os.path.join(out, name), "wb") as f:
            f.write(blob)
        rows.append({"file": name, "layer": layer, "expect": expect, "note": note,
                     "bytes": len(blob), "sha256": hashlib.sha256(blob).hexdigest()})
    doc = {
        "about": "GGUF parser test files. layer=container: decided by the format parser alone. layer=model: "
                 "the container is well-formed and the container parser accepts it; the model loader must give the stated result. "
                 "accept speaks of the container parser (these files hold no complete model). The reason after 'reject:' is advisory: "
                 "a reader may meet another defect of the same file first; rejecting cleanly is what counts.",
        "reasons": sorted({r["expect"][8:] for r in rows if r["expect"].startswith("reject: ")}),
        "files": rows,
    }
    with open(os.path.join(out, "manifest.json"), "w") as f:
        json.dump(doc, f, indent=1)
        f.write("\n")
    kinds = {}
    for r in rows:
        k = r["expect"].split(":")[0]
        kinds[k] = kinds.get(k, 0) + 1
    print(len(rows), "files", kinds, "bytes", sum(r["bytes"] for r in rows))


if __name__ == "__main__":
    main()
