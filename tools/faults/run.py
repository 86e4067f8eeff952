#!/usr/bin/env python3
"""Runs the table of faults against the proof: each must be refused by its level, with the culprit named."""

import argparse
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / 'tests' / 'system'))

import files  # noqa: E402
import table  # noqa: E402
from gguf_file import GgufFile  # noqa: E402

# What became of a fault. Only the first is what is wanted; "not run" is no success either.
CAUGHT, OTHER_LEVEL, UNNAMED, MISSED, NOT_RUN = 'caught', 'other level', 'not named', 'MISSED', 'not run'
# The same model is refused without the fault too, so that a refusal says nothing of it.
NO_CONTROL = 'no control'
LEVELS = (table.RESOLVE, table.AUDIT, table.KERNELS, table.MODEL, table.COHERENCE, table.WATCH)


@dataclasses.dataclass
class Outcome:
    verdict: str
    level: str = ''
    culprit: str = ''
    seconds: float = 0


@dataclasses.dataclass
class Answer:
    """Of one assayctl."""
    status: int
    out: str
    err: str
    seconds: float


class Bench:
    def __init__(self, build, folder, timeout):
        self.build, self.folder, self.timeout = pathlib.Path(build).resolve(), pathlib.Path(folder), timeout
        self.calibrations, self.controls = {}, {}

    # ---- files ----------------------------------------------------------------------------------

    def original(self, name):
        if name == table.DEMO:
            return ROOT / 'models' / 'assay-demo-Q4_K_M.gguf'
        if name in table.VARIANTS:
            return self.edited(*table.VARIANTS[name])
        return self.build / 'goldens' / name / 'model-bf16.gguf'

    def edited(self, name, edit):
        path = self.folder / ('%s.%s.gguf' % (name, edit))
        if not path.exists():
            file = GgufFile(self.original(name))
            files.MUTATIONS[edit](file)
            file.write(path)
        return path

    def model(self, fault):
        return self.edited(fault.model, fault.edit) if fault.edit else self.original(fault.model)

    def calibrate(self, model):
        """The calibration of a file, made once."""
        if model not in self.calibrations:
            path = self.folder / (model.name + '.calibration.json')
            answer = self.assayctl('calibrate', '-c', self.configuration(model), '--out', path, '--note', 'for the faults')
            if answer.status != 0:
                raise SystemExit('%s cannot be calibrated: %s' % (model, answer.err))
            self.calibrations[model] = path
        return self.calibrations[model]

    def calibration(self, fault):
        """The options that name what judges the model."""
        if not fault.calibrated:
            return ()
        before = self.calibrate(self.original(fault.model))
        if fault.calibrated == 'file':
            return '--calibration', before
        record, after = json.loads(before.read_text()), json.loads(self.calibrate(self.model(fault)).read_text())
        record.update({key: after[key] for key in ('model_hash', 'tensors')})
        path = self.folder / (fault.id + '.calibration.json')
        path.write_text(json.dumps(record))
        return '--calibration', path

    def configuration(self, model, fault=None, **settings):
        values = {'model.path': str(model), 'kv.max_tokens': 4096,
                  'plugins.folders': [str(self.build / 'plugins'), str(self.build / 'faults')]}
        if fault is not None:
            if fault.part == 'attention':
                values.update({'backends.attention.prefill': 'faulty', 'backends.attention.decode': 'faulty'})
            elif fault.part:
                values['backends.' + fault.part] = ['faulty'] if fault.part == 'quant' else 'faulty'
            if fault.part:
                values['backends.options.faulty.fault'] = fault.fault
            values.update({'backends.options.faulty.' + key: value for key, value in fault.options})
            values.update({key: [value] if key == 'backends.quant' else value for key, value in fault.settings})
        values.update(settings)
        # The literals of JSON that are used here are those of TOML.
        text = ''.join('%s = %s\n' % (key, json.dumps(value)) for key, value in values.items())
        handle, path = tempfile.mkstemp(suffix='.toml', dir=self.folder)
        with os.fdopen(handle, 'w') as stream:
            stream.write(text)
        return path

    # ---- programs -------------------------------------------------------------------------------

    def assayctl(self, *words):
        """Never raises for what the program does; a timeout is status None."""
        begin = time.monotonic()
        clean = {k: v for k, v in os.environ.items() if not k.startswith('ASSAY_')}
        try:
            done = subprocess.run([self.build / 'bin' / 'assayctl', *map(str, words)], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=self.timeout, check=False,
                                  env=clean)
        except subprocess.TimeoutExpired:
            return Answer(None, '', 'no answer within %d s' % self.timeout, time.monotonic() - begin)
        return Answer(done.returncode, done.stdout.decode(errors='replace'), done.stderr.decode(errors='replace'),
                      time.monotonic() - begin)

    def assay(self, fault):
        return self.assayctl('assay', '-c', self.configuration(self.model(fault), fault), '--json', *self.calibration(fault))

    def control(self, fault):
        """How far the same model comes without the fault: the level that refuses it, or '' when none does."""
        key = fault.model, bool(fault.calibrated)
        if key not in self.controls:
            model = self.original(fault.model)
            judged_by = ('--calibration', self.calibrate(model)) if fault.calibrated else ()
            answer = self.assayctl('assay', '-c', self.configuration(model), '--json', *judged_by)
            self.controls[key] = '' if answer.status == 0 else diagnosis_of(answer)[0] or table.RESOLVE
        return self.controls[key]


