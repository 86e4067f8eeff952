#!/usr/bin/env python3
"""What an operator does to a running daemon, and what is done to it: signals, moved logs, keys, a certificate, model
files that change under it. Each test starts the real daemon with the demo model."""

import argparse
import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import unittest

ARGUMENTS = argparse.Namespace()
BAD_MODEL, CUT, CONFIG = 65, 75, 78
PATIENCE = 100  # seconds; sanitizers and busy machines


def free_port():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


class Daemon:
    """A daemon in a folder of its own, with its log in a file."""

    def __init__(self, folder, settings=None, model=None):
        self.folder = folder
        self.port = free_port()
        self.log = folder / 'assayd.log'
        lines = {'model.path': json.dumps(str(model or ARGUMENTS.model)), 'kv.max_tokens': '32768',
                 'server.listen': json.dumps('127.0.0.1:%d' % self.port), 'log.file': json.dumps(str(self.log))}
        lines.update(settings or {})
        configuration = folder / 'assayd.toml'
        configuration.write_text(''.join('%s = %s\n' % pair for pair in lines.items()))
        self.context = None
        self.errors = open(folder / 'stderr', 'w+', encoding='utf-8')
        self.process = subprocess.Popen([ARGUMENTS.assayd, '--config', configuration], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=self.errors)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.errors.close()

    def stderr(self):
        return (self.folder / 'stderr').read_text()

    def log_text(self):
        return self.log.read_text() if self.log.exists() else ''

    def wait_for(self, condition, what):
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if condition():
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        raise AssertionError('%s; exit status %s\n%s%s' % (what, self.process.poll(), self.log_text(), self.stderr()))

    def wait_until_ready(self):
        self.wait_for(lambda: self.get('/readyz')[0] == 200, 'not ready')
        return self

    def connect(self):
        if self.context:
            return http.client.HTTPSConnection('localhost', self.port, timeout=PATIENCE, context=self.context)
        return http.client.HTTPConnection('127.0.0.1', self.port, timeout=PATIENCE)

    def request(self, method, path, body=None, key=None):
        headers = {'Authorization': 'Bearer ' + key} if key else {}
        try:
            with contextlib.closing(self.connect()) as connection:
                connection.request(method, path, body, headers)
                answer = connection.getresponse()
                return answer.status, answer.read().decode()
        except OSError as error:
            return 0, str(error)

    def get(self, path, key=None):
        return self.request('GET', path, key=key)

    def complete(self, prompt='Once', tokens=4, key=None):
        return self.request('POST', '/v1/completions', json.dumps(
            {'model': self.model_name(key), 'prompt': prompt, 'max_tokens': tokens, 'temperature': 0}), key)

    def model_name(self, key=None):
        return json.loads(self.get('/v1/models', key)[1])['data'][0]['id']

    def start_stream_that_nobody_reads(self):
        """Its answer pauses above the send budget, and so never ends by itself."""
        body = json.dumps({'model': self.model_name(), 'prompt': 'Once', 'max_tokens': 900, 'ignore_eos': True,
                           'stream': True, 'n': 8, 'logprobs': 5}).encode()
        reader = socket.socket()
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.connect(('127.0.0.1', self.port))
        reader.sendall(b'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s' % (len(body), body))
        self.wait_for(lambda: 'assay_slow_client_actions_total{action="paused"} 0' not in self.get('/metrics')[1],
                      'no stream was paused')
        return reader

    def signal(self, number):
        self.process.send_signal(number)

    def exit_status(self):
        return self.process.wait(PATIENCE)


