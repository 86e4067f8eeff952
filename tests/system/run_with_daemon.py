#!/usr/bin/env python3
"""Runs a command against a real daemon: starts assayd on a free port, waits until it is ready, runs the
command with every `{url}` replaced by http://127.0.0.1:PORT, then ends the daemon with SIGTERM.

Exit status: the command's own when that is not 0; 1 when the daemon did not become ready, did not live
through the command, or did not end with status 0. The daemon's log is printed when anything failed.
"""

import argparse
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split('\n\n')[0])
    parser.add_argument('--assayd', required=True, help='the program')
    parser.add_argument('--model', required=True, help='the GGUF file')
    parser.add_argument('--set', action='append', default=[], metavar='KEY=VALUE',
                        help='one more line of the configuration, in TOML: scheduler.max_num_seqs=4')
    parser.add_argument('--ready-timeout', type=float, default=100, help='seconds')
    parser.add_argument('--exit-timeout', type=float, default=40, help='seconds, after SIGTERM')
    parser.add_argument('command', nargs='+', help='after --')
    return parser.parse_args()


def free_port():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


def write_configuration(path, port, arguments):
    # A cache of a fixed size, so that a test does not take half of the machine's memory.
    settings = {'server.listen': json.dumps('127.0.0.1:%d' % port),
                'model.path': json.dumps(str(pathlib.Path(arguments.model).resolve())),
                'kv.max_tokens': '32768'}
    for item in arguments.set:
        key, _, value = item.partition('=')
        settings[key.strip()] = value.strip()
    path.write_text(''.join('%s = %s\n' % pair for pair in settings.items()))


def is_ready(url):
    try:
        with urllib.request.urlopen(url + '/readyz', timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


def wait_until_ready(daemon, url, timeout):
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if daemon.poll() is not None:
            return 'the daemon ended with status %d before it was ready' % daemon.returncode
        if is_ready(url):
            return None
        time.sleep(0.05)
    return 'the daemon was not ready after %g s' % timeout


def stop(daemon, timeout):
    try:  # one that is just dying gets the moment it needs to be seen
        daemon.wait(0.3)
        return 'the daemon ended with status %d during the command' % daemon.returncode
    except subprocess.TimeoutExpired:
        pass
    daemon.send_signal(signal.SIGTERM)
    try:
        status = daemon.wait(timeout)
    except subprocess.TimeoutExpired:
        return 'the daemon did not end within %g s after SIGTERM' % timeout
    return None if status == 0 else 'the daemon ended with status %d after SIGTERM' % status


def main():
    arguments = parse_arguments()
    environment = {key: value for key, value in os.environ.items() if not key.startswith('ASSAY_')}
    status = 0
    with tempfile.TemporaryDirectory(prefix='assay-test-') as folder:
        folder = pathlib.Path(folder)
        configuration, log_file = folder / 'assayd.toml', folder / 'assayd.log'
        port = free_port()
        url = 'http://127.0.0.1:%d' % port
        write_configuration(configuration, port, arguments)
        with open(log_file, 'wb') as log:
            daemon = subprocess.Popen([arguments.assayd, '--config', str(configuration)],
                                      stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                      env=environment, start_new_session=True)
        try:
            problem = wait_until_ready(daemon, url, arguments.ready_timeout)
            if problem is None:
                command = [part.replace('{url}', url) for part in arguments.command]
                status = subprocess.run(command, env=environment, check=False).returncode
                problem = stop(daemon, arguments.exit_timeout)
        finally:
            try:  # with its template and probe processes, whatever state they are in
                os.killpg(daemon.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            daemon.wait()
        if problem is not None or status != 0:
            print('---- log of assayd ----', file=sys.stderr)
            print(log_file.read_text(errors='replace')[-20000:], file=sys.stderr)
            print('----', problem or 'the command ended with status %d' % status, file=sys.stderr)
    return status if status != 0 else int(problem is not None)


if __name__ == '__main__':
    sys.exit(main())
