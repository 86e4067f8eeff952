#!/usr/bin/env python3
"""Hands every malformed file of tests/golden/gguf-bad to `assayctl audit` and to `assayctl inspect`, which prints all
of its metadata: each is refused with status 65 and one line that says why, or accepted. None takes more than 64 MiB,
or more than 100 ms of processor time above what any run takes to start."""

import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

BAD_MODEL = 65
MAX_SECONDS = 0.1
MAX_BYTES = 64 << 20


def run(program, command, path):
    process = subprocess.Popen([program, command, str(path)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True, errors='replace')
    with process.stderr:
        said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, said, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--assayctl', required=True)
    parser.add_argument('--files', required=True, type=pathlib.Path, help='the unpacked folder with its manifest')
    parser.add_argument('--unlimited', action='store_true', help='do not judge time and memory (sanitizers)')
    arguments = parser.parse_args()
    rows = json.loads((arguments.files / 'manifest.json').read_text())['files']
    failures = []
    slowest = largest = 0
    jobs = [(row, command) for row in rows for command in ('audit', 'inspect')]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda job: run(arguments.assayctl, job[1], arguments.files / job[0]['file']), jobs))
        start = sorted(seconds for _, _, seconds, _ in results)[len(results) // 2]  # of all runs: the median
        for (row, command), (code, said, seconds, resident) in zip(jobs, results):
            name = command + ' ' + row['file']
            lines = said.splitlines()
            if code not in (0, BAD_MODEL):
                failures.append('%s: exit status %d\n%s' % (name, code, said))
            # What only the model code can know is not looked at by inspect.
            if row['expect'].startswith('reject') and code != BAD_MODEL and (command == 'audit' or
                                                                             row['layer'] == 'container'):
                failures.append('%s: accepted, expected %s' % (name, row['expect']))
            if code == BAD_MODEL and (not lines or not lines[0].startswith('assayctl: ')):
                failures.append('%s: no diagnosis: %r' % (name, said))
            if not arguments.unlimited and seconds > start + MAX_SECONDS:
                failures.append('%s: %.0f ms of processor time' % (name, seconds * 1e3))
            if not arguments.unlimited and resident > MAX_BYTES:
                failures.append('%s: %.0f MiB' % (name, resident / 2**20))
            slowest, largest = max(slowest, seconds), max(largest, resident)
    print('%d files; at most %.0f ms, half of the runs %.0f ms; at most %.0f MiB' %
          (len(rows), slowest * 1e3, start * 1e3, largest / 2**20))
    for failure in failures:
        print('FAILED', failure)
    if len(rows) != 167:
        failures.append('167 files')
    return 1 if failures else 0


if __name__ == '__main__':
    sys.exit(main())
