"""Starts the programs under test and reads what the kernel and /metrics say about them."""

import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import types
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import run_with_daemon  # noqa: E402  (a neighbour, not a package)

READY_TIMEOUT_S = 100
EXIT_TIMEOUT_S = 40


def raise_file_limit():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Program:
    """A running server, ended on leaving the `with` block."""

    def __init__(self, command, log_path):
        self.log_path = log_path
        with open(log_path, 'wb') as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            start_new_session=True)
        self.pid = self.process.pid
        self.port = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            pass
        try:  # with its template and probe processes
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def wait_for_port(self):
        """The port that a program prints as `listening PORT`."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline and self.process.poll() is None:
            found = re.search(r'listening (\d+)', self.log())
            if found:
                self.port = int(found.group(1))
                return self
            time.sleep(0.05)
        raise RuntimeError('%s did not start:\n%s' % (self.process.args[0], self.log()[-4000:]))

    def log(self):
        return pathlib.Path(self.log_path).read_text(errors='replace')

    @property
    def url(self):
        return 'http://127.0.0.1:%d' % self.port

    def cpu_seconds(self, leave_out=()):
        """User and system time of all threads but those named, so far."""
        total = 0
        for task in pathlib.Path('/proc/%d/task' % self.pid).iterdir():
            if (task / 'comm').read_text().strip() not in leave_out:
                total += int((task / 'schedstat').read_text().split()[0])
        return total / 1e9

    def rss_kib(self):
        status = pathlib.Path('/proc/%d/status' % self.pid).read_text()
        return int(re.search(r'VmRSS:\s+(\d+)', status).group(1))

    def num_files(self):
        return len(list(pathlib.Path('/proc/%d/fd' % self.pid).iterdir()))

    def metric(self, name, **labels):
        """The sum over the series of a family that carry these labels."""
        with urllib.request.urlopen(self.url + '/metrics', timeout=30) as answer:
            text = answer.read().decode()
        total, found = 0.0, False
        for line in text.splitlines():
            match = re.fullmatch(r'([a-zA-Z_:]+)(?:\{(.*)\})? (\S+)', line)
            if not match or match.group(1) != name:
                continue
            series = dict(re.findall(r'(\w+)="([^"]*)"', match.group(2) or ''))
            if all(series.get(key) == value for key, value in labels.items()):
                total, found = total + float(match.group(3)), True
        if not found:
            raise KeyError('%s%r is not in /metrics' % (name, labels))
        return total


class Programs:
    """Where the built programs are, and a folder for their logs."""

    def __init__(self, build, source, node):
        self.build, self.source, self.node = pathlib.Path(build), pathlib.Path(source), node
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix='assay-soak-'))
        self.model = self.source / 'models/assay-demo-Q4_K_M.gguf'
        self.num_started = 0

    def _log(self):
        self.num_started += 1
        return self.folder / ('%d.log' % self.num_started)

    def assayd(self, **settings):
        """@param settings  key=value of the configuration; `__` stands for the dot, values are TOML"""
        port = run_with_daemon.free_port()
        configuration = self.folder / 'assayd.toml'
        lines = ['%s=%s' % (key.replace('__', '.'), value) for key, value in settings.items()]
        run_with_daemon.write_configuration(configuration, port,
                                            types.SimpleNamespace(model=self.model, set=lines))
        program = Program([str(self.build / 'bin/assayd'), '--config', str(configuration)], self._log())
        program.port = port
        problem = run_with_daemon.wait_until_ready(program.process, program.url, READY_TIMEOUT_S)
        if problem:
            log = program.log()[-4000:]
            program.__exit__()
            raise RuntimeError(problem + '\n' + log)
        return program

    def null_engine(self, tokens_per_second, *options):
        return Program([str(self.build / 'tests/null_engine'), '--tokens-per-second', str(tokens_per_second),
                        *options], self._log()).wait_for_port()

    def bare_sender(self, num_connections, seconds):
        return Program([str(self.build / 'tests/bare_sender'), str(num_connections), str(seconds)],
                       self._log()).wait_for_port()

    def peer(self, tokens_per_second):
        return Program([self.node, str(self.source / 'tests/clients/peer_server.mjs'), str(tokens_per_second)],
                       self._log()).wait_for_port()

    def start_load(self, program, model, *options):
        return subprocess.Popen([str(self.build / 'bin/load'), '--address', '127.0.0.1:%d' % program.port,
                                 '--model', model, *map(str, options)], stdout=subprocess.PIPE, text=True)

    def load(self, program, model, *options):
        """The figures of one run of tools/load."""
        return finish_load(self.start_load(program, model, *options))


def finish_load(process, timeout=900):
    out, _ = process.communicate(timeout=timeout)
    if process.returncode != 0:
        raise RuntimeError('load ended with status %d' % process.returncode)
    return json.loads(out)
