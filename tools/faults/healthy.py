#!/usr/bin/env python3
"""The other side of the faults: healthy starts over reference models, formats, backends and seeds. None may be
refused; a model with random weights is judged by a calibration made before."""

import argparse
import itertools
import pathlib
import random
import subprocess
import sys
import tempfile

from run import ROOT, Bench, diagnosis_of, short

import table

CASES = ('llama-gqa', 'llama3-ropescale-tied', 'mixtral', 'qwen2-bias', 'qwen3', 'qwen3moe', 'glm4', 'glm4moe', 'gpt-oss',
         'gemma3', 'glm-dsa', 'glm-dsa-shared', 'deepseek2-lite', 'deepseek3-groups-yarn', 'deepseek32')
QUANTIZED = ('llama-k256-Q2_K', 'llama-k256-IQMIX')
# Random models of tools/synth: preset, mix of formats.
SYNTHETIC = (('glm-dsa-0.25b', 'q4_k_m'), ('glm-dsa-0.25b', 'iq4_xs'), ('glm-dsa-0.25b', 'q8_0'), ('gpt-oss-20b', 'mxfp4_moe'),
             ('qwen3moe-30b', 'q4_k_m'), ('mixtral-8x7b', 'q4_k_m'))
# Settings that a healthy installation may have.
SETTINGS = (
    {},
    {'kv.dtype': 'f16'},
    {'kv.dtype': 'bf16', 'kv.block_size': 64},
    {'backends.attention.prefill': 'cpu-paged16', 'backends.attention.decode': 'cpu-paged16', 'kv.block_size': 16},
    {'backends.attention.prefill': 'reference', 'backends.attention.decode': 'cpu-flash', 'kv.dtype': 'f32'},
    {'backends.options.ggml.tier': 'avx2', 'backends.options.cpu.tier': 'avx2', 'backends.options.cpu-flash.tier': 'avx2'},
    {'backends.options.ggml.tier': 'reference', 'backends.options.cpu.tier': 'reference'},
    {'engine.threads': 1, 'scheduler.max_num_batched_tokens': 128},
    {'kv.block_size': 128, 'scheduler.max_num_seqs': 8},
)


def models(bench):
    """Name and file of every model; makes the synthetic ones."""
    found = [(table.DEMO, bench.original(table.DEMO))]
    found += [(case, bench.original(case)) for case in CASES]
    found += [(name, bench.build / 'quantized' / (name + '.gguf')) for name in QUANTIZED]
    for preset, mix in SYNTHETIC:
        path = bench.folder / ('%s-%s.gguf' % (preset, mix))
        subprocess.run([bench.build / 'bin' / 'synth', '-p', preset, '--tiny', '-f', mix, '-o', path], check=True,
                       stdout=subprocess.DEVNULL)
        found.append((path.stem, path))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--build', default=ROOT / 'build' / 'release')
    parser.add_argument('--count', type=int, default=200, help='starts')
    parser.add_argument('--timeout', type=int, default=300)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix='assay-healthy-') as folder:
        bench = Bench(arguments.build, folder, arguments.timeout)
        files = dict(models(bench))
        # Every model in turn, and with each round the settings move on by one.
        rounds = ((name, SETTINGS[(turn + i) % len(SETTINGS)]) for turn in itertools.count() for i, name in enumerate(files))
        refused, seconds = [], 0.0
        for number, (name, settings) in enumerate(itertools.islice(rounds, arguments.count), 1):
            seed = random.SystemRandom().randrange(1, 2**31)
            configuration = bench.configuration(files[name], **settings)
            judged_by = ()
            if name != table.DEMO:
                record = pathlib.Path(folder) / (name + '.calibration.json')
                if not record.exists():
                    made = bench.assayctl('calibrate', '-c', bench.configuration(files[name]), '--out', record)
                    if made.status != 0:
                        raise SystemExit('%s cannot be calibrated: %s' % (name, made.err))
                judged_by = ('--calibration', record)
            answer = bench.assayctl('assay', '-c', configuration, '--json', '--seed', seed, *judged_by)
            seconds += answer.seconds
            if answer.status == 0:
                continue
            level, words = diagnosis_of(answer)
            refused.append(name)
            print('REFUSED %s %s seed %d: status %s, %s: %s' % (name, settings, seed, answer.status, level, short(words, 400)),
                  flush=True)
        print('%d of %d healthy starts refused; %d models, %d settings, %.1f s a start' %
              (len(refused), number, len(files), len(SETTINGS), seconds / number))
    return 1 if refused else 0


if __name__ == '__main__':
    sys.exit(main())
