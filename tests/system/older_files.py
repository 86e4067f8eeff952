#!/usr/bin/env python3
"""Models with multi-head latent attention as other converters store them (architectures.md 2.7, 3.4, 4.5).

Rewrites a model of the current form into others and holds their logits to its own, bit for bit: the older
attn_kv_b, both forms in one file, heads folded into rows, and a quantized attn_kv_b, whose keys are held in
f32; files without the keys that say the gating function, the rank of the query or which layers choose index
positions; and copies of the indexer on layers that share. Files whose two forms of attn_kv_b are not the same
matrix must be refused.
"""

import argparse
import copy
import pathlib
import struct
import subprocess
import sys
import tempfile

import gguf_file
from gguf_file import BF16, F32, Q8_0

BAD_MODEL = 65


def layers_of(model):
    return sorted(int(name.split('.')[1]) for name in model.tensors if name.endswith('.attn_kv_a_mqa.weight'))


class Sizes:
    def __init__(self, model):
        arch = model.values['general.architecture'][1][8:].decode()
        key = lambda suffix: '%s.attention.%s' % (arch, suffix)
        self.key = key
        self.heads = model.get_int(key('head_count'))
        self.latent = model.get_int(key('kv_lora_rank'))
        self.v = model.get_int(key('value_length_mla'))
        self.head = model.get_int(key('key_length_mla'))
        self.nope = self.head - model.get_int('%s.rope.dimension_count' % arch)


def set_legacy_keys(model, s):
    model.set_int(s.key('head_count_kv'), s.heads)
    model.set_int(s.key('key_length'), s.head)
    model.set_int(s.key('value_length'), s.v)
    for suffix in ('key_length_mla', 'value_length_mla'):
        del model.values[s.key(suffix)]


