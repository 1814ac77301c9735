"""The cost of a tick, thread by thread: on a processor, waiting for one, and voluntary switches.

The kernel of the operating system counts these for each thread (`/proc/self/task`). A tick runs from just before the
streams advance to the end of `settle`; pushes come before it. A second table has L1 with one more operator.
"""

from __future__ import annotations

import gc
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import wukongs
from wukongs.bench.continuous.firing import SETTLE_TIMEOUT_S, Replay, Windows, text_of
from wukongs.bench.continuous.probe import Probe
from wukongs.bench.continuous.workload import Workload, draw, rows_of
from wukongs.bench.harness import Report, summary
from wukongs.bench.lsbench.queries import QUERIES
from wukongs.bench.store.injection import BATCH_MS

TICKS = "a tick, thread by thread: medians in microseconds, and voluntary switches"
OPERATORS = "L1 with one more operator: execution, and the firing with what is picked for it, microseconds"
DISTINCT_COUNT, SAME_COUNT, ROWS = 300, 10_000, 86_000
_TASKS = Path("/proc/self/task")
_PREFIXES = """PREFIX sibu: <http://www.ins.cwi.nl/sib/user/> PREFIX stream: <http://www.ins.cwi.nl/sib/stream/>
PREFIX sib: <http://www.ins.cwi.nl/sib/vocabulary/> PREFIX sioc: <http://rdfs.org/sioc/ns#>"""
_FROM = "FROM NAMED STREAM stream:posts [RANGE 1s STEP 100ms]"
_L1 = "GRAPH stream:posts { sibu:%s ?p ?o . }"
SHAPES = {
    "plain": ("?p ?o", _L1, ""),
    "COUNT": ("(COUNT(*) AS ?n)", _L1, ""),
    "OPTIONAL": ("?p ?o ?t", f"{_L1} OPTIONAL {{ GRAPH stream:posts {{ ?o sib:hashtag ?t }} }}", ""),
    "UNION": ("?p ?o", f"{{ {_L1} }} UNION {{ GRAPH stream:posts {{ sibu:nobody ?p ?o }} }}", ""),
    "NOT EXISTS": ("?p ?o", f"{_L1} FILTER NOT EXISTS {{ GRAPH stream:posts {{ ?o sib:none ?t }} }}", ""),
    "BIND": ("?p ?x", f"{_L1} BIND(STR(?o) AS ?x)", ""),
    "!= 'z'": ("?p ?o", f"{_L1} FILTER(?o != 'z')", ""),
    "ORDER BY LIMIT": ("?p ?o", _L1, "ORDER BY ?o LIMIT 5"),
}


@dataclass(frozen=True, slots=True)
class Times:
    """Nanoseconds of one thread on a processor and waiting for one, and its voluntary switches, so far."""

    run_ns: int
    wait_ns: int
    switches: int

    def since(self, before: Times) -> Times:
        return Times(self.run_ns - before.run_ns, self.wait_ns - before.wait_ns, self.switches - before.switches)


def thread_times() -> dict[str, Times]:
    """Return what the threads of this process have taken so far, by their names; those without one are `others`."""
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    found: dict[str, Times] = {}
    for task in _TASKS.iterdir():
        run_ns, wait_ns, _ = (task / "schedstat").read_text().split()
        status = (task / "status").read_text()
        switches = int(status.split("\nvoluntary_ctxt_switches:")[1].split()[0])
        name = names.get(int(task.name), "others")
        before = found.get(name, Times(0, 0, 0))
        found[name] = Times(before.run_ns + int(run_ns), before.wait_ns + int(wait_ns), before.switches + switches)
    return found


def text_with(shape: str, user: str, name: str) -> str:
    """Return L1 for a user with one more operator."""
    head, where, tail = SHAPES[shape]
    body = where.replace("%s", user)
    return f"REGISTER QUERY {name} AS {_PREFIXES} SELECT {head} {_FROM} WHERE {{ {body} }} {tail}"