def diagnosis_of(answer):
    """The level that refused and the words that name the culprit."""
    try:
        report = json.loads(answer.out)
    except ValueError:
        report = {}
    for check in report.get('checks', []):
        if check['verdict'] == 'failed':
            return check['level'], report.get('diagnosis', '')
    said = [line for line in answer.err.splitlines() if 'assayctl: ' in line]
    words = answer.err[answer.err.find('assayctl: '):] if said else answer.err
    level = {78: table.RESOLVE, 65: table.AUDIT}.get(answer.status, '')
    return level, report.get('diagnosis') or ' '.join(words.split())


def judge(fault, answer):
    level, words = diagnosis_of(answer)
    said = Outcome('', level, words, answer.seconds)
    if answer.status == 0:
        said.verdict = MISSED
    elif answer.status is None or answer.status < 0:
        said.verdict, said.culprit = MISSED, answer.err if answer.status is None else 'died of signal %d' % -answer.status
    elif level != fault.level or answer.status != table.STATUS[fault.level]:
        said.verdict = OTHER_LEVEL
        said.level = '%s (%d)' % (level or '?', answer.status)
    else:
        said.verdict = CAUGHT if re.search(fault.culprit, words) else UNNAMED
    return said


def short(text, width):
    text = ' '.join(text.split())
    return text if len(text) <= width else text[:width - 1] + '…'


def run_faults(bench, faults):
    results = []
    print('%-38s %-10s %-11s %7s  %s' % ('fault', 'expected', 'outcome', 'time', 'culprit named'))
    for fault in faults:
        if fault.level == table.WATCH:
            outcome = Outcome(NOT_RUN, culprit='needs a daemon that watches itself')
        else:
            outcome = judge(fault, bench.assay(fault))
            reached = bench.control(fault)
            if reached and LEVELS.index(reached) <= LEVELS.index(fault.level):
                outcome.verdict = NO_CONTROL
        results.append((fault, outcome))
        level = '' if outcome.verdict in (CAUGHT, NOT_RUN, MISSED) else '[at %s] ' % outcome.level
        print('%-38s %-10s %-11s %6.1f s  %s' % (fault.id, fault.level, outcome.verdict, outcome.seconds,
                                                 short(level + outcome.culprit, 150)), flush=True)
    return results


def summary(results):
    count = {verdict: sum(o.verdict == verdict for _, o in results)
             for verdict in (CAUGHT, OTHER_LEVEL, UNNAMED, MISSED, NO_CONTROL, NOT_RUN)}
    print('\n' + ', '.join('%d %s' % (n, verdict) for verdict, n in count.items()) + ' of %d faults' % len(results))
    for fault, outcome in results:
        if outcome.verdict not in (CAUGHT, NOT_RUN):
            print('  %s: %s (%s)' % (outcome.verdict, fault.id, fault.what))
    return count[CAUGHT] + count[NOT_RUN] == len(results)


def select(words, is_fast):
    """Rows whose id holds one of the words; all without words."""
    chosen = [f for f in table.FAULTS if not words or any(word in f.id for word in words)]
    return [f for f in chosen if f.fast] if is_fast else chosen


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('words', nargs='*', metavar='WORD', help='only faults whose id holds it')
    parser.add_argument('--build', default=ROOT / 'build' / 'release', help='the build that is tried')
    parser.add_argument('--fast', action='store_true', help='the rows that every test run has')
    parser.add_argument('--timeout', type=int, default=180, help='seconds for one program')
    parser.add_argument('--json', type=pathlib.Path, help='write the outcomes to this file')
    parser.add_argument('--keep', type=pathlib.Path, help='a folder for changed models and configurations')
    parser.add_argument('--list', action='store_true', help='print the table and run nothing')
    arguments = parser.parse_args()
    faults = select(arguments.words, arguments.fast)
    if not faults:
        parser.error('no fault is called so')
    if arguments.list:
        for fault in faults:
            print('%-38s %-10s %-14s %-18s %s' % (fault.id, fault.level, fault.model, fault.reports, fault.what))
        return 0
    with tempfile.TemporaryDirectory(prefix='assay-faults-') as temporary:
        if arguments.keep:
            arguments.keep.mkdir(parents=True, exist_ok=True)
        results = run_faults(Bench(arguments.build, arguments.keep or temporary, arguments.timeout), faults)
    if arguments.json:
        arguments.json.write_text(json.dumps([dict(dataclasses.asdict(o), id=f.id, expected=f.level)
                                              for f, o in results], indent=1) + '\n')
    return 0 if summary(results) else 1


if __name__ == '__main__':
    sys.exit(main())
