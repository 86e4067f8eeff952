#!/usr/bin/env python3
"""What an operator may do to a model file, and what is said to it: parts and wholes, parts of other models in the
same file, damaged weights, memory that is locked. On a random model of a few hundred kilobytes."""

import argparse
import pathlib
import random
import shutil
import struct
import subprocess
import tempfile
import unittest

ARGUMENTS = argparse.Namespace()
OK, USAGE, BAD_MODEL, CONFIG = 0, 64, 65, 78


class ModelFiles(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix='assay-test-'))
        self.addCleanup(shutil.rmtree, self.folder)
        self.model = self.folder / 'model.gguf'
        subprocess.run([ARGUMENTS.synth, '-p', 'glm-dsa-0.25b', '--tiny', '-f', 'q8_0', '-o', self.model], check=True,
                       stdout=subprocess.DEVNULL)
        self.tokens = self.folder / 'tokens'
        self.tokens.write_bytes(struct.pack('<24i', *random.Random(2).choices(range(1000), k=24)))

    def run_assayctl(self, status, *words):
        result = subprocess.run([ARGUMENTS.assayctl, *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, timeout=200, check=False)
        self.assertEqual(result.returncode, status, result.stderr + result.stdout)
        return result.stdout if status == OK else result.stderr

    def logits(self, model, *options):
        out = self.folder / 'logits'
        self.run_assayctl(OK, 'logits', '-m', model, '--tokens', self.tokens, '--out', out, *options)
        return out.read_bytes()

    def configuration(self, **settings):
        path = self.folder / 'assayd.toml'
        lines = ["path = '%s'" % self.model] + ['%s = %s' % item for item in settings.items()]
        path.write_text('[model]\n' + '\n'.join(lines) + '\n')
        return path

    def test_parts_compute_what_the_whole_computes(self):
        whole = self.logits(self.model)
        parts = self.run_assayctl(OK, 'split', self.model, '--parts', 3).split()
        self.assertEqual([pathlib.Path(p).name for p in parts],
                         ['model-0000%d-of-00003.gguf' % n for n in (1, 2, 3)])
        for part in parts:
            self.assertEqual(self.logits(part), whole)
        merged = self.folder / 'merged.gguf'
        self.run_assayctl(OK, 'merge', merged, parts[1])
        self.assertEqual(merged.read_bytes(), self.model.read_bytes())
        self.assertIn('exists already', self.run_assayctl(BAD_MODEL, 'merge', merged, parts[0]))
        self.assertIn('exists already', self.run_assayctl(BAD_MODEL, 'split', self.model, '--parts', 3))
        self.assertIn('one of them', self.run_assayctl(USAGE, 'split', self.model))
        size = self.model.stat().st_size
        small = self.run_assayctl(OK, 'split', self.model, '--max-bytes', '%dK' % (size // 2048), '--prefix',
                                  self.folder / 'small').split()
        self.assertGreaterEqual(len(small), 2)
        self.assertTrue(all(pathlib.Path(p).stat().st_size <= size // 2048 * 1024 for p in small))

    def test_parts_that_are_missing_or_joined_are_named(self):
        parts = self.run_assayctl(OK, 'split', self.model, '--parts', 5).split()
        joined = self.folder / 'joined.gguf'
        joined.write_bytes(b''.join(pathlib.Path(p).read_bytes() for p in parts))
        self.assertIn('assayctl merge', self.run_assayctl(BAD_MODEL, 'audit', joined))
        for part in (parts[1], parts[4]):
            pathlib.Path(part).unlink()
        self.assertIn('2 of 5 parts are missing beside it: 2, 5', self.run_assayctl(BAD_MODEL, 'audit', parts[2]))

    def test_tensors_of_another_model_are_listed_and_may_be_allowed(self):
        # The same file with the vision part of another: two tensors that nothing here reads.
        content = self.model.read_bytes()
        name = b'blk.1.ffn_up_shexp.weight'
        self.assertEqual(content.count(name), 1)
        self.model.write_bytes(content.replace(name, b'v.1.ffn_up_shexp.weight__')
                               .replace(b'blk.2.ffn_up_shexp.weight', b'mm.2.ffn_up_shexp.weight_'))
        said = self.run_assayctl(BAD_MODEL, 'audit', self.model)
        for expected in ('4 defects', 'v.1.ffn_up_shexp.weight__: not a parameter', 'mm.2.ffn_up_shexp.weight_',
                         'blk.1.ffn_up_shexp.weight: missing', 'model.allow_unused_tensors'):
            self.assertIn(expected, said)
        said = self.run_assayctl(BAD_MODEL, 'audit', self.model, '--allow-unused', 'v.*', '--allow-unused', 'mm.*')
        self.assertIn('2 defects', said)
        self.assertNotIn('not a parameter', said)

    def test_damaged_scales_refuse_the_start_unless_nobody_looks(self):
        expected = self.logits(self.model)
        tensors = self.run_assayctl(OK, 'inspect', self.model, '--tensors')
        line = next(line for line in tensors.splitlines() if 'blk.2.ffn_down_exps.weight' in line)
        offset = int(line.split()[-1])
        with open(self.model, 'r+b') as file:
            file.seek(offset + 34 * 100)  # q8_0: the 101st block's scale
            file.write(b'\x01\x7e')
        self.run_assayctl(OK, 'audit', self.model)
        words = 'tensor "blk.2.ffn_down_exps.weight".*found NaN \\(0x7e01\\) in block 100 of q8_0'
        self.assertRegex(self.run_assayctl(BAD_MODEL, 'audit', self.model, '--weights'), words)
        said = self.run_assayctl(BAD_MODEL, 'logits', '-m', self.model, '--tokens', self.tokens, '--out', '/dev/null')
        self.assertRegex(said, words)
        out = self.folder / 'logits'
        self.run_assayctl(OK, 'logits', '-c', self.configuration(check_weights='false'), '--tokens', self.tokens,
                          '--out', out)
        self.assertEqual(len(out.read_bytes()), len(expected))

    def test_locked_memory(self):
        plain = self.logits(self.model)
        result = subprocess.run([ARGUMENTS.assayctl, 'logits', '-c', self.configuration(lock_memory='true'), '--tokens',
                                 self.tokens, '--out', self.folder / 'logits'], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, timeout=200, check=False)
        if result.returncode == CONFIG:  # an account with a small limit
            self.assertIn('LimitMEMLOCK', result.stderr)
        else:
            self.assertEqual(result.returncode, OK, result.stderr)
            self.assertEqual((self.folder / 'logits').read_bytes(), plain)


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--assayctl', required=True)
    parser.add_argument('--synth', required=True)
    parser.parse_args(namespace=ARGUMENTS)
    unittest.main(argv=['model_files.py', '-v'])
