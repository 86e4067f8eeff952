#!/usr/bin/env python3
"""Writes pairs of model files that say the same in different ways, and holds their logits to each other.

Where both files come to the same arithmetic the logits must have equal bits. The files are made of golden
models, whose own logits numbers.py checks."""

import argparse
import array
import math
import pathlib
import struct
import subprocess
import sys
import tempfile

from gguf_file import ARRAY, BF16, BOOL, F32, FLOAT32, MXFP4, STRING, UINT32, GgufFile


# ---- tensors of several parameters ----------------------------------------------------------------

def layers(file):
    return ['blk.%d.' % i for i in range(file.get_int(file.key('block_count')))]


def fuse(file, name, parts):
    """Row after row of each part, inside each expert; vectors element by element."""
    for layer in layers(file):
        tensors = [file.tensors.pop(layer + part) for part in parts if layer + part in file.tensors]
        if not tensors:
            continue
        assert len(tensors) == len(parts)
        ne, kind, _ = tensors[0]
        axis = 0 if name.endswith('.bias') else 1  # the one that is cut
        times = math.prod(ne[axis + 1:])           # experts
        data = b''
        for i in range(times):
            for _, _, raw in tensors:
                size = len(raw) // times
                data += raw[i * size:(i + 1) * size]
        length = sum(part[0][axis] for part in tensors)
        file.tensors[layer + name] = (*ne[:axis], length, *ne[axis + 1:]), kind, data


def fuse_qkv(file):
    for suffix in ('.weight', '.bias'):
        fuse(file, 'attn_qkv' + suffix, [part + suffix for part in ('attn_q', 'attn_k', 'attn_v')])


def fuse_experts(file):
    for suffix in ('.weight', '.bias'):
        fuse(file, 'ffn_gate_up_exps' + suffix, [part + suffix for part in ('ffn_gate_exps', 'ffn_up_exps')])


