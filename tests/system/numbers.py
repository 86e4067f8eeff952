#!/usr/bin/env python3
"""Holds the logits of `assayctl logits` to reference values made with other software.

Each case names a model, its tokens, its expected logits and a bound; it runs once per chunking, and the
chunkings must agree with each other too. Bounds are relative: |a - b| / |b| over all rows, Euclidean.

With --quantized the cases are quantized files of a data folder, `all` of those that it has. Expected are the
exact logits of their dequantized weights, and the bound of vector code is what llama.cpp's error is, as
quantized/manifest.json says. tests/golden/README.md describes the folder.
"""

import argparse
import array
import json
import math
import pathlib
import subprocess
import sys
import tempfile

# What the backends may differ by. The definitions accumulate in double and keep 32-bit floats between ops, so
# they agree with another 32-bit implementation to a few roundings; a bf16 file loses nothing in them.
REFERENCE = 2e-5
# Vector code on bf16 files: 32-bit sums in another order.
DENSE = 1e-2
# ... where a choice of experts or of index positions may flip at a near-tie.
SPARSE = 5e-2
SPARSE_CASES = ('dsa', 'moe', 'mixtral', 'gpt-oss', 'deepseek')
# Quantized files with activations of 14 bits or more (ASSAY_MM_FINE), which no choice of this model flips under.
QUANTIZED = 2e-3
# One shot, chunk by chunk and token by token. On a GPU few rows and many take different kernels.
CHUNKING = 1e-5
# A GPU on bf16 files: products of many rows have x in two bf16 planes, weights as they are.
CUDA_DENSE = 2e-3
# A quantized file by the definitions: its weights are exact, the sums of long rows are not.
DEQUANTIZED = 1e-4
# Vector code on a quantized file, as a multiple of llama.cpp's error; more where choices flip.
AS_LLAMA_CPP, AS_LLAMA_CPP_SPARSE = 1.1, 1.25

VOCAB = 512  # of every model but the demo


def read_floats(path):
    values = array.array('f')
    values.frombytes(pathlib.Path(path).read_bytes())
    return values


def relative_error(got, want):
    difference = math.fsum((a - b) * (a - b) for a, b in zip(got, want))
    return math.sqrt(difference / math.fsum(b * b for b in want))


def argmax(values, begin, end):
    return max(range(begin, end), key=values.__getitem__)


