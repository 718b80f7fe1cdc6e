#!/usr/bin/env python3
"""report.py RAW.jsonl FLOORS.txt -> BENCH.md on stdout: castctl, the best peer and
the floor for each target. What is said about the misses is in misses.md."""
import json, os, pathlib, re, subprocess, sys, time

HERE = pathlib.Path(__file__).resolve().parent
recs = {}
for line in open(sys.argv[1]):
    d = json.loads(line)
    if 'error' not in d['r']:
        recs[(d['adapter'], d['measure'], d['n'])] = d['r']  # the last one stands
floors = open(sys.argv[2]).read() if len(sys.argv) > 2 else ''
PEERS = sorted({a for a, _, _ in recs} - {'castctl'})


def floor(pattern, k=1.0):
    m = re.search(pattern, floors)
    return float(m.group(1)) * k if m else None


SPAWN = floor(r'os/exec Run us: min \d+ p50 (\d+)', 1e-3)
COPY = floor(r'io.Copy 64K[^\n]*?(\d+(?:\.\d+)?) MB/s')
COMMIT = floor(r'1 key per Update:? ms:? p50 (\d+\.\d+)')


def get(r, path):
    for p in path.split('.'):
        if r is None: return None
        r = r.get(p)
    return r


def num(x):
    if x is None: return '–'
    return f'{x:.0f}' if abs(x) >= 100 else f'{x:.1f}' if abs(x) >= 10 else f'{x:.2f}' if abs(x) >= 0.005 or x == 0 else f'{x:.4f}'


# measure, n, field, factor, what, unit, target, how a smaller or larger one is better, floor
ROWS = [
    ('crash', 100, 'restart_ms.median', 1, 'kill -9 of an agent → runs again', 'ms', 1.6, min, SPAWN, 'one spawn'),
    ('crashloop', 100, 'worst', 1, 'the same again at once, 8 times: the worst', 'ms', 5, min, SPAWN, 'one spawn'),
    ('start', 100, 'all_running_s.median', 1e3, 'start 100 from nothing', 'ms', 450, min, SPAWN and SPAWN * 100, '100 spawns'),
    ('single', 100, 'child_runs_ms.median', 1, 'start one more of 100, cold command → agent runs', 'ms', 13, min, SPAWN and SPAWN * 3, 'three spawns: command, host, agent'),
    ('status', 100, 'cli_ms.median', 1, 'status of 100, cold command', 'ms', 4, min, SPAWN, 'one spawn'),
    ('status', 500, 'cli_ms.median', 1, 'status of 500, cold command', 'ms', 6, min, SPAWN, 'one spawn'),
    ('status', 100, 'rpc_ms.median', 1, 'status of 100, RPC', 'ms', 0.3, min, None, ''),
    ('status', 500, 'rpc_ms.median', 1, 'status of 500, RPC', 'ms', 1, min, None, ''),
    ('mem', 100, 'helper_pss_kib', 1 / 102400, 'memory of each helper (ours: host), 100 at once, PSS', 'MiB', 1.3, min, None, ''),
    ('mem', 100, 'main_pss_kib', 1 / 1024, 'memory of the supervisor at 100, PSS', 'MiB', 12 + 1.5, min, None, ''),
    ('mem', 100, 'pss_kib', 1 / 1024, 'manager and helpers together at 100, PSS', 'MiB', None, min, None, ''),
    ('log', 1, 'MBps.median', 1, 'captured output, 64 KiB writes', 'MB/s', 600, max, COPY, 'copy of a pipe into a file'),
    ('log', 1, 'cpu_s_per_GB.median', 1, 'CPU for it', 's/GB', 1.3, min, None, ''),
    ('logl', 1, 'MBps.median', 1, 'captured output, a write per line', 'MB/s', 140, max, None, ''),
    ('logl', 1, 'cpu_s_per_GB.median', 1, 'CPU for it', 's/GB', 7, min, None, ''),
    ('stop', 100, 'all_dead_s.median', 1e3, 'stop 100: until none is left', 'ms', 50, min, None, ''),
    ('idle', 100, 'cpu_pct_of_one_core', 1, 'idle CPU at 100', '% of a core', 0.02, min, None, ''),
    ('idlelog', 100, 'cpu_pct_of_one_core', 1, 'CPU at 100 that write a line a second', '% of a core', 0.4, min, None, ''),
]


