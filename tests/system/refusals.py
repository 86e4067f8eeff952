#!/usr/bin/env python3
"""Starts the daemon with something missing or wrong, and holds it to the right exit status and to a first line
that is a diagnosis."""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

USAGE, BAD_MODEL, CONFIG = 64, 65, 78
ARGUMENTS = argparse.Namespace()


class Refusals(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix='assay-test-'))
        self.addCleanup(shutil.rmtree, self.folder)

    def run_daemon(self, settings, *extra, model=None, environment=None):
        configuration = self.folder / 'assayd.toml'
        lines = {'model.path': "'%s'" % pathlib.Path(model or ARGUMENTS.model).resolve(), 'server.listen': "'127.0.0.1:0'",
                 'kv.max_tokens': '4096'}
        lines.update(settings)
        configuration.write_text(''.join('%s = %s\n' % pair for pair in lines.items()))
        clean = {k: v for k, v in os.environ.items() if not k.startswith('ASSAY_')}
        result = subprocess.run([ARGUMENTS.assayd, '--config', configuration, *extra], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=100, check=False,
                                env=dict(clean, **(environment or {})))
        # The log goes to standard error too; the diagnosis is what the program itself says.
        said = result.stderr[result.stderr.find('assayd: '):] if 'assayd: ' in result.stderr else result.stderr
        return result.returncode, said.splitlines() or [''], result.stdout

    def assert_refused(self, status, first_line, result):
        code, lines, _ = result
        self.assertEqual(code, status, '\n'.join(lines))
        self.assertRegex(lines[0], first_line)

    def test_absent_attention_backend_is_named_with_its_candidates(self):
        result = self.run_daemon({'backends.attention.prefill': "'flash-attn-9'"})
        self.assert_refused(CONFIG, r'attention.*prefill.*flash-attn-9', result)

    def test_absent_quant_backend_is_named(self):
        self.assert_refused(CONFIG, r'quant.*no-such', self.run_daemon({'backends.quant': "['no-such']"}))

    def test_absent_device_is_named(self):
        self.assert_refused(CONFIG, r'device.*tpu', self.run_daemon({'backends.device': "'tpu'"}))

    def test_alternatives_are_taken_only_where_they_are_written(self):
        code, _, out = self.run_daemon({'backends.attention.prefill': "['flash-attn-9', 'cpu-flash']"}, '--check')
        self.assertEqual(code, 0)
        self.assertRegex(out, r'flash-attn-9')
        self.assertRegex(out, r'attention.prefill +cpu-flash')

    def test_unknown_plugin_option_is_refused_with_the_known_ones(self):
        result = self.run_daemon({'backends.options.ggml.speed': "'warp'"})
        self.assert_refused(CONFIG, r'speed.*tier', result)

    def test_unknown_key_is_fatal_with_its_place(self):
        result = self.run_daemon({'server.lisen': "'127.0.0.1:1'"})
        self.assert_refused(CONFIG, r'server\.lisen', result)

    def test_unknown_variable_is_fatal(self):
        result = self.run_daemon({}, environment={'ASSAY_NO_SUCH': '1'})
        self.assert_refused(CONFIG, r'ASSAY_NO_SUCH', result)

    def test_missing_model_file(self):
        self.assert_refused(BAD_MODEL, r'no such file', self.run_daemon({}, model='/nonexistent/model.gguf'))

    def test_damaged_model_file(self):
        bad = self.folder / 'bad.gguf'
        with open(ARGUMENTS.model, 'rb') as model:
            bad.write_bytes(model.read(100_000))
        self.assert_refused(BAD_MODEL, r'bad\.gguf', self.run_daemon({}, model=bad))

    def test_plugin_folder_that_anybody_may_write_to(self):
        folder = self.folder / 'plugins'
        folder.mkdir()
        folder.chmod(0o777)
        result = self.run_daemon({'plugins.folders': "['%s']" % folder})
        self.assert_refused(CONFIG, re.escape(str(folder)), result)

    def test_missing_option_is_a_usage_error(self):
        result = subprocess.run([ARGUMENTS.assayd], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                timeout=60, check=False)
        self.assertEqual(result.returncode, USAGE)
        self.assertIn('--config', result.stderr + result.stdout)

    def test_context_beyond_the_model_is_refused(self):
        self.assert_refused(CONFIG, r'context_length.*100000.*1024', self.run_daemon({'model.context_length': '100000'}))

    def test_check_prints_configuration_and_plan_and_serves_nothing(self):
        code, lines, out = self.run_daemon({}, '--check')
        self.assertEqual(code, 0, lines)
        self.assertRegex(out, r'quant +ggml')
        self.assertRegex(out, r'block_size = 32')


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--assayd', required=True)
    parser.add_argument('--model', required=True)
    parser.parse_args(namespace=ARGUMENTS)
    unittest.main(argv=sys.argv[:1])
