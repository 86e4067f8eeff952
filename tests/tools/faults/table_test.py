#!/usr/bin/env python3
"""The table of faults is whole, every change of a file is one, and every change of numbers shows in the logits."""

import argparse
import hashlib
import pathlib
import re
import struct
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / 'tools' / 'faults'))

import run  # noqa: E402
import files  # noqa: E402
import table  # noqa: E402
from gguf_file import GgufFile  # noqa: E402

ARGUMENTS = argparse.Namespace()
# What a single sequence's logits cannot show: several sequences at once, what lies around an output, the last bit,
# and what is asked of the device behind the logits.
UNSEEN = {'attention.zero-length', 'attention.ragged', 'attention.past-end', 'attention.before-begin', 'quant.past-end',
          'device.sample', 'device.mask', 'device.logprobs', 'file.bos-added+calibration',
          'file.tokens-shifted', 'file.tokens-shifted+calibration', 'attention.hang', 'quant.hang', 'device.hang'}


class Table(unittest.TestCase):
    def test_ids_are_unique(self):
        ids = [fault.id for fault in table.FAULTS]
        self.assertEqual(len(ids), len(set(ids)))

    def test_every_fault_of_the_image_has_a_row(self):
        for part, source in (('quant', 'quant_table.cpp'), ('attention', 'attention_table.cpp'), ('device', 'device.cpp')):
            text = (ROOT / 'tools' / 'faults' / source).read_text()
            text = text[text.index('kFaults[]'):]
            text = text[:text.index('\n};')]
            there = set(re.findall(r'\{(?:\.id = )?"([a-z0-9-]+)"', text))
            self.assertGreater(len(there), 20)
            rows = {fault.fault for fault in table.FAULTS if fault.part == part}
            self.assertEqual(there, rows)

    def test_every_change_of_a_file_has_a_row(self):
        used = {fault.edit for fault in table.FAULTS if fault.edit} | {edit for _, edit in table.VARIANTS.values()}
        self.assertEqual(used, set(files.MUTATIONS))

    def test_every_report_is_a_fault_or_a_test_or_has_a_reason(self):
        named = {report for fault in table.FAULTS for report in fault.reports.split()}
        self.assertEqual(named - set(table.REPORTS), set())
        for report in table.REPORTS:
            self.assertTrue(report in named or report in table.ELSEWHERE or report in table.NOT_HERE, report)

    def test_tests_elsewhere_exist(self):
        for report, place in table.ELSEWHERE.items():
            path, words = place.split(': ')
            self.assertIn(words, (ROOT / path).read_text(), report)

    def test_expressions_do_not_match_everything(self):
        for fault in table.FAULTS:
            self.assertIsNone(re.search(fault.culprit, ''), fault.id)


class Effects(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix='assay-faults-')
        cls.bench = run.Bench(ARGUMENTS.build, cls.folder.name, 120)
        cls.healthy = {}

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def tokens(self, model, count):
        path = pathlib.Path(self.folder.name) / ('%s.%d.tokens' % (model, count))
        if not path.exists():
            size = 3000 if model == table.DEMO else 500
            ids = [(7 * i * i + 13 * i + 5) % size for i in range(count)]
            path.write_bytes(struct.pack('<%di' % count, *ids))
        return path

    def logits(self, model, path, fault, chunk):
        """A hash; None where the program refuses."""
        out = pathlib.Path(self.folder.name) / 'logits'
        answer = self.bench.assayctl('logits', '-c', self.bench.configuration(path, fault), '--tokens',
                                     self.tokens(model, 150 if chunk == 1 else 200), '--out', out, '--chunk', chunk)
        return hashlib.sha256(out.read_bytes()).hexdigest() if answer.status == 0 else None

    def differs(self, fault, chunk):
        key = (fault.model, chunk)
        if key not in self.healthy:
            self.healthy[key] = self.logits(fault.model, self.bench.original(fault.model), None, chunk)
            self.assertIsNotNone(self.healthy[key])
        return self.logits(fault.model, self.bench.model(fault), fault, chunk) != self.healthy[key]

    def test_every_fault_that_numbers_can_show_shows(self):
        for fault in table.FAULTS:
            if fault.level in (table.RESOLVE, table.AUDIT, table.WATCH) or fault.id in UNSEEN:
                continue
            with self.subTest(fault.id):
                # In pieces of an odd number of tokens, or token by token.
                self.assertTrue(self.differs(fault, 37) or self.differs(fault, 1))


class Files(unittest.TestCase):
    def test_reading_and_writing_changes_nothing_that_is_read(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / 'copy.gguf'
            one = GgufFile(ROOT / 'models' / 'assay-demo-Q4_K_M.gguf')
            one.write(path)
            other = GgufFile(path)
            self.assertEqual((one.values, one.tensors), (other.values, other.tensors))

    def test_each_change_is_of_the_tensors_that_it_says(self):
        model = ROOT / 'models' / 'assay-demo-Q4_K_M.gguf'
        before = GgufFile(model)
        for fault in table.FAULTS:
            if not fault.edit or fault.model != table.DEMO:
                continue
            after = GgufFile(model)
            files.MUTATIONS[fault.edit](after)
            self.assertNotEqual((before.values, before.tensors), (after.values, after.tensors), fault.id)
            if fault.id.startswith('file.') and '+' in fault.id and before.tensors != after.tensors:
                changed = [name for name in before.tensors if before.tensors[name] != after.tensors[name]]
                self.assertTrue(all(re.search(fault.culprit, name) or 'layers' in fault.id for name in changed), changed)


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--build', required=True)
    parser.add_argument('tests', nargs='*')
    parser.parse_args(namespace=ARGUMENTS)
    unittest.main(argv=sys.argv[:1] + ARGUMENTS.tests)
