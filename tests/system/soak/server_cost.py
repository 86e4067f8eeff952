"""What the server costs, with an engine that computes nothing (tests/system/null_engine). The load generator
shares the machine; its own cost is shown beside."""

import time

from programs import finish_load

LEAVE_OUT = ('engine',)  # the null engine's thread
FOREVER = ('--max-output-tokens', 1000000)


def measured(programs, program, model, clients, duration, *options, warm_up=None):
    """@return  figures of tools/load, and the server's CPU seconds within the time that counts"""
    warm_up = warm_up or 2 + clients / 1000
    process = programs.start_load(program, model, '--clients', clients, '--warm-up', warm_up, '--duration', duration,
                                  *options)
    time.sleep(warm_up)
    before = program.cpu_seconds(LEAVE_OUT)
    time.sleep(duration - 0.2)
    cpu = (program.cpu_seconds(LEAVE_OUT) - before) * duration / (duration - 0.2)
    return finish_load(process), cpu


def show_own_cost(report, figures):
    report.figure('load generator itself, CPU a frame', figures['own_cost']['cpu_us_per_frame'], 'us')


def step_latency(programs, report):
    with programs.null_engine(50) as server:
        figures, cpu = measured(programs, server, 'null', 64, 10, '--stamps', *FOREVER)
        events = figures['throughput']['events_per_s'] * figures['seconds']
        report.figure('streams', figures['settings']['clients'])
        report.figure('server CPU a token event', cpu / events * 1e6, 'us', at_most=15)
        report.figure('from step to last byte of 64 streams, p50', figures['last_byte_ms']['p50'], 'ms')
        report.figure('from step to last byte of 64 streams, p99', figures['last_byte_ms']['p99'], 'ms', at_most=2)
        show_own_cost(report, figures)


def throughput(programs, report, clients=2000, duration=10):
    with programs.bare_sender(clients, duration + 6) as sender:
        bare = programs.load(sender, 'null', '--clients', clients, '--warm-up', 4, '--duration', duration, *FOREVER)
    bare_rate = bare['throughput']['frames_per_s']
    report.figure('bare send loop: frames/s', bare_rate)
    with programs.peer(60) as peer:
        figures, cpu = measured(programs, peer, 'null', clients, duration, *FOREVER)
        peer_rate = figures['throughput']['events_per_s']
        report.figure('peer (npm ws on Node.js): events/s', peer_rate)
        report.figure('peer: CPU an event', cpu / max(1, peer_rate * duration) * 1e6, 'us')
    with programs.null_engine(25) as server:
        figures, cpu = measured(programs, server, 'null', clients, duration, '--stamps', *FOREVER)
        rate = figures['throughput']['events_per_s']
        report.figure('one frame a token: tokens a frame', figures['throughput']['tokens_per_s'] / rate, at_most=1.02)
        report.figure('one frame a token: events/s', rate, at_least=40000)
        report.figure('one frame a token: server CPU an event', cpu / (rate * duration) * 1e6, 'us', at_most=15)
        report.figure('one frame a token: as a share of the bare loop', rate / bare_rate)
        report.figure('one frame a token: as a multiple of the peer', rate / peer_rate, at_least=1)
        report.figure('one frame a token: age on arrival, p99', figures['token_age_ms']['p99'], 'ms')
        show_own_cost(report, figures)
    with programs.null_engine(60) as server:
        figures, cpu = measured(programs, server, 'null', clients, duration, '--stamps', *FOREVER)
        rate = figures['throughput']['tokens_per_s']
        report.figure('merging under pressure: tokens/s', rate, at_least=100000)
        report.figure('merging under pressure: tokens a frame', rate / figures['throughput']['events_per_s'])
        report.figure('merging under pressure: tokens/s as a share of the bare loop', rate / bare_rate)
        report.figure('merging under pressure: server CPU a token', cpu / (rate * duration) * 1e6, 'us')
        report.figure('merging under pressure: age on arrival, p99', figures['token_age_ms']['p99'], 'ms')


def idle_memory(programs, report, clients=10000):
    with programs.null_engine(20) as server:
        programs.load(server, 'null', '--clients', 200, '--requests', 1, '--max-output-tokens', 8, '--warm-up', 0,
                      '--duration', 20)  # until arenas have their size
        before = server.rss_kib()
        process = programs.start_load(server, 'null', '--idle', '--clients', clients, '--connect-rate', 2000,
                                      '--warm-up', 1, '--duration', 14)
        time.sleep(12)
        growth = server.rss_kib() - before
        connected = finish_load(process)['connected']
        report.figure('idle connections', connected, equals=clients)
        report.figure('memory an idle connection', growth / max(1, connected), 'KiB', at_most=32)


def stalled_readers(programs, report, clients=500):
    budget_kib = 256
    with programs.null_engine(100) as server:
        def neighbours():
            return programs.load(server, 'null', '--stamps', '--clients', 16, '--warm-up', 1, '--duration', 5,
                                 *FOREVER)['itl_ms']['p99']
        alone = neighbours()
        before = server.rss_kib()
        process = programs.start_load(server, 'null', '--clients', clients, '--slow', 1, '--warm-up', 1,
                                      '--duration', 45, *FOREVER)
        time.sleep(28)
        early = server.rss_kib()
        beside = neighbours()
        time.sleep(5)
        late = server.rss_kib()
        finish_load(process)
        report.figure('stalled readers', clients)
        report.figure('memory a stalled reader', (late - before) / clients, 'KiB', at_most=2 * budget_kib)
        report.figure('growth once they have stalled', (late - early) / 1024, 'MiB', at_most=5)
        report.figure('neighbours: ITL p99 without them', alone, 'ms')
        report.figure('neighbours: ITL p99 beside them', beside, 'ms', at_most=max(2 * alone, alone + 10))