def bench_ticks(report: Report, replay: Replay, ticks: int, warm_up: int, divisor: int = 1) -> None:
    """Add a row for each thread of each kind of tick."""
    large, users = {query.name: query for query in QUERIES}, replay.workload.posters
    distinct = [
        text_with(list(SHAPES)[at % len(SHAPES)], users[at % len(users)], f"d{at}").replace("?t", f"?t{at}")
        for at in range(DISTINCT_COUNT // divisor)
    ]
    same = [text_of(large["L1"], user, f"s{at}") for at, user in enumerate(draw(users, SAME_COUNT // divisor))]
    trivial = [text_with("plain", "nobody", "trivial")]
    _rows(report, replay, "nothing comes, one query that finds nothing", trivial, ticks, warm_up, pushes=False)
    _rows(report, replay, "streams without a query", [], ticks, warm_up)
    _rows(report, replay, "streams, one query that finds nothing", trivial, ticks, warm_up)
    _rows(report, replay, "L1", [text_of(large["L1"], users[0], "L1")], ticks, warm_up)
    _rows(report, replay, "L4", [text_of(large["L4"], users[0], "L4")], ticks, warm_up)
    _rows(report, replay, f"{len(distinct)} queries of different text", distinct, ticks, warm_up)
    _rows(report, replay, f"{len(same)} queries of one text", same, ticks, warm_up)


def bench_count(report: Report, ticks: int, warm_up: int, rows: int = ROWS) -> None:
    """Add the rows of COUNT(*) over a window of `rows` tuples, a tenth of which are new at each tick."""
    stream, batch = "http://example.org/s", rows // 10
    with wukongs.Engine() as engine:
        declared = engine.stream(stream, timing=True, batch_ms=BATCH_MS, history_ms=1000)
        counts = Windows()
        engine.register(
            f"REGISTER QUERY counted AS SELECT (COUNT(*) AS ?n) FROM STREAM <{stream}> [RANGE 1s STEP 100ms] "
            "WHERE { ?s <http://example.org/p> ?o }",
            counts,
        )
        taken: dict[str, list[Times]] = defaultdict(list)
        walls: list[float] = []
        for number in range(1, ticks + warm_up + 1):
            at_ms = number * BATCH_MS
            declared.push(
                [(f"<http://example.org/s{at}>", "<http://example.org/p>", f'"{number}"', at_ms) for at in range(batch)]
            )

            def tick(at_ms: int = at_ms) -> None:
                declared.advance(at_ms)
                engine.settle(SETTLE_TIMEOUT_S)

            _tick(tick, taken, walls)
        report.check("COUNT(*)", 10 * batch, int(str(counts.windows[-1].texts()[0][0]).split('"')[1]))
        _add(report, f"COUNT(*) over {10 * batch:,} rows", taken, walls, warm_up)


def _tick(tick: Callable[[], object], taken: dict[str, list[Times]], walls: list[float]) -> None:
    before, began = thread_times(), time.perf_counter()
    tick()
    walls.append((time.perf_counter() - began) * 1e6)
    for name, after in thread_times().items():
        taken[name].append(after.since(before.get(name, Times(0, 0, 0))))


def _rows(
    report: Report, replay: Replay, case: str, texts: Sequence[str], ticks: int, warm_up: int, *, pushes: bool = True
) -> None:
    reported = Counter[str]()
    queries = [replay.engine.register(text, lambda window: reported.update(("windows",))) for text in texts]
    taken: dict[str, list[Times]] = defaultdict(list)
    walls: list[float] = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(ticks + warm_up):
            replay.number += 1
            at_ms = replay.number * BATCH_MS
            if pushes:
                for name, table in replay.workload.tables(replay.number).items():
                    replay.streams[name].push_arrow(table)
                time.sleep(0.005)  # what takes tuples in is done

            def tick(at_ms: int = at_ms) -> None:
                for stream in replay.streams.values():
                    stream.advance(at_ms)
                replay.engine.settle(SETTLE_TIMEOUT_S)

            _tick(tick, taken, walls)
    finally:
        gc.enable()
    report.check(f"{case}: windows", len(texts) * (ticks + warm_up), reported["windows"])
    for query in queries:
        query.close()
    _add(report, case, taken, walls, warm_up)


def _add(report: Report, case: str, taken: dict[str, list[Times]], walls: Sequence[float], warm_up: int) -> None:
    everything = [sum(times[at].run_ns for times in taken.values() if at < len(times)) for at in range(len(walls))]
    report.add(
        TICKS,
        {
            "tick": case,
            "thread": "all",
            "wall": summary(walls[warm_up:])["median"],
            "on a processor": summary(everything[warm_up:])["median"] / 1e3,
            "waiting for one": "",
            "switches": "",
        },
    )
    for name, times in sorted(taken.items()):
        own = times[warm_up:]
        run_us = summary([one.run_ns for one in own])["median"] / 1e3
        if run_us >= 1:
            report.add(
                TICKS,
                {
                    "tick": case,
                    "thread": name,
                    "wall": "",
                    "on a processor": run_us,
                    "waiting for one": summary([one.wait_ns for one in own])["median"] / 1e3,
                    "switches": summary([one.switches for one in own])["median"],
                },
            )


def bench_operators(report: Report, replay: Replay, ticks: int, warm_up: int) -> None:
    """Add a row for each shape, each registered alone beside the streams."""
    user = replay.workload.posters[0]
    for shape in SHAPES:
        windows = Windows()
        query = replay.engine.register(text_with(shape, user, "shaped"), windows)
        firing_us: list[float] = []
        gc.collect()
        gc.disable()
        try:
            with Probe() as probe:
                for number in range(ticks + warm_up):
                    probe.clear()
                    replay.step()
                    (times,) = probe.firings["shaped"]
                    if number >= warm_up:
                        firing_us.append(times.firing_us)
        finally:
            gc.enable()
        execution_us = query.stats()["execution_us_p50"]
        query.close()
        _check(report, replay.workload, shape, user, windows)
        found = summary(firing_us)
        row = {"operator": shape, "execution p50": execution_us, "firing p50": found["median"]}
        report.add(OPERATORS, {**row, "firing p90": found["p90"], "rows": len(windows.windows[-1])})


def _check(report: Report, workload: Workload, shape: str, user: str, windows: Windows) -> None:
    """Compare the newest window of a shape with the answer of L1 in the text of the data."""
    window = windows.windows[-1]
    expected = workload.answer("L1", user, window.end_ms // BATCH_MS)
    found = rows_of(window.serialize("tsv"))
    if shape == "COUNT":
        report.check(shape, len(expected), int(found[0][0].split(b'"')[1]))
        return
    if shape == "BIND":
        expected = sorted((p, b'"' + o[1:-1] + b'"') for p, o in expected)
    elif shape == "ORDER BY LIMIT":
        expected = sorted(sorted(expected, key=lambda row: row[::-1])[:5])
    else:
        found = sorted({row[:2] for row in found})
    report.check(f"{shape}, as rows", True, found == expected)
    report.check(shape, len(expected), len(found))