def split_gate_up(file):
    for layer in layers(file):
        (columns, rows), kind, raw = file.tensors.pop(layer + 'ffn_up.weight')
        file.tensors[layer + 'ffn_gate.weight'] = (columns, rows // 2), kind, raw[:len(raw) // 2]
        file.tensors[layer + 'ffn_up.weight'] = (columns, rows // 2), kind, raw[len(raw) // 2:]


# ---- RoPE -------------------------------------------------------------------------------------------

def add_factors(file, name, value):
    pairs = file.get_int(file.key('rope.dimension_count')) // 2
    file.tensors[name + '.weight'] = (pairs,), F32, struct.pack('<%df' % pairs, *[value] * pairs)


def stretch(file, kind, factor=None):
    file.set('rope.scaling.type', STRING, kind)
    if factor:
        file.set('rope.scaling.factor', FLOAT32, factor)


def longrope(file, original_context):
    """Factors of 4 for long contexts and of 1 for short ones; no gain."""
    stretch(file, 'longrope')
    file.set('rope.scaling.original_context_length', UINT32, original_context)
    file.set('rope.scaling.attn_factor', FLOAT32, 1.0)
    add_factors(file, 'rope_factors_long', 4.0)
    add_factors(file, 'rope_factors_short', 1.0)


# ---- sliding windows --------------------------------------------------------------------------------

def gemma(pattern, window, base, base_of_sliding, factor=None):
    """gemma3 with some layers that slide. A window of 1024 hides nothing from 64 tokens."""
    def change(file):
        file.set('attention.sliding_window', UINT32, window)
        file.set('attention.sliding_window_pattern', ARRAY, (BOOL, pattern))
        file.set('rope.freq_base', FLOAT32, base)
        file.set('rope.freq_base_swa', FLOAT32, base_of_sliding)
        if factor:
            stretch(file, 'linear', factor)
    return change


def without_window(file):
    """No layer slides, so that freq_base holds everywhere."""
    file.values.pop('gemma3.attention.sliding_window')
    file.set('rope.freq_base', FLOAT32, 2e4)


def pattern(kind, value):
    return lambda file: file.set('attention.sliding_window_pattern', kind, value)


# ---- MXFP4 ------------------------------------------------------------------------------------------

LEVELS = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)  # twice the E2M1 values


def widen(data):
    return [struct.unpack('<f', b'\0\0' + data[i:i + 2])[0] for i in range(0, len(data), 2)]


def narrow(values):
    return b''.join(struct.pack('<f', v)[2:] for v in values)  # exact here: 3 bits of mantissa


def mxfp4_block(values):
    """The block of 32 values, and the values that it stands for."""
    largest = max(abs(v) for v in values)
    exponent = int(math.floor(math.log2(largest))) - 2 + 127 if largest > 0 else 0
    scale = 2.0 ** (exponent - 128)
    codes = [min(range(16), key=lambda c: abs(LEVELS[c] * scale - v)) for v in values]
    nibbles = bytes(codes[i] | codes[i + 16] << 4 for i in range(16))
    return bytes([exponent]) + nibbles, [LEVELS[c] * scale for c in codes]


def experts_of_16_levels(kind):
    """The experts rounded to what MXFP4 can hold, stored as `kind`."""
    def change(file):
        for name, (ne, _, raw) in file.tensors.items():
            if '_exps.weight' not in name:
                continue
            values = widen(raw)
            blocks = [mxfp4_block(values[i:i + 32]) for i in range(0, len(values), 32)]
            data = b''.join(block if kind == MXFP4 else narrow(rounded) for block, rounded in blocks)
            file.tensors[name] = ne, kind, data
    return change


# Name: the golden model, what is done to each of the two files, and the bound with each set of backends.
# 0: equal bits.
SAME = {'reference': 0, 'cpu': 0}


def nothing(file):
    del file


CASES = {
    'fused_qkv': ('llama-gqa', nothing, fuse_qkv, SAME),
    'fused_qkv_with_bias': ('qwen2-bias', nothing, fuse_qkv, SAME),
    'fused_experts': ('qwen3moe', nothing, fuse_experts, SAME),
    'fused_experts_behind_a_dense_layer': ('glm4moe', nothing, fuse_experts, SAME),
    'fused_everything_with_bias': ('gpt-oss', nothing, lambda f: (fuse_qkv(f), fuse_experts(f)), SAME),
    'split_gate_and_up': ('glm4', nothing, split_gate_up, SAME),
    'rope_freqs_and_linear': ('llama-gqa', lambda f: stretch(f, 'linear', 4.0),
                              lambda f: add_factors(f, 'rope_freqs', 4.0), SAME),
    'longrope_beyond_its_context': ('llama-gqa', lambda f: stretch(f, 'linear', 4.0), lambda f: longrope(f, 32), SAME),
    'longrope_within_its_context': ('llama-gqa', nothing, lambda f: longrope(f, 1024), SAME),
    'window_pattern_as_a_list': ('gpt-oss', nothing, pattern(ARRAY, (BOOL, [True, False])), SAME),
    'window_pattern_of_integers': ('gpt-oss', pattern(UINT32, 3), pattern(ARRAY, (UINT32, [1, 1])), SAME),
    # A layer takes base, scaling and window by whether it slides.
    'base_of_layers_that_do_not_slide': ('gemma3', gemma([True] * 3, 1024, 7.0, 2e4),
                                         gemma([False] * 3, 16, 2e4, 7.0), SAME),
    'base_of_each_layer': ('gemma3', gemma([True] * 3, 1024, 7.0, 2e4), gemma([True, False, True], 1024, 2e4, 2e4), SAME),
    'scaling_spares_layers_that_slide': ('gemma3', gemma([True] * 3, 16, 7.0, 2e4),
                                         gemma([True] * 3, 16, 7.0, 2e4, factor=8.0), SAME),
    'no_window_at_all': ('gemma3', without_window, gemma([False] * 3, 16, 2e4, 7.0), SAME),
    # The kernel of cpu rounds activations to 15 bits for MXFP4 and not for bf16.
    'mxfp4_experts': ('gpt-oss', experts_of_16_levels(BF16), experts_of_16_levels(MXFP4),
                      {'reference': 0, 'cpu': 2e-3}),
}
# Pairs that must differ, so that equal bits above mean something: more than this.
DIFFERENT = 1e-3
UNLIKE = {
    'linear_scaling': ('llama-gqa', nothing, lambda f: stretch(f, 'linear', 4.0)),
    'window_of_16': ('gemma3', gemma([True] * 3, 1024, 7.0, 2e4), gemma([True] * 3, 16, 7.0, 2e4)),
    'scaling_of_layers_that_do_not_slide': ('gemma3', gemma([False] * 3, 16, 2e4, 7.0),
                                            gemma([False] * 3, 16, 2e4, 7.0, factor=8.0)),
    'window_pattern': ('gpt-oss', nothing, pattern(ARRAY, (BOOL, [False, True]))),
    'experts_of_16_levels': ('gpt-oss', nothing, experts_of_16_levels(BF16)),
}


def relative_error(got, want):
    difference = math.fsum((a - b) * (a - b) for a, b in zip(got, want))
    return math.sqrt(difference / math.fsum(b * b for b in want))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n\n')[0])
    parser.add_argument('--assayctl', required=True)
    parser.add_argument('--goldens', required=True, help='folder of the target `goldens`')
    parser.add_argument('--backends', required=True, choices=['reference', 'cpu'])
    parser.add_argument('cases', nargs='*', help='default: all')
    arguments = parser.parse_args()
    goldens = pathlib.Path(arguments.goldens)
    failures = 0

    def logits(folder, model, change):
        file = GgufFile(goldens / model / 'model-bf16.gguf')
        change(file)
        file.write(folder / 'model.gguf')
        subprocess.run([arguments.assayctl, 'logits', '-m', folder / 'model.gguf', '--tokens',
                        goldens / model / 'tokens.i32', '--out', folder / 'logits.f32', '--backends',
                        arguments.backends], check=True, stdout=subprocess.DEVNULL)
        values = array.array('f')
        values.frombytes((folder / 'logits.f32').read_bytes())
        return values

    with tempfile.TemporaryDirectory(prefix='assay-test-') as folder:
        folder = pathlib.Path(folder)
        for name in arguments.cases or [*CASES, *UNLIKE]:
            model, one, other, *bounds = (CASES.get(name) or UNLIKE[name])
            error = relative_error(logits(folder, model, other), logits(folder, model, one))
            bound = bounds[0][arguments.backends] if bounds else DIFFERENT
            passed = error <= bound if bounds else error > bound  # false for NaN
            print('%-6s %-12s %-40s %.3g (%s %g)' % ('ok' if passed else 'FAILED', model, name, error,
                                                   'at most' if bounds else 'more than', bound), flush=True)
            failures += not passed
    return 1 if failures else 0


if __name__ == '__main__':
    sys.exit(main())
