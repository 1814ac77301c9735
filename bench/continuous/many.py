"""Many registered queries: the throughput of a mix of L1-L3, and what registering and closing cost."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Iterator, Sequence

from wukongs.bench.continuous.firing import SMALL, Replay, Windows, text_of
from wukongs.bench.continuous.probe import Probe
from wukongs.bench.continuous.workload import draw, rows_of
from wukongs.bench.harness import Report, summary
from wukongs.bench.lsbench.queries import BenchQuery
from wukongs.bench.store.injection import BATCH_MS

MIX = {"L1": 1 / 0.13, "L2": 1 / 0.10, "L3": 1 / 0.13}
"""How often each comes: the inverse of the paper's latencies."""
MIXED = "L1-L3 mixed, each over its whole window, rows written"
REGISTRATION = "Registering and closing, the text parsed"
SAMPLES = 10
CHECKED_QUERIES = 30


def bench_mix(report: Report, replay: Replay, query_count: int, window_count: int, warm_up: int) -> None:
    """Add the executions per second of queries that are all due at the same times."""
    users = draw(replay.workload.posters, query_count)
    asked = [(query, user, Windows()) for query, user in zip(mixed(query_count), users, strict=True)]
    registered = [
        replay.engine.register(text_of(query, user, f"mixed{at}"), windows)
        for at, (query, user, windows) in enumerate(asked)
    ]
    seconds, engine_us = [], []
    for probe in _ticks(replay, window_count, warm_up):
        times = probe.all_times()
        seconds.append(max(t.ended_s for t in times) - min(t.began_s for t in times))
        engine_us.append(probe.engine_us)
    for one in registered:
        one.close()
    for query, user, windows in asked[:CHECKED_QUERIES]:
        window = windows.windows[-1]
        expected = replay.workload.answer(query.name, user, window.end_ms // BATCH_MS)
        what = f"{query.name} for {user}, {window.end_ms} ms, as sets"
        report.check(what, True, rows_of(window.serialize("tsv")) == expected)
    rows = sum(len(windows.windows[-1]) for _, _, windows in asked)
    report.add(
        MIXED,
        {
            "way": "registered one by one",
            "queries": query_count,
            "constants": len(set(users)),
            "rows of a window": rows,
            "executions/s": query_count / summary(seconds)["median"],
            "of it engine part, share": summary(engine_us)["median"] / 1e6 / summary(seconds)["median"],
        },
    )


def bench_mix_from_tables(report: Report, replay: Replay, query_count: int, window_count: int, warm_up: int) -> None:
    """Do the same with three groups of queries, each from a table of its users."""
    import pyarrow as pa

    users = draw(replay.workload.posters, query_count)
    asked = list(zip(mixed(query_count), users, strict=True))
    of_query = {query: [user for other, user in asked if other is query] for query in SMALL}
    windows = {query: Windows() for query in SMALL}
    registered = []
    for query, its_users in of_query.items():
        names = pa.table({"who": [constant_of(query, user) for user in its_users]})
        user = its_users[0]
        constant = f"sibu:{user} " if query.name == "L1" else f"sibp:p{user[1:]} "
        text = text_of(query, user, f"from_table_{query.name}").replace(constant, "?who ")
        registered.append(replay.engine.register(text, windows[query], bindings=names))
    seconds = []
    for probe in _ticks(replay, window_count, warm_up):
        times = probe.all_times()
        assert len(times) == len(SMALL), times
        seconds.append(sum(t.firing_us for t in times) / 1e6)
    rows = 0
    for query, its_users in of_query.items():
        window = windows[query].windows[-1]
        rows += len(window)
        of_user: dict[int, list[tuple[bytes, ...]]] = {}
        for argument, *row in rows_of(window.serialize("tsv")):
            of_user.setdefault(int(argument.split(b'"')[1]), []).append(tuple(row))
        for place, user in enumerate(its_users[:CHECKED_QUERIES]):
            expected = replay.workload.answer(query.name, user, window.end_ms // BATCH_MS)
            what = f"{query.name} for {user} from a table, {window.end_ms} ms, as sets"
            report.check(what, True, of_user.get(place, []) == expected)
    for one in registered:
        one.close()
    report.add(
        MIXED,
        {
            "way": "registered from three tables",
            "queries": query_count,
            "constants": len(set(users)),
            "rows of a window": rows,
            "executions/s": query_count / summary(seconds)["median"],
        },
    )


def _ticks(replay: Replay, window_count: int, warm_up: int) -> Iterator[Probe]:
    """Push stream batches, and yield what was measured of each one behind the warm-up."""
    gc.collect()
    gc.disable()  # as harness.repeat
    try:
        with Probe() as probe:
            for number in range(warm_up + window_count):
                probe.clear()
                replay.step()
                if number >= warm_up:
                    yield probe
    finally:
        gc.enable()


def constant_of(query: BenchQuery, user: str) -> str:
    """Return the constant of L1, L2 or L3 for a user."""
    return f"<http://www.ins.cwi.nl/sib/{f'user/{user}' if query.name == 'L1' else f'person/p{user[1:]}'}>"


def mixed(count: int) -> list[BenchQuery]:
    """Return L1-L3 in the proportions of MIX, evenly spread."""
    total, found = dict.fromkeys(MIX, 0), []
    by_name = {query.name: query for query in SMALL}
    for _ in range(count):
        name = min(MIX, key=lambda one: (total[one] + 1) / MIX[one])
        total[name] += 1
        found.append(by_name[name])
    return found


def bench_registration(report: Report, replay: Replay, places: Sequence[int]) -> None:
    """Add the cost of the n-th registered query for each n of `places` (a median of some up to it), and of closing it
    again, with all of those before it registered."""
    count = places[-1]
    users = draw(replay.workload.posters, count)
    texts = [text_of(query, user, f"q{at}") for at, (query, user) in enumerate(zip(mixed(count), users, strict=True))]
    engine, register_ms, queries = replay.engine, [], []
    replay.engine.register(texts[0]).close()  # compiles the kernels
    for text in texts:
        began = time.perf_counter()
        queries.append(engine.register(text))
        register_ms.append((time.perf_counter() - began) * 1e3)
    report.check("registered queries", count, len(engine.queries()))
    close_ms = []
    while queries:
        query = queries.pop()
        began = time.perf_counter()
        query.close()
        close_ms.append((time.perf_counter() - began) * 1e3)
    close_ms.reverse()
    report.check("registered queries after closing", 0, len(engine.queries()))
    sizes = _bytes_per_query(replay, texts, places)
    for place in places:
        last = slice(max(0, place - SAMPLES), place)
        report.add(
            REGISTRATION,
            {
                "query": f"number {place:,}",
                "register ms": summary(register_ms[last])["median"],
                "close ms": summary(close_ms[last])["median"],
                "bytes a query": sizes[place],
            },
        )


def _bytes_per_query(replay: Replay, texts: Sequence[str], places: Sequence[int]) -> dict[int, float]:
    """Return, for each place, the bytes of Python's memory that a query takes, of those after the place before it."""
    found, queries, before = {}, [], 0
    gc.collect()
    tracemalloc.start()
    try:
        for place in places:
            held = tracemalloc.get_traced_memory()[0]
            queries += [replay.engine.register(text) for text in texts[before:place]]
            gc.collect()
            found[place] = (tracemalloc.get_traced_memory()[0] - held) / (place - before)
            before = place
    finally:
        tracemalloc.stop()
    for query in reversed(queries):
        query.close()
    return found
