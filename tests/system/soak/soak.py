#!/usr/bin/env python3
"""Runs the checks that scripts/soak is for and prints each figure. Exit status 1 when one misses its bound."""

import argparse
import platform
import os
import sys

import serving
import server_cost
from programs import Programs, raise_file_limit
from report import Report

CHECKS = {  # name: title, function
    'invariance': ('Batch invariance: streams beside others, cancels and preemptions', serving.batch_invariance),
    'aborts': ('Clients that connect, generate and leave', serving.abort_cycles),
    'prefix': ('Prefix cache: the second turn of a conversation', serving.prefix_cache),
    'batching': ('Aggregate throughput of the demo model', serving.batching),
    'latency': ('A step of 64 streams, null engine', server_cost.step_latency),
    'throughput': ('2,000 streams, null engine', server_cost.throughput),
    'idle': ('10,000 idle connections, null engine', server_cost.idle_memory),
    'stalled': ('500 readers that read nothing, null engine', server_cost.stalled_readers),
}
BRIEF = {  # in tests: what does not depend on the machine's speed, with smaller numbers
    'invariance': lambda programs, report: serving.batch_invariance(programs, report, num_streams=32),
    'aborts': lambda programs, report: serving.abort_cycles(programs, report, num_cycles=160, is_memory_bounded=False),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--build', required=True, help='build folder of the release preset')
    parser.add_argument('--source', required=True, help='the repository')
    parser.add_argument('--node', default='node', help='Node.js 20 or newer')
    parser.add_argument('--brief', action='store_true', help='smaller numbers, nothing that depends on time or on the allocator')
    parser.add_argument('checks', nargs='*', metavar='CHECK', help='of: ' + ', '.join(CHECKS))
    arguments = parser.parse_args()
    unknown = [name for name in arguments.checks if name not in CHECKS]
    if unknown:
        parser.error('no check is called %s' % ', '.join(unknown))
    raise_file_limit()
    programs, report = Programs(arguments.build, arguments.source, arguments.node), Report()
    print('%d cores, %s' % (os.cpu_count(), platform.platform()))
    for name in arguments.checks or (BRIEF if arguments.brief else CHECKS):
        title, check = CHECKS[name]
        report.section(title)
        try:
            (BRIEF[name] if arguments.brief else check)(programs, report)
        except Exception as error:  # the other checks still run, and this one counts
            report.broken(name, error)
    return report.end()


if __name__ == '__main__':
    sys.exit(main())
