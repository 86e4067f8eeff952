#!/usr/bin/env python3
"""The proof from outside: what passes, what is refused and in which words, and what a daemon says meanwhile."""

import argparse
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from gguf_file import GgufFile  # noqa: E402

ARGUMENTS = argparse.Namespace()
LEVELS = ['resolve', 'audit', 'kernels', 'model', 'coherence']


def free_port():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


class Assay(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix='assay-test-'))
        self.addCleanup(shutil.rmtree, self.folder)
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith('ASSAY_')}
        self.environment['XDG_CACHE_HOME'] = str(self.folder / 'cache')

    def assayctl(self, *words):
        return subprocess.run([ARGUMENTS.assayctl, *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=280, check=False, env=self.environment)

    def random_model(self):
        """A model that computes as well as any other and has nothing to say."""
        path = self.folder / 'random.gguf'
        subprocess.run([ARGUMENTS.synth, '-p', 'glm-dsa-0.25b', '--tiny', '-f', 'q4_k_m', '-o', path], check=True,
                       stdout=subprocess.DEVNULL, timeout=100)
        return path

    # ---- offline ---------------------------------------------------------------------------------

    def test_the_demo_model_passes_every_level(self):
        result = self.assayctl('assay', '-m', ARGUMENTS.model, '--json')
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        self.assertTrue(report['passed'])
        self.assertEqual(report['diagnosis'], '')
        for level in LEVELS:
            passed = [c for c in report['checks'] if c['level'] == level and c['verdict'] == 'passed']
            self.assertTrue(passed, level)
        for check in report['checks']:
            self.assertNotEqual(check['verdict'], 'failed', check)
            self.assertTrue(check['verdict'] == 'passed' or not check['required'], check)
            self.assertTrue(check['detail'], check)
        self.assertGreater(len(report['checks']), 25)
        self.assertGreater(report['figures']['top1_agreement_ratio'], 0.95)

    def test_the_seed_of_a_report_replays_it(self):
        figures = []
        for _ in range(2):
            report = json.loads(self.assayctl('assay', '-m', ARGUMENTS.model, '--depth', 'quick', '--seed', 7, '--json').stdout)
            self.assertEqual(report['seed'], 7)
            figures.append({c['id']: c['figure'] for c in report['checks'] if c['level'] == 'kernels'})
        self.assertEqual(*figures)

    def test_random_weights_are_refused_until_a_calibration_judges_them(self):
        model = self.random_model()
        result = self.assayctl('assay', '-m', model)
        self.assertEqual(result.returncode, 70, result.stdout + result.stderr)
        self.assertRegex(result.stderr, r'level coherence: coherence\..*kernels and layers are cleared: the model file or its '
                                        r'architecture table is suspected')
        made = self.assayctl('calibrate', '-m', model, '--note', 'random on purpose')
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertTrue(pathlib.Path(str(model) + '.assay.json').exists())
        result = self.assayctl('assay', '-m', model)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn('a calibration judges this model', result.stdout)

        # One bit of one tensor, which nothing else would ever notice.
        file = GgufFile(model)
        name = next(name for name in file.tensors if 'ffn_down' in name)
        ne, kind, data = file.tensors[name]
        file.tensors[name] = (ne, kind, data[:40] + bytes([data[40] ^ 1]) + data[41:])
        file.write(model)
        result = self.assayctl('assay', '-m', model)
        self.assertEqual(result.returncode, 70)
        self.assertIn('1 tensors are not those that the calibration was made for: ' + name, result.stderr)

    def test_a_calibration_that_is_none_is_a_configuration_mistake(self):
        path = self.folder / 'c.json'
        path.write_text('{"object": "assay.report"}')
        result = self.assayctl('assay', '-m', ARGUMENTS.model, '--calibration', path)
        self.assertEqual(result.returncode, 78)
        self.assertIn('c.json', result.stderr)

    # ---- the daemon ------------------------------------------------------------------------------

    def start(self, **settings):
        port = free_port()
        lines = {'server.listen': "'127.0.0.1:%d'" % port, 'model.path': "'%s'" % pathlib.Path(ARGUMENTS.model).resolve(),
                 'kv.max_tokens': '4096'}
        lines.update({key.replace('__', '.'): value for key, value in settings.items()})
        configuration = self.folder / 'assayd.toml'
        configuration.write_text(''.join('%s = %s\n' % pair for pair in lines.items()))
        daemon = subprocess.Popen([ARGUMENTS.assayd, '--config', configuration], stdin=subprocess.DEVNULL, text=True,
                                  stdout=subprocess.DEVNULL, stderr=open(self.folder / 'log', 'w'), env=self.environment)
        self.addCleanup(daemon.kill)
        return daemon, 'http://127.0.0.1:%d' % port

    @staticmethod
    def get(url):
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except (urllib.error.URLError, OSError):
            return 0, ''

    def watch_until_ready(self, daemon, url):
        """What /readyz said, in order, while it was not 200."""
        said = []
        for _ in range(6000):
            status, text = self.get(url + '/readyz')
            if status == 200:
                return said
            if status == 503 and (not said or said[-1] != text):
                said.append(text)
            if daemon.poll() is not None:
                break
            time.sleep(0.02)
        self.fail('not ready: ' + (self.folder / 'log').read_text()[-3000:])

    def done(self):
        """What the log says of the proof."""
        return next(line for line in (self.folder / 'log').read_text().splitlines() if 'event=assay_done' in line)

    def stop(self, daemon):
        daemon.send_signal(signal.SIGTERM)
        self.assertEqual(daemon.wait(60), 0)

    def test_ready_means_proven_and_the_cache_stands_for_the_very_same(self):
        daemon, url = self.start()
        said = self.watch_until_ready(daemon, url)
        self.assertTrue(any(text.startswith('assay: ') for text in said), said)
        self.assertIn('passed=true', self.done())
        self.assertIn('cached=false', self.done())
        metrics = self.get(url + '/metrics')[1]
        self.assertRegex(metrics, r'assay_verification_state\{[^}]*component="attention",plugin="cpu-flash@[^}]*\} 2\n')
        self.assertIn('assay_verification_duration_seconds_count 1\n', metrics)
        self.stop(daemon)

        daemon, url = self.start()
        self.watch_until_ready(daemon, url)
        self.assertIn('cached=true', self.done())
        self.stop(daemon)
        # Other sizes of steps are other calls.
        daemon, url = self.start(scheduler__max_num_batched_tokens='256', assay__depth='"quick"')
        self.watch_until_ready(daemon, url)
        self.assertIn('cached=false', self.done())
        self.stop(daemon)

    def test_a_backend_that_is_wrong_is_never_ready(self):
        plugins = pathlib.Path(ARGUMENTS.assayd).resolve().parent.parent
        daemon, url = self.start(plugins__folders=json.dumps([str(plugins / 'plugins'), str(plugins / 'faults')]),
                                 backends__quant='["faulty"]', backends__options__faulty__fault='"batch-9"')
        while daemon.poll() is None:
            self.assertNotEqual(self.get(url + '/readyz')[0], 200)
            self.assertIn(self.get(url + '/v1/models')[0], (0, 503))
            time.sleep(0.02)
        self.assertEqual(daemon.returncode, 70)
        log = (self.folder / 'log').read_text()
        self.assertRegex(log[log.find('assayd: '):], r'^assayd: assay failed at level kernels: kernels\.[a-z_]+.*plugin faulty, tensor '
                                                     r'blk\..*: 17 rows: .*expected .*, found ')


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('--assayd', required=True)
    parser.add_argument('--assayctl', required=True)
    parser.add_argument('--synth', required=True)
    parser.add_argument('--model', required=True)
    ARGUMENTS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
