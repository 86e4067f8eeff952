#!/usr/bin/env python3
"""The support table of the README, made from the code: what `assayctl support` says, and which models
and blocks of tests/golden each row was verified with.

Without --write it fails when the README says something else, and prints the difference.
"""

import argparse
import difflib
import json
import pathlib
import re
import subprocess
import sys

BEGIN = '<!-- support table: written by tests/system/support_table.py --write -->\n'
END = '<!-- end of support table -->\n'


def inspect(assayctl, model):
    """Architecture and tensor formats of a model file."""
    text = subprocess.run([assayctl, 'inspect', str(model)], check=True, capture_output=True, text=True).stdout
    architecture = re.search(r'general\.architecture\s+string\s+"([^"]+)"', text).group(1)
    return architecture, re.findall(r'^  (\S+) +\d+ tensors', text, re.MULTILINE)


def evidence(assayctl, build, source):
    """By architecture and by format: the models whose logits are compared in CI."""
    architectures, formats = {}, {}
    golden = source / 'tests' / 'golden'
    models = {p.name: build / 'goldens' / p.name / 'model-bf16.gguf' for p in sorted((golden / 'models').iterdir())}
    models.update({p.name[:-len('.gguf.xz')]: build / 'quantized' / p.name[:-len('.xz')]
                   for p in sorted((golden / 'quantized').glob('*.gguf.xz'))})
    models['demo'] = source / 'models' / 'assay-demo-Q4_K_M.gguf'
    for name, path in models.items():
        architecture, used = inspect(assayctl, path)
        architectures.setdefault(architecture, []).append(name)
        for one in used:
            formats.setdefault(one, []).append(name)
    return architectures, formats


def table(support, build, source, assayctl):
    architectures, formats = evidence(assayctl, build, source)
    devices = sorted({quant['device'] for quant in support['quants']})
    lines = ['| architecture | device | logits verified in CI with |', '| --- | --- | --- |']
    for name in support['architectures']:
        cases = architectures.get(name, [])
        lines.append('| `%s` | %s | %s |' % (name, ', '.join(devices), ', '.join(cases) if cases else '**nothing**'))
    lines += ['', 'Every architecture with every format:', '',
              '| format | bits a weight | device | blocks decoded | in models |', '| --- | --- | --- | --- | --- |']
    blocks = {p.name.split('.')[0] for p in (build / 'goldens' / 'quants').glob('*.blocks.bin')}
    for quant in support['quants']:
        for one in quant['formats']:
            if not one['multiplies']:
                continue
            cases = formats.get(one['id'], [])
            shown = ', '.join(cases) if len(cases) <= 3 else '%d models' % len(cases)
            lines.append('| %s | %s | %s | %s | %s |' % (
                one['id'].upper(), ('%.4f' % one['bits_per_weight']).rstrip('0').rstrip('.'), quant['device'],
                'bit for bit' if one['id'] in blocks else '**no**', shown or '–'))
        read = [one['id'].upper() for one in quant['formats'] if not one['multiplies']]
        if read:
            lines += ['', 'Decoded, but no weights of a matrix: ' + ', '.join(read) + '.']
    return '\n'.join(lines) + '\n'


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n\n')[0])
    parser.add_argument('--assayctl', required=True)
    parser.add_argument('--build', required=True, type=pathlib.Path, help='build folder with the unpacked goldens')
    parser.add_argument('--source', required=True, type=pathlib.Path)
    parser.add_argument('--write', action='store_true', help='write the table into the README')
    arguments = parser.parse_args()
    output = subprocess.run([arguments.assayctl, 'support', '--json'], check=True, capture_output=True, text=True).stdout
    wanted = table(json.loads(output), arguments.build, arguments.source, arguments.assayctl)
    readme = arguments.source / 'README.md'
    text = readme.read_text()
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    if arguments.write:
        readme.write_text(text[:begin] + '\n' + wanted + '\n' + text[end:])
        return 0
    if '**nothing**' in wanted or '**no**' in wanted:
        print('something is offered that nothing verifies:\n' + wanted)
        return 1
    found = text[begin:end].strip() + '\n'
    sys.stdout.writelines(difflib.unified_diff(found.splitlines(True), wanted.splitlines(True), 'README', 'code'))
    return 0 if found == wanted else 1


if __name__ == '__main__':
    sys.exit(main())
