"""What must hold of the real daemon with the demo model: nothing lost, nothing leaked, nothing changed by
neighbours."""

import http.client
import json
import subprocess
import time

MODEL = 'assay-demo'


def batch_invariance(programs, report, num_streams=64):
    # Room for a part of the streams: the others' KV blocks are taken from them now and then.
    with programs.assayd(kv__max_tokens='512') as daemon:
        run = subprocess.run([programs.node, str(programs.source / 'tests/clients/invariance_ws.mjs'), daemon.url,
                              str(num_streams)], stdout=subprocess.PIPE, text=True, check=True, timeout=900)
        figures = json.loads(run.stdout)
        report.figure('streams compared with their solo runs, token for token', figures['compared'], at_least=1)
        report.figure('streams that differ', figures['different'], equals=0)
        report.figure('tokens compared', figures['tokens'])
        report.figure('streams cancelled or dropped in the middle', figures['left'], at_least=1)
        report.figure('preemptions meanwhile', daemon.metric('assay_preemptions_total'), at_least=1)


def abort_cycles(programs, report, num_cycles=1000, is_memory_bounded=True):
    # A small KV cache, whose pages are all resident soon: what grows then is a leak.
    with programs.assayd(kv__max_tokens='2048') as daemon:
        def cycle(count):
            return programs.load(daemon, MODEL, '--clients', 8, '--requests', (count + 7) // 8, '--abort', 1,
                                 '--warm-up', 0, '--duration', 800)['requests']['aborted']

        def live():
            return daemon.metric('assay_requests_running') + daemon.metric('assay_requests_waiting')

        def settle():
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline and (live() or blocks('used')):
                time.sleep(0.1)

        def num_files():
            time.sleep(0.5)  # until the connection of the last look at /metrics has gone
            return daemon.num_files()

        def blocks(state):
            return daemon.metric('assay_kv_blocks', state=state)

        free_at_start, files_at_start = blocks('free') + blocks('cached'), num_files()
        cycle(max(80, num_cycles // 5))  # until buffers, arenas and the prefix cache have their size
        settle()
        rss_at_start = daemon.rss_kib()
        aborted = cycle(num_cycles)
        settle()
        report.figure('cycles of connect, generate, abort', aborted, at_least=num_cycles * 0.9)
        report.figure('live requests', live(), equals=0)
        report.figure('KV blocks in use', blocks('used'), equals=0)
        report.figure('KV blocks free or cached, less than at start', free_at_start - blocks('free') - blocks('cached'),
                      equals=0)
        report.figure('file descriptors, more than at start', num_files() - files_at_start, at_most=0)
        report.figure('RSS growth', (daemon.rss_kib() - rss_at_start) / 1024, 'MiB',
                      at_most=5 if is_memory_bounded else None)


def first_token_ms(daemon, messages):
    """@return  milliseconds to the first chunk with text, and the whole answer"""
    connection = http.client.HTTPConnection('127.0.0.1', daemon.port, timeout=120)
    body = json.dumps({'model': MODEL, 'messages': messages, 'max_tokens': 16, 'temperature': 0, 'stream': True})
    begin = time.monotonic()
    connection.request('POST', '/v1/chat/completions', body, {'Content-Type': 'application/json'})
    answer = connection.getresponse()
    if answer.status != 200:
        raise RuntimeError('%d %s' % (answer.status, answer.read()[:500]))
    first, text = None, ''
    for line in answer:
        if not line.startswith(b'data: {'):
            continue
        for choice in json.loads(line[6:]).get('choices', []):
            piece = choice['delta'].get('content') or ''
            if piece and first is None:
                first = (time.monotonic() - begin) * 1000
            text += piece
    connection.close()
    if first is None:
        raise RuntimeError('an answer without text')
    return first, text


def prefix_cache(programs, report, num_tries=5):
    with programs.assayd() as daemon:
        first_token_ms(daemon, [{'role': 'user', 'content': 'Hello.'}])  # whatever is lazy
        shares, firsts, seconds = [], [], []
        for number in range(num_tries):  # each a conversation of its own
            story = 'Story %d. ' % number + 'The fox went to the river and the girl saw the fox. ' * 72
            messages = [{'role': 'user', 'content': story}]
            first, text = first_token_ms(daemon, messages)
            messages += [{'role': 'assistant', 'content': text}, {'role': 'user', 'content': 'And then?'}]
            second, _ = first_token_ms(daemon, messages)
            shares.append(second / first)
            firsts.append(first)
            seconds.append(second)
        middle = num_tries // 2
        prompt = daemon.metric('assay_prefix_cache_queries_tokens_total') / (2 * num_tries)
        report.figure('prompt tokens of a turn, mean', prompt, at_least=900)
        report.figure('TTFT of the first turn, median', sorted(firsts)[middle], 'ms')
        report.figure('TTFT of the second turn, median', sorted(seconds)[middle], 'ms')
        report.figure('second turn as a share of the first, median', sorted(shares)[middle], at_most=0.15)


def batching(programs, report):
    with programs.assayd() as daemon:
        def rate(clients):
            figures = programs.load(daemon, MODEL, '--clients', clients, '--max-output-tokens', 128, '--warm-up', 2,
                                    '--duration', 10, '--prompt', 'Tell me a story about a fox.')
            if figures['requests']['failed']:
                raise RuntimeError('failed requests: %r' % figures['requests']['failed'])
            return figures['throughput']['tokens_per_s']
        one, eight = rate(1), rate(8)
        report.figure('tokens/s of one client', one)
        report.figure('tokens/s of eight clients', eight)
        report.figure('eight as a multiple of one', eight / one, at_least=3)