class Checker:
    def __init__(self, assayctl):
        self.assayctl = assayctl
        self.failures = 0

    def write_logits(self, model, tokens, backends, chunk, out):
        command = [self.assayctl, 'logits', '-m', model, '--tokens', tokens, '--out', str(out),
                   '--backends', backends, '--chunk', str(chunk)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def logits(self, model, tokens, backends, chunk, folder):
        out = pathlib.Path(folder) / 'logits.f32'
        self.write_logits(model, tokens, backends, chunk, out)
        return read_floats(out)

    def expect(self, what, value, bound):
        passed = value <= bound  # false for NaN
        print('%-6s %-58s %.3g (bound %g)' % ('ok' if passed else 'FAILED', what, value, bound), flush=True)
        self.failures += not passed

    def check(self, name, model, tokens, expected, vocab, backends, bound, chunks, top1):
        want = read_floats(expected)
        first = None
        with tempfile.TemporaryDirectory(prefix='assay-test-') as folder:
            for chunk in chunks:
                got = self.logits(model, tokens, backends, chunk, folder)
                label = '%s %s chunk %s' % (name, backends, chunk or 'all')
                if first is None:
                    first = got
                    tail = got[len(got) - len(want):]
                    self.expect(label, relative_error(tail, want), bound)
                    if top1:
                        rows = len(want) // vocab
                        wrong = sum(argmax(tail, r * vocab, (r + 1) * vocab) !=
                                    argmax(want, r * vocab, (r + 1) * vocab) for r in range(rows))
                        self.expect(label + ', first choices that differ', wrong, 0)
                else:
                    self.expect(label + ' against all at once', relative_error(got, first),
                                2 * bound if backends == 'cuda' else CHUNKING)


    def check_split(self, whole, parts, tokens, backends):
        """Any part of a split file may be named, and gives the bits of the whole."""
        with tempfile.TemporaryDirectory(prefix='assay-test-') as folder:
            out = pathlib.Path(folder) / 'logits.f32'
            self.write_logits(whole, tokens, backends, 0, out)
            want = out.read_bytes()
            for part in parts:
                self.write_logits(part, tokens, backends, 0, out)
                self.expect('%s %s, bits other than of the whole' % (part.name, backends),
                            int(out.read_bytes() != want), 0)


def check_goldens(checker, goldens, backends, cases, bound):
    is_reference = backends == 'reference'
    for case in cases:
        folder = goldens / case
        dense = CUDA_DENSE if backends == 'cuda' else DENSE
        default = REFERENCE if is_reference else SPARSE if any(word in case for word in SPARSE_CASES) else dense
        checker.check(case, folder / 'model-bf16.gguf', folder / 'tokens.i32', folder / 'logits.f32', VOCAB,
                      backends, bound or default, [0, 7, 1], is_reference)


def check_demo(checker, goldens, model, backends, cases, bound):
    is_reference = backends == 'reference'
    folder = goldens / 'demo'
    for case in cases:
        expected = folder / ('%s.Q4_K_M.logits.f32' % ('needle-last64' if case == 'needle' else case))
        # The needle's index scores hold exact ties, which the reference breaks by position.
        default = (5e-3 if case == 'needle' else 1e-4) if is_reference else QUANTIZED
        checker.check('demo ' + case, model, folder / (case + '.tokens.i32'), expected, 3072, backends,
                      bound or default, [0, 64], is_reference)


def check_quantized(checker, data, backends, cases, bound):
    files = data / 'quantized'
    manifest = json.loads((files / 'manifest.json').read_text())
    if cases == ['all']:
        cases = [name for name in manifest if (files / name).exists()]
    for case in cases:
        entry = manifest[case]
        factor = AS_LLAMA_CPP_SPARSE if 'dsa' in case else AS_LLAMA_CPP
        default = DEQUANTIZED if backends == 'reference' else factor * entry['llama_cpp_rel_error']
        stem, tokens = case.removesuffix('.gguf'), data / entry['tokens_file']
        checker.check(stem, files / case, tokens, files / (stem + '.logits.f32'), VOCAB, backends, bound or default,
                      [0, 7], False)
        parts = sorted((files / 'split').glob(stem + '-*-of-*.gguf'))
        if parts:
            checker.check_split(files / case, parts, tokens, backends)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n\n')[0])
    parser.add_argument('--assayctl', required=True)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument('--goldens', type=pathlib.Path, help='folder of the target `goldens`: one folder a case')
    source.add_argument('--quantized', type=pathlib.Path, metavar='DATA',
                        help='folder with quantized/ and goldens/: check quantized files instead')
    parser.add_argument('--backends', required=True, choices=['reference', 'cpu', 'cuda'])
    parser.add_argument('--demo-model', help='GGUF file: check the demo prompts instead of the goldens')
    parser.add_argument('--bound', type=float, help='instead of the bound of the case')
    parser.add_argument('cases', nargs='+')
    arguments = parser.parse_args()
    checker = Checker(arguments.assayctl)
    common = arguments.backends, arguments.cases, arguments.bound
    if arguments.quantized:
        check_quantized(checker, arguments.quantized, *common)
    elif arguments.demo_model:
        check_demo(checker, arguments.goldens, arguments.demo_model, *common)
    else:
        check_goldens(checker, arguments.goldens, *common)
    return 1 if checker.failures else 0


if __name__ == '__main__':
    sys.exit(main())
