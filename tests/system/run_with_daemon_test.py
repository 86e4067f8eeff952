#!/usr/bin/env python3
"""Whether run_with_daemon.py tells each way of going wrong apart, with a stand-in for the daemon."""

import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

HARNESS = pathlib.Path(__file__).with_name('run_with_daemon.py')

FAKE = '''#!{python}
import http.server, os, re, signal, sys, time
behaviour = '{behaviour}'
text = open(sys.argv[2]).read()
assert sys.argv[1] == '--config' and 'ASSAY_LOG_LEVEL' not in os.environ
assert '"/models/m.gguf"' in text and 'engine.threads = 3' in text, text
port = int(re.search(r'"127.0.0.1:(\\d+)"', text).group(1))
if behaviour == 'refuses': sys.exit(78)
if behaviour != 'stuck': signal.signal(signal.SIGTERM, lambda *_: os._exit(5 if behaviour == 'unclean' else 0))
else: signal.signal(signal.SIGTERM, signal.SIG_IGN)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == '/die': os._exit(9)
        self.send_response(503 if behaviour == 'never-ready' else 200)
        self.end_headers()
    def log_message(self, *_): pass
print('the log of the stand-in', flush=True)
http.server.ThreadingHTTPServer(('127.0.0.1', port), Handler).serve_forever()
'''

GET = 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1])'


class RunWithDaemon(unittest.TestCase):
    def run_with(self, behaviour, *command):
        with tempfile.TemporaryDirectory() as folder:
            fake = pathlib.Path(folder) / 'assayd'
            fake.write_text(FAKE.format(python=sys.executable, behaviour=behaviour))
            fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
            result = subprocess.run(
                [sys.executable, HARNESS, '--assayd', fake, '--model', '/models/m.gguf',
                 '--set', 'engine.threads=3', '--ready-timeout', '3', '--exit-timeout', '1', '--',
                 *(command or (sys.executable, '-c', GET, '{url}/x'))],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, timeout=60,
                env=dict(os.environ, ASSAY_LOG_LEVEL='debug'))
        return result.returncode, result.stderr

    def test_passes_when_all_is_well(self):
        self.assertEqual(self.run_with('good'), (0, ''))

    def test_gives_the_status_of_the_command(self):
        status, text = self.run_with('good', 'sh', '-c', 'exit 7')
        self.assertEqual(status, 7)
        self.assertIn('the log of the stand-in', text)

    def test_fails_when_the_daemon_refuses_to_start(self):
        status, text = self.run_with('refuses')
        self.assertEqual(status, 1)
        self.assertIn('status 78 before it was ready', text)

    def test_fails_when_the_daemon_is_never_ready(self):
        status, text = self.run_with('never-ready')
        self.assertEqual(status, 1)
        self.assertIn('not ready after 3 s', text)

    def test_fails_when_the_daemon_dies_during_the_command(self):
        status, text = self.run_with('good', sys.executable, '-c',
                                     'try:\n ' + GET + '\nexcept OSError: pass', '{url}/die')
        self.assertEqual(status, 1)
        self.assertIn('during the command', text)

    def test_fails_when_the_exit_status_is_not_zero(self):
        status, text = self.run_with('unclean')
        self.assertEqual(status, 1)
        self.assertIn('status 5 after SIGTERM', text)

    def test_fails_when_the_daemon_ignores_sigterm(self):
        status, text = self.run_with('stuck')
        self.assertEqual(status, 1)
        self.assertIn('did not end within 1 s', text)


if __name__ == '__main__':
    unittest.main()