def value(a, row):
    m, n, field, k = row[:4]
    r = recs.get((a, m, n))
    if r is None: return None
    if field == 'worst':
        g = r['gaps_ms']
        return max(g) if g and None not in g else None
    v = get(r, field)
    return None if v is None else v * k


def targets():
    print('| measure | unit | target | castctl | best peer | floor | ours ÷ best peer | ours ÷ floor | met |')
    print('|---|---|---|---|---|---|---|---|---|')
    for row in ROWS:
        *_, what, unit, target, better, fl, flname = row
        ours = value('castctl', row)
        peers = [(value(p, row), p) for p in PEERS]
        peers = [x for x in peers if x[0] is not None and not (x[1] == 'systemd' and row[0] == 'single')]
        best = better(peers) if peers else None
        ok = '' if target is None or ours is None else 'yes' if (ours <= target if better is min else ours >= target) else '**no**'
        sign = '' if target is None else ('≤ ' if better is min else '≥ ') + f'{target:g}'
        print('| ' + ' | '.join([what, unit, sign, num(ours), f'{num(best[0])} ({best[1]})' if best else '–',
                                  f'{num(fl)} ({flname})' if fl else '–', num(ours / best[0]) if ours is not None and best and best[0] else '–',
                                  num(ours / fl) if ours is not None and fl else '–', ok]) + ' |')


def promises():
    print('| after | ' + ' | '.join(['castctl'] + PEERS) + ' |')
    print('|---' * (len(PEERS) + 2) + '|')
    def cells(what, fn):
        print(f'| {what} | ' + ' | '.join(fn(a) or '–' for a in ['castctl'] + PEERS) + ' |')
    def killed(m):
        def fn(a):
            r = recs.get((a, m, 10))
            if not r: return None
            w = r['after_restart']
            return f"{w['original_alive']} old + {w['new_starts']} new, {w['alive']} alive"
        return fn
    cells('kill -9 of the manager and its restart, 10 agents', killed('killmgr'))
    cells('kill -9 of all helpers, 10 agents', killed('killhelper'))
    for mode, what in (('gf', 'forked'), ('df', 'double-forked, own session')):
        cells(f'stop: grandchildren left ({what})', lambda a: (lambda r: r and f"{r[mode + '_left_after_stop']} of {r[mode + '_grandchildren']}")(recs.get((a, 'tree', 5))))
        cells(f'death of the agent: its grandchild ({what}) lives on', lambda a: (lambda r: r and {True: 'yes', False: 'no', None: '–'}[r.get(mode + '_crash_old_grandchild_alive')])(recs.get((a, 'tree', 5))))
    cells('the start command twice at once, 10 agents', lambda a: (lambda r: r and '; '.join(f"{q['children_alive']}" for q in r['runs']))(recs.get((a, 'double', 10))))
    def lines(a):
        r = recs.get((a, 'log', 1))
        if not r: return None
        return f"{max(x['missing'] for x in r['runs'])} / {max(x['torn'] for x in r['runs'])}"
    cells('2,000,000 lines of output: missing / torn', lines)


def machine():
    cpu = re.search(r'model name\s*: (.*)', open('/proc/cpuinfo').read())
    return f"{os.cpu_count()} × {cpu.group(1) if cpu else '?'}, Linux {os.uname().release}"


def versions():
    sys.path.insert(0, str(HERE))
    ours = subprocess.run([HERE.parent / 'bin' / 'castctl', 'version'], stdout=subprocess.PIPE, text=True).stdout.split('\n')[0]
    return ours


print('# Cast beside other process managers\n')
print(f'Written by `make bench` on {time.strftime("%Y-%m-%d")}: {machine()}; {versions()}. Medians; all on the same machine, one after the other. '
      'The absolute figures move with the machine, the ratios hardly. "Floor" is what the machine itself takes for the work that cannot be left out.\n')
print('## Targets\n')
targets()
print('\n## Promises\n')
promises()
print()
print((HERE / 'misses.md').read_text(), end='')
