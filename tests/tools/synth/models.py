#!/usr/bin/env python3
"""Writes a small model of every preset with `synth`, audits it with `assayctl`, and looks at its logits: they are
finite, differ from token to token and prefer some tokens to others. Then the largest preset as a sparse file: its
audit stays within the time and memory that a file of 400 GB is allowed."""

import argparse
import array
import math
import os
import pathlib
import random
import shutil
import subprocess
import tempfile
import unittest

ARGUMENTS = argparse.Namespace()
VOCABULARY = 1024
NUM_TOKENS = 40


def run(*command):
    return subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)


def cost_of(*command):
    """Seconds of processor time and bytes of resident memory at the peak, of one run."""
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True)
    with process.stdout:
        out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, out, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


class Models(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix='assay-test-'))
        self.addCleanup(shutil.rmtree, self.folder)

    def synth(self, path, *options):
        result = run(ARGUMENTS.synth, '--out', path, *options)
        self.assertEqual(result.returncode, 0, result.stdout)

    def logits(self, model):
        tokens = array.array('i', random.Random(1).choices(range(VOCABULARY - 8), k=NUM_TOKENS))
        (self.folder / 'tokens').write_bytes(tokens.tobytes())
        result = run(ARGUMENTS.assayctl, 'logits', '-m', model, '--tokens', self.folder / 'tokens', '--out',
                     self.folder / 'logits', '--backends', 'cpu')
        self.assertEqual(result.returncode, 0, result.stdout)
        values = array.array('f', (self.folder / 'logits').read_bytes())
        self.assertEqual(len(values), NUM_TOKENS * VOCABULARY)
        return [values[row * VOCABULARY:(row + 1) * VOCABULARY] for row in range(NUM_TOKENS)]

    def check_model(self, preset, *options):
        model = self.folder / 'model.gguf'
        self.synth(model, '--preset', preset, '--tiny', *options)
        audit = run(ARGUMENTS.assayctl, 'audit', model)
        self.assertEqual(audit.returncode, 0, audit.stdout)
        rows = self.logits(model)
        for row in rows:
            self.assertTrue(all(map(math.isfinite, row)))
            mean = math.fsum(row) / VOCABULARY
            deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in row) / VOCABULARY)
            self.assertTrue(0.2 < deviation < 20, deviation)
        choices = {max(range(VOCABULARY), key=row.__getitem__) for row in rows}
        self.assertGreater(len(choices), 5)
        model.unlink()

    def test_every_preset(self):
        listed = run(ARGUMENTS.synth, '--list').stdout.splitlines()
        self.assertGreater(len(listed), 10)
        for line in listed:
            preset = line.split()[0]
            with self.subTest(preset):
                if 'not supported yet' in line:
                    continue
                self.check_model(preset)

    def test_every_mix(self):
        for formats in ('q4_k_m', 'q5_k_m', 'q8_0', 'q4_0', 'iq4_xs', 'bf16', 'f16', 'f32', 'mxfp4_moe'):
            with self.subTest(formats):
                self.check_model('glm-dsa-0.25b', '--formats', formats)

    def test_audit_of_400_gb(self):
        model = self.folder / 'whole.gguf'
        self.synth(model, '--preset', 'glm-5', '--sparse')
        self.assertGreater(model.stat().st_size, 400e9)
        status, out, seconds, resident = cost_of(ARGUMENTS.assayctl, 'audit', model)
        print('audit of %.0f GB: %.2f s of processor time, %.0f MB resident' %
              (model.stat().st_size / 1e9, seconds, resident / 1e6), flush=True)
        self.assertEqual(status, 0, out)
        self.assertIn('1782 used, 27 skipped', out)
        if not ARGUMENTS.sanitized:
            self.assertLess(seconds, 2)
            self.assertLess(resident, 300e6)


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--synth', required=True)
    parser.add_argument('--assayctl', required=True)
    parser.add_argument('--sanitized', action='store_true', help='time and memory are not those of a release')
    parser.parse_args(namespace=ARGUMENTS)
    unittest.main(argv=['models.py', '-v'])
