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

    def test_check_finds_what_would_stop_the_start(self):
        missing, folder = self.folder / 'missing', str(self.folder)
        text = self.folder / 'text'
        text.write_text('{% if %}')
        keys = self.folder / 'keys.toml'
        keys.write_text('[[key]]\nlabel = "a"\nsecret = "short"\n')
        for settings, words in (
                ({'server.api_keys_file': "'%s'" % missing}, r'server\.api_keys_file: .*no such file'),
                ({'server.api_keys_file': "'%s'" % keys}, r'server\.api_keys_file: .*keys\.toml:3:1: key\.secret'),
                ({'server.api_keys_file': "'%s'" % folder}, r'server\.api_keys_file: .*a folder'),
                ({'server.listen': "'no-such-host.invalid:80'", 'server.api_keys_file': "'%s'" % self.good_keys()},
                 r'server\.listen: .*no-such-host\.invalid'),
                ({'tls.certificate': "'%s'" % missing, 'tls.key': "'%s'" % missing}, r'tls\.certificate: .*No such file'),
                ({'tls.certificate': "'%s'" % missing}, r'tls\.key: found nothing'),
                ({'log.file': "'%s/x'" % missing}, r'log\.file: .*missing/x cannot be written'),
                ({'log.access_file': "'%s'" % folder}, r'log\.access_file: .*Is a directory'),
                ({'log.messages': 'true'}, r'log\.messages: found true, expected log\.access_file'),
                ({'model.chat_template_file': "'%s'" % folder}, r'model\.chat_template_file: .*is a folder'),
                ({'model.chat_template_file': "'%s'" % missing}, r'model\.chat_template_file: .*No such file'),
                ({'model.chat_template_file': "'%s'" % text}, r'model\.chat_template_file: .*line 1'),
                ({'kv.max_tokens': '100000000000'}, r'kv\.max_tokens: 100000000000 tokens take .* GiB, and .* are free'),
                ({'kv.max_tokens': '0', 'kv.memory_bytes': '1000'}, r'kv\.memory_bytes: a block of 32 tokens takes'),
                ({'kv.max_tokens': '64', 'model.context_length': '512'}, r'context_length: got 512, and the KV cache holds 64'),
                ({'backends.options.cpu-falsh.tier': "'x'"}, r'cpu-falsh: no usable plugin.*cpu-flash'),
                ({'kv.block_size': '1024', 'backends.attention': "{prefill='cpu-paged16', decode='cpu-paged16'}"},
                 r'attention')):
            with self.subTest(settings):
                for extra in (['--check'], []):
                    code, lines, _ = self.run_daemon(settings, *extra)
                    self.assertEqual(code, CONFIG, (extra, lines))
                    self.assertRegex(lines[0], words)

    def good_keys(self):
        keys = self.folder / 'good-keys.toml'
        keys.write_text('[[key]]\nlabel = "a"\nsecret = "0123456789abcdef"\n')
        return keys

    def test_a_block_size_that_is_in_the_way_is_what_the_remedy_names(self):
        _, lines, _ = self.run_daemon({'kv.block_size': '1024', 'backends.attention.prefill': "'cpu-flash'"}, '--check')
        self.assertRegex('\n'.join(lines), r'what to do: set kv\.block_size = \d+')

    def test_a_context_that_the_cache_does_not_hold_is_said(self):
        code, lines, out = self.run_daemon({'kv.max_tokens': '64'}, '--check')
        self.assertEqual(code, 0, lines)
        self.assertRegex(out, r'warning: context +64 tokens')

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
