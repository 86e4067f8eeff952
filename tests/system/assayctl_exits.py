#!/usr/bin/env python3
"""Holds assayctl to its exit statuses, and to messages that say what is wrong."""

import argparse
import http.server
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

USAGE, UNAVAILABLE, IO = 64, 69, 74
ARGUMENTS = argparse.Namespace()


def run(*words, **options):
    clean = {k: v for k, v in os.environ.items() if not k.startswith('ASSAY')}
    options = dict({'stdout': subprocess.PIPE}, **options)
    result = subprocess.run([ARGUMENTS.assayctl, *map(str, words)], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
                            text=True, timeout=100, check=False, env=clean, **options)
    return result.returncode, result.stderr


class Refusing(http.server.BaseHTTPRequestHandler):
    """A daemon that wants a key, and remembers under which name it was addressed."""
    hosts = []

    def do_GET(self):
        Refusing.hosts.append(self.headers['Host'])
        body = b'{"error":{"message":"Incorrect API key provided.","type":"x","param":null,"code":null}}'
        self.send_response(401)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Exits(unittest.TestCase):
    def assert_refused(self, status, words, result):
        code, said = result
        self.assertEqual(code, status, said)
        self.assertRegex(said, words)

    def test_a_daemon_that_is_not_there(self):
        self.assert_refused(UNAVAILABLE, r'127\.0\.0\.1:1: cannot connect: Connection refused',
                            run('complete', '--url', 'http://127.0.0.1:1', 'x'))

    def test_a_daemon_that_refuses(self):
        server = http.server.HTTPServer(('127.0.0.1', 0), Refusing)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.shutdown)
        self.assert_refused(UNAVAILABLE, r'Incorrect API key',
                            run('complete', '--url', 'http://127.0.0.1:%d' % server.server_port, 'x'))

    def test_an_ipv6_address_keeps_its_brackets(self):
        class Server(http.server.HTTPServer):
            address_family = __import__('socket').AF_INET6
        try:
            server = Server(('::1', 0), Refusing)
        except OSError as error:
            self.skipTest('no IPv6: %s' % error)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.shutdown)
        run('complete', '--url', 'http://[::1]:%d' % server.server_port, 'x')
        self.assertEqual(Refusing.hosts[-1], '[::1]:%d' % server.server_port)

    def test_an_address_that_is_none(self):
        self.assert_refused(USAGE, r'begins with http://', run('complete', '--url', 'ftp://x', 'x'))

    def test_an_unknown_command_is_named(self):
        self.assert_refused(USAGE, r"unknown command 'audti', did you mean 'audit'\?", run('audti'))

    def test_a_number_out_of_range_is_named_with_its_range(self):
        self.assert_refused(USAGE, r'expected a whole number from 1 to 2147483647, found -3',
                            run('complete', '-n', '-3', 'x'))

    def test_output_that_cannot_be_written(self):
        with open('/dev/full', 'w', encoding='utf-8') as full:
            self.assert_refused(IO, r'standard output: No space left', run('inspect', ARGUMENTS.model, stdout=full))

    def test_a_result_file_that_cannot_be_written(self):
        with tempfile.TemporaryDirectory(prefix='assay-test-') as folder:
            tokens = pathlib.Path(folder) / 'tokens'
            tokens.write_bytes(bytes(8))
            self.assert_refused(IO, r'absent/out: cannot be written: No such file',
                                run('logits', '-m', ARGUMENTS.model, '--tokens', tokens, '--out', folder + '/absent/out'))

    def test_a_model_in_a_folder_that_may_not_be_entered(self):
        if os.geteuid() == 0:
            self.skipTest('root may enter any')
        with tempfile.TemporaryDirectory(prefix='assay-test-') as folder:
            inner = pathlib.Path(folder) / 'inner'
            inner.mkdir(mode=0o000)
            self.addCleanup(inner.chmod, 0o700)
            self.assert_refused(65, r'Permission denied', run('inspect', '-m', inner / 'model.gguf'))


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--assayctl', required=True)
    parser.add_argument('--model', required=True)
    parser.parse_args(namespace=ARGUMENTS)
    unittest.main(argv=sys.argv[:1])