class Operation(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix='assay-test-'))
        self.addCleanup(shutil.rmtree, self.folder)

    def start(self, settings=None, model=None):
        daemon = Daemon(self.folder, settings, model)
        self.addCleanup(daemon.close)
        return daemon

    # ---- signals

    def test_a_signal_ends_a_start_that_is_not_done(self):
        for _ in range(5):
            daemon = self.start()
            daemon.wait_for(lambda: 'event=listening' in daemon.log_text(), 'not listening')
            daemon.signal(signal.SIGTERM)
            self.assertEqual(daemon.exit_status(), 0, daemon.log_text())
            if 'event=ready' not in daemon.log_text():
                self.assertIn('event=exit code=0', daemon.log_text())
                return
            daemon.log.unlink()
        self.skipTest('it was always ready first')

    def test_terminating_signals_drain(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            daemon = self.start().wait_until_ready()
            daemon.signal(number)
            self.assertEqual(daemon.exit_status(), 0)
            self.assertIn('event=drain signal=' + signal.Signals(number).name, daemon.log_text())

    def test_answers_that_the_drain_cuts_show_in_the_exit_status(self):
        daemon = self.start({'server.send_budget_bytes': '4096', 'server.drain_timeout_ms': '300'}).wait_until_ready()
        with daemon.start_stream_that_nobody_reads():
            daemon.signal(signal.SIGTERM)
            self.assertEqual(daemon.exit_status(), CUT)
        self.assertIn('event=exit code=75 cut=8', daemon.log_text())

    def test_a_second_signal_does_not_wait(self):
        daemon = self.start({'server.send_budget_bytes': '4096', 'server.drain_timeout_ms': '86400000'}).wait_until_ready()
        with daemon.start_stream_that_nobody_reads():
            daemon.signal(signal.SIGTERM)
            daemon.wait_for(lambda: 'event=drain' in daemon.log_text(), 'no drain')
            self.assertIsNone(daemon.process.poll())
            daemon.signal(signal.SIGINT)
            self.assertEqual(daemon.exit_status(), CUT)
        self.assertIn('event=stop signal=SIGINT', daemon.log_text())

    def test_sighup_opens_the_logs_anew_and_ends_nothing(self):
        access = self.folder / 'access.log'
        daemon = self.start({'log.access_file': json.dumps(str(access))}).wait_until_ready()
        daemon.log.rename(self.folder / 'assayd.log.1')
        access.rename(self.folder / 'access.log.1')
        daemon.signal(signal.SIGHUP)
        daemon.wait_for(lambda: 'signal=SIGHUP' in daemon.log_text(), 'no new log')
        self.assertEqual(daemon.complete()[0], 200)
        daemon.wait_for(lambda: access.exists() and '/v1/completions' in access.read_text(), 'no new access log')
        self.assertIn('event=ready', (self.folder / 'assayd.log.1').read_text())

    def test_check_dies_of_ctrl_c(self):
        pipe = self.folder / 'configuration'
        os.mkfifo(pipe)  # nobody writes to it: the program waits
        process = subprocess.Popen([ARGUMENTS.assayd, '--check', '--config', pipe])
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(PATIENCE), -signal.SIGINT)

    # ---- logs

    def test_the_access_log_is_json_lines_without_prompts(self):
        access = self.folder / 'access.log'
        daemon = self.start({'log.access_file': json.dumps(str(access))}).wait_until_ready()
        self.assertEqual(daemon.complete('a secret prompt')[0], 200)
        daemon.get('/nothing?key=secret')
        daemon.wait_for(lambda: access.exists() and '/nothing' in access.read_text(), 'no line')
        records = [json.loads(line) for line in access.read_text().splitlines()]
        done = [r for r in records if r['path'] == '/v1/completions']
        self.assertEqual([(r['method'], r['status'], r['peer']) for r in done], [('POST', 200, '127.0.0.1')])
        self.assertTrue(done[0]['id'].startswith('req_') and done[0]['bytes_out'] > 0 and done[0]['duration_ms'] >= 0)
        self.assertEqual([r['status'] for r in records if r['path'] == '/nothing'], [404])
        self.assertNotIn('secret', access.read_text())

    def test_the_access_log_holds_messages_when_asked(self):
        access = self.folder / 'access.log'
        daemon = self.start({'log.access_file': json.dumps(str(access)), 'log.messages': 'true'}).wait_until_ready()
        self.assertEqual(daemon.complete('a "quoted" prompt')[0], 200)
        daemon.wait_for(lambda: '"duration_ms"' in access.read_text().splitlines()[-1], 'no line')
        records = [json.loads(line) for line in access.read_text().splitlines()]
        messages = [json.loads(r['message']) for r in records if 'message' in r]
        self.assertEqual([m['prompt'] for m in messages], ['a "quoted" prompt'])

    def test_a_log_on_a_full_disk_hinders_nothing(self):
        daemon = self.start({'log.file': '"/dev/full"', 'log.access_file': '"/dev/full"'})
        daemon.wait_until_ready()
        self.assertEqual(daemon.complete()[0], 200)
        daemon.wait_for(lambda: 'assay_log_lines_dropped_total{log="log"} 0' not in daemon.get('/metrics')[1], 'not counted')
        daemon.signal(signal.SIGTERM)
        self.assertEqual(daemon.exit_status(), 0)
        self.assertEqual(daemon.stderr().count('/dev/full cannot be written'), 2, daemon.stderr())  # once each

    # ---- keys and certificates

    def test_keys_have_limits_of_their_own(self):
        keys = self.folder / 'keys.toml'
        keys.write_text('[[key]]\nlabel = "alice"\nsecret = "0123456789abcdef"\ntokens_per_minute = 10\n'
                        '[[key]]\nlabel = "bob"\nsha256 = "%s"\n' %
                        '6dbb3c3d5f6d5b7f5d5e7d5ab5e8a7a0c2d4c4ce6d8b46c0a4e4a2a0b6f2d8e1')
        daemon = self.start({'server.api_keys_file': json.dumps(str(keys))})
        daemon.wait_until_ready()
        self.assertEqual(daemon.get('/v1/models')[0], 401)
        self.assertEqual(daemon.get('/v1/models', 'wrong')[0], 401)
        self.assertEqual(daemon.complete('Once', 12, '0123456789abcdef')[0], 200)
        status, body = daemon.complete('Once', 12, '0123456789abcdef')
        self.assertEqual((status, json.loads(body)['error']['code']), (429, 'rate_limit_exceeded'))
        daemon.wait_for(lambda: 'assay_key_rejected_total{key="alice",reason="tokens"} 1' in daemon.get('/metrics')[1],
                        'not counted')
        self.assertNotIn('0123456789abcdef', daemon.log_text())
        self.assertIn('no valid API key', daemon.log_text())

    def make_certificate(self):
        certificate, key = self.folder / 'certificate.pem', self.folder / 'key.pem'
        subprocess.run(['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes',
                        '-keyout', key, '-out', certificate, '-days', '2', '-subj', '/CN=localhost',
                        '-addext', 'subjectAltName=DNS:localhost'],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return certificate, key

    def test_serves_over_tls(self):
        certificate, key = self.make_certificate()
        daemon = self.start({'tls.certificate': json.dumps(str(certificate)), 'tls.key': json.dumps(str(key))})
        daemon.context = ssl.create_default_context(cafile=certificate)
        daemon.wait_until_ready()
        self.assertEqual(daemon.complete()[0], 200)
        with socket.create_connection(('127.0.0.1', daemon.port)) as plain:
            plain.sendall(b'GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n')
            self.assertNotIn(b'200', plain.recv(1000))
        daemon.signal(signal.SIGTERM)
        self.assertEqual(daemon.exit_status(), 0)

    # ---- model files that change

    def copied_model(self):
        model = self.folder / 'model.gguf'
        shutil.copy(ARGUMENTS.model, model)
        return model

    def test_a_model_file_written_to_in_place_ends_readiness(self):
        model = self.copied_model()
        daemon = self.start(model=model).wait_until_ready()
        with open(model, 'r+b') as file:
            file.write(b'G')  # the same byte: the time of change is what is seen
        daemon.wait_for(lambda: daemon.get('/readyz')[0] == 503, 'still ready')
        self.assertIn('model.gguf was written to', daemon.get('/readyz')[1])
        self.assertEqual(daemon.request('POST', '/v1/completions', '{}')[0], 503)
        daemon.signal(signal.SIGTERM)
        self.assertEqual(daemon.exit_status(), 0)

    def test_a_model_file_that_is_replaced_is_no_concern(self):
        model = self.copied_model()
        daemon = self.start(model=model).wait_until_ready()
        other = self.folder / 'other.gguf'
        other.write_bytes(b'GGUF')
        other.rename(model)
        time.sleep(2.5)
        self.assertEqual(daemon.get('/readyz')[0], 200)
        self.assertEqual(daemon.complete()[0], 200)

    def test_a_model_file_cut_short_is_named(self):
        model = self.copied_model()
        daemon = self.start(model=model).wait_until_ready()
        name = daemon.model_name()
        os.truncate(model, 4096)
        daemon.request('POST', '/v1/completions', json.dumps({'model': name, 'prompt': 'Once', 'max_tokens': 4}))
        self.assertEqual(daemon.exit_status(), BAD_MODEL)
        for text in (daemon.stderr(), daemon.log_text()):
            self.assertRegex(text, r'model\.gguf: mapped bytes are gone')


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--assayd', required=True)
    parser.add_argument('--model', required=True, type=pathlib.Path)
    parser.add_argument('tests', nargs='*')
    parser.parse_args(namespace=ARGUMENTS)
    ARGUMENTS.model = ARGUMENTS.model.resolve()
    unittest.main(argv=sys.argv[:1] + ARGUMENTS.tests)