def merged(model, s, layer):
    """attn_kv_b: per head N key rows, transposed back, then V value rows. Of 2-byte elements."""
    _, _, k_b = model.tensors['blk.%d.attn_k_b.weight' % layer]
    _, _, v_b = model.tensors['blk.%d.attn_v_b.weight' % layer]
    keys = struct.unpack('<%dH' % (len(k_b) // 2), k_b)
    out = []
    for h in range(s.heads):
        for n in range(s.nope):
            row = [keys[(h * s.latent + l) * s.nope + n] for l in range(s.latent)]
            out.append(struct.pack('<%dH' % s.latent, *row))
        size = s.v * s.latent * 2
        out.append(v_b[h * size:(h + 1) * size])
    return (s.latent, s.heads * (s.nope + s.v)), BF16, b''.join(out)


def floats_of(raw):
    """bf16 to f32."""
    return [struct.unpack('<f', b'\0\0' + raw[i:i + 2])[0] for i in range(0, len(raw), 2)]


def quantized(raw):
    """bf16 to the blocks of q8_0."""
    values, out = floats_of(raw), []
    for begin in range(0, len(values), 32):
        block = values[begin:begin + 32]
        scale = struct.unpack('<e', struct.pack('<e', max(map(abs, block)) / 127))[0]
        out.append(struct.pack('<e32b', scale, *[max(-127, min(127, round(x / scale))) if scale else 0
                                                 for x in block]))
    return b''.join(out)


def widened(raw):
    """q8_0 to f32 values, each the product of scale and integer."""
    out = []
    for begin in range(0, len(raw), 34):
        scale, *items = struct.unpack_from('<e32b', raw, begin)
        out += [scale * item for item in items]
    return out


def legacy(model, s):
    set_legacy_keys(model, s)
    for l in layers_of(model):
        model.tensors['blk.%d.attn_kv_b.weight' % l] = merged(model, s, l)
        del model.tensors['blk.%d.attn_k_b.weight' % l], model.tensors['blk.%d.attn_v_b.weight' % l]


def folded(model, s):
    set_legacy_keys(model, s)
    for l in layers_of(model):
        for name in ('attn_k_b', 'attn_v_b'):
            (ne0, ne1, heads), kind, raw = model.tensors['blk.%d.%s.weight' % (l, name)]
            model.tensors['blk.%d.%s.weight' % (l, name)] = (ne0, ne1 * heads), kind, raw


def both(model, s):
    for l in layers_of(model):
        model.tensors['blk.%d.attn_kv_b.weight' % l] = merged(model, s, l)
    folded(model, s)


def legacy_q8_0(model, s):
    legacy(model, s)
    for l in layers_of(model):
        ne, _, raw = model.tensors['blk.%d.attn_kv_b.weight' % l]
        model.tensors['blk.%d.attn_kv_b.weight' % l] = ne, Q8_0, quantized(raw)


def current_q8_0(model, s):
    """What legacy_q8_0 must become: the same values, keys in f32 and values in q8_0."""
    for l in layers_of(model):
        _, _, raw = merged(model, s, l)
        raw = quantized(raw)
        values, row, keys, rest = widened(raw), s.latent // 32 * 34, [], []
        for h in range(s.heads):
            first = h * (s.nope + s.v)
            keys += [values[(first + n) * s.latent + i] for i in range(s.latent) for n in range(s.nope)]
            rest.append(raw[(first + s.nope) * row:(first + s.nope + s.v) * row])
        model.tensors['blk.%d.attn_k_b.weight' % l] = ((s.nope, s.latent, s.heads), F32,
                                                       struct.pack('<%df' % len(keys), *keys))
        model.tensors['blk.%d.attn_v_b.weight' % l] = (s.latent, s.v, s.heads), Q8_0, b''.join(rest)


def both_q8_0(model, s):
    """A quantized attn_kv_b beside halves of full precision: alike, and not used."""
    both(model, s)
    for l in layers_of(model):
        ne, _, raw = model.tensors['blk.%d.attn_kv_b.weight' % l]
        model.tensors['blk.%d.attn_kv_b.weight' % l] = ne, Q8_0, quantized(raw)


def with_swapped_heads(model, s):
    both(model, s)
    ne, kind, raw = model.tensors['blk.1.attn_v_b.weight']
    size = len(raw) // s.heads
    model.tensors['blk.1.attn_v_b.weight'] = ne, kind, raw[size:2 * size] + raw[:size] + raw[2 * size:]


def with_keys_not_transposed(model, s):
    both(model, s)
    _, _, kv_b = model.tensors['blk.2.attn_kv_b.weight']
    ne, kind, _ = model.tensors['blk.2.attn_k_b.weight']
    head, keys = (s.nope + s.v) * s.latent * 2, s.nope * s.latent * 2
    raw = b''.join(kv_b[h * head:h * head + keys] for h in range(s.heads))
    model.tensors['blk.2.attn_k_b.weight'] = ne, kind, raw


def with_nan(model, s):
    both(model, s)
    ne, kind, raw = model.tensors['blk.0.attn_kv_b.weight']
    model.tensors['blk.0.attn_kv_b.weight'] = ne, kind, raw[:-2] + b'\xc0\x7f'


def arch_key(model, suffix):
    return '%s.%s' % (model.values['general.architecture'][1][8:].decode(), suffix)


def without_index_types(model, _):
    """GLM-5.2 from before the key: the layers that have an indexer choose."""
    del model.values[arch_key(model, 'attention.indexer.types')]


def with_index_copies(model, _):
    """Layers that share have a copy of the first layer's indexer, which is not part of the model."""
    for name, tensor in list(model.tensors.items()):
        if name.startswith('blk.0.indexer.'):
            for l in layers_of(model):
                model.tensors.setdefault(name.replace('blk.0.', 'blk.%d.' % l), tensor)


def without_gating(model, _):
    """The selection bias, or that there is none, tells the function."""
    del model.values[arch_key(model, 'expert_gating_func')]


def without_query_rank(model, _):
    """The tensor tells the rank."""
    model.values.pop(arch_key(model, 'attention.q_lora_rank'), None)


FORMS = [(legacy, None), (folded, None), (both, None), (both_q8_0, None), (legacy_q8_0, current_q8_0),
         (without_query_rank, None)]
GATING, SHARED_INDEX = [(without_gating, None)], [(without_index_types, None), (with_index_copies, None)]
EQUAL = {'deepseek2-lite': FORMS + GATING, 'deepseek3-groups-yarn': FORMS + GATING, 'deepseek32': FORMS,
         'glm-dsa-shared': FORMS + GATING + SHARED_INDEX}
REFUSED = [(with_swapped_heads, ['blk.1.attn_v_b.weight', 'values of head']),
           (with_keys_not_transposed, ['blk.2.attn_k_b.weight', 'keys of head']),
           (with_nan, ['blk.0.attn_kv_b.weight'])]


class Checker:
    def __init__(self, assayctl, backends, folder):
        self.command = [assayctl, 'logits', '--backends', backends]
        self.folder = pathlib.Path(folder)
        self.failures = 0

    def run(self, model, tokens):
        """Exit code, logits and what was said of a model."""
        path, out = self.folder / 'model.gguf', self.folder / 'logits.f32'
        model.write(path)
        done = subprocess.run(self.command + ['-m', path, '--tokens', tokens, '--out', out], capture_output=True,
                              text=True, check=False)
        return done.returncode, out.read_bytes() if done.returncode == 0 else b'', done.stderr

    def logits(self, model, tokens):
        code, logits, words = self.run(model, tokens)
        if code != 0:
            sys.exit('assayctl: exit code %d: %s' % (code, words))
        return logits

    def expect(self, what, passed, otherwise):
        print('%-6s %s%s' % ('ok' if passed else 'FAILED', what, '' if passed else ': ' + otherwise), flush=True)
        self.failures += not passed

    def check(self, case, source, tokens):
        sizes = Sizes(source)
        standard = self.logits(source, tokens)
        for change, equivalent in EQUAL[case]:
            want = standard
            if equivalent:
                model = copy.deepcopy(source)
                equivalent(model, sizes)
                want = self.logits(model, tokens)
                self.expect('%s %s differs from bf16' % (case, equivalent.__name__), want != standard, 'it does not')
            model = copy.deepcopy(source)
            change(model, sizes)
            got = self.logits(model, tokens)
            self.expect('%s %s: the same bits' % (case, change.__name__), got == want, 'other logits')
        for change, expected in REFUSED:
            model = copy.deepcopy(source)
            change(model, sizes)
            code, _, words = self.run(model, tokens)
            self.expect('%s %s is refused' % (case, change.__name__),
                        code == BAD_MODEL and all(word in words for word in expected),
                        'exit code %d: %s' % (code, words))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n\n')[0])
    parser.add_argument('--assayctl', required=True)
    parser.add_argument('--goldens', required=True, help='folder of the target `goldens`')
    parser.add_argument('--backends', required=True, choices=['reference', 'cpu', 'cuda'])
    parser.add_argument('cases', nargs='+')
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix='assay-test-') as folder:
        checker = Checker(arguments.assayctl, arguments.backends, folder)
        for case in arguments.cases:
            golden = pathlib.Path(arguments.goldens) / case
            checker.check(case, gguf_file.GgufFile(golden / 'model-bf16.gguf'), golden / 'tokens.i32')
    return 1 if checker.failures else 0


if __name__ == '__main__':
    sys.exit(main())
