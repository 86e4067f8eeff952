#!/usr/bin/env python3
"""Holds the logits of `assayctl logits` to reference values made with other software.

Each case names a model, its tokens, its expected logits and a bound; it runs once per chunking, and the
chunkings must agree with each other too. Bounds are relative: |a - b| / |b| over all rows, Euclidean.
"""

import argparse
import array
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
SPARSE_CASES = ('dsa', 'moe', 'mixtral', 'gpt-oss')
# Quantized files with activations of 14 bits or more (ASSAY_MM_FINE), which no choice of this model flips under.
QUANTIZED = 2e-3
# One shot, chunk by chunk and token by token.
CHUNKING = 1e-5


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

    def logits(self, model, tokens, backends, chunk, folder):
        out = pathlib.Path(folder) / 'logits.f32'
        command = [self.assayctl, 'logits', '-m', model, '--tokens', tokens, '--out', str(out),
                   '--backends', backends, '--chunk', str(chunk)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
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
                    self.expect(label + ' against all at once', relative_error(got, first), CHUNKING)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n\n')[0])
    parser.add_argument('--assayctl', required=True)
    parser.add_argument('--goldens', required=True, help='folder of the target `goldens`')
    parser.add_argument('--backends', required=True, choices=['reference', 'cpu', 'cuda'])
    parser.add_argument('--demo-model', help='GGUF file: check the demo prompts instead of the goldens')
    parser.add_argument('--bound', type=float, help='instead of the bound of the case')
    parser.add_argument('cases', nargs='+')
    arguments = parser.parse_args()
    checker = Checker(arguments.assayctl)
    goldens = pathlib.Path(arguments.goldens)
    is_reference = arguments.backends == 'reference'
    for case in arguments.cases:
        if arguments.demo_model:
            folder = goldens / 'demo'
            expected = folder / ('%s.Q4_K_M.logits.f32' % ('needle-last64' if case == 'needle' else case))
            # The needle's index scores hold exact ties, which the reference breaks by position.
            bound = (5e-3 if case == 'needle' else 1e-4) if is_reference else QUANTIZED
            checker.check('demo ' + case, arguments.demo_model, folder / (case + '.tokens.i32'), expected, 3072,
                          arguments.backends, arguments.bound or bound, [0, 64], is_reference)
        else:
            folder = goldens / case
            bound = REFERENCE if is_reference else SPARSE if any(word in case for word in SPARSE_CASES) else DENSE
            checker.check(case, folder / 'model-bf16.gguf', folder / 'tokens.i32', folder / 'logits.f32', 512,
                          arguments.backends, arguments.bound or bound, [0, 7, 1], is_reference)
    return 1 if checker.failures else 0


if __name__ == '__main__':
    sys.exit(main())
