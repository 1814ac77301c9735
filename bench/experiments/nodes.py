"""nodes (figure 12 and table 3 of the Wukong+S paper): L1-L6 and S1-S6 on clusters of several processes here, and what
goes between them.

All nodes share the cores of this machine: more nodes are more work on the same cores. So the figures tell what work
there is, not how fast a cluster is. One client of one node loads, asks, pushes and registers.

Of L1-L6, `execution` counts from the moment when the window can be closed at its node until its columns are ready;
`latency` from the advance until the rows are at the client. Of S1-S6, `execution` is from the text to the rows at the
client; `above embedded`, of two nodes, is what it takes longer than in the embedded engine, for each of its requests.
`CPU` is that of all nodes for one firing or question, `requests`, `rows moved` and `moved` are what the query asks of
other nodes, and `all messages` and `all moved` also hold tuples, windows and the protocol.
Query `tuples` is a replay with no query registered: what a tuple costs, and `push`, what the client pushes in a second.
Query `protocol` has what a node says in a second while streams advance without tuples, case `streams` how many.

Answers: the embedded engine is asked the same in the same order, and compared with pyoxigraph: all of S1-S6, and the
last window of L1-L6. Every answer and window of a cluster is compared with the embedded engine's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from wukongs.bench.experiments.session import REFERENCE, Session
from wukongs.bench.lsbench.data import LsbenchData
from wukongs.bench.lsbench.queries import QUERIES, BenchQuery
from wukongs.bench.lsbench.replay import feed_of
from wukongs.bench.nodes.control import run_control
from wukongs.bench.nodes.engines import Bench, embedded, processes
from wukongs.bench.nodes.one_shot import Runs, run_one_shot
from wukongs.bench.nodes.windows import TUPLES, Days, Run, end_ms, last_day_of, last_days, run_windows
from wukongs.bench.peers import WUKONGS, difference
from wukongs.bench.record import BenchError, say

EXPERIMENT = "nodes"
PROTOCOL = "protocol"
STORED = "stored"
COUNTS, QUICK_COUNTS = (1, 2, 4), (1, 2)
ABSORBED = ("PO", "PO-L", "PH", "PH-L")


@dataclass(frozen=True, slots=True)
class Sizes:
    """days: of the streams that are replayed; repeats: of each one-shot query; control_s: per number of streams."""

    days: int = 2
    repeats: int = 30
    stream_counts: tuple[int, ...] = (0, 1, 5, 20)
    control_s: float = 3.0


QUICK = Sizes(days=1, repeats=2, stream_counts=(0, 1), control_s=0.2)


@dataclass(frozen=True, slots=True)
class _Found:
    """The answers of one engine, and what they took."""

    one_shot: Runs
    windows: dict[str, Run]


def run(session: Session, data: LsbenchData, texts: Mapping[str, str], counts: Sequence[int]) -> None:
    """Measure each number of nodes that is not done. texts: S1-S6. Raises BenchError (a cluster does not start)."""
    asked = {name: text for name, text in texts.items() if session.wants(name)}
    queries = tuple(query for query in QUERIES if session.wants(query.name))
    sizes = QUICK if session.is_quick else Sizes()
    names = (*asked, *(query.name for query in queries))

    def is_done(case: Mapping[str, Any]) -> bool:
        done = session.record.is_done
        return done(EXPERIMENT, STORED, WUKONGS, case, "load") and all(
            done(EXPERIMENT, name, WUKONGS, case) for name in names
        )

    open_counts = [count for count in counts if not is_done(session.with_case(nodes=count).case)]
    if not open_counts or not (asked or queries):
        return
    last_day = last_day_of(data)
    if last_day < sizes.days:
        for count in open_counts:
            told = f"the streams are too short: {last_day} whole days, {sizes.days} are replayed"
            session.record.skipped(EXPERIMENT, STORED, WUKONGS, session.with_case(nodes=count).case, told)
        return
    days = last_days(data, last_day, sizes.days)
    triples = b"".join([data.stored, *(data.streams[name].lines for name in ABSORBED)])
    say(f"{EXPERIMENT}: the embedded engine's answers")

    def measure(bench: Bench) -> _Found:
        one_shot = run_one_shot(bench, triples, asked, sizes.repeats)
        return _Found(one_shot, run_windows(bench, data, days, queries))

    with embedded() as alone:
        wanted = measure(alone)
    why = dict(_otherwise(session, data, triples, asked, queries, days, wanted))
    for count in open_counts:
        here = session.with_case(nodes=count)
        here.begin(f"{EXPERIMENT}: {count} {'process' if count == 1 else 'processes'}")
        try:
            with processes(count) as cluster:
                found = measure(cluster)
                said = dict(_protocol(cluster, sizes, days))
        except RuntimeError as error:
            raise BenchError(f"lsbench: {EXPERIMENT}: {error}: give fewer --nodes") from None
        _write_down(here, wanted, found, said, triples, days, why)


def _otherwise(
    session: Session,
    data: LsbenchData,
    triples: bytes,
    texts: Mapping[str, str],
    queries: Sequence[BenchQuery],
    days: Days,
    wanted: _Found,
) -> Iterator[tuple[str, str]]:
    """Yield how answers of the embedded engine differ from pyoxigraph's, by query."""
    feed = feed_of(data)
    at_ms = days.last_day * (days.length_ms // days.count)
    with session.reference(triples) as reference:
        for name, text in texts.items():
            differs = difference(reference.select(text), list(wanted.one_shot.queries[name].bag.elements()), REFERENCE)
            if differs is not None:
                yield name, differs
    with session.reference(feed.stored) as reference:
        for query in queries:
            asked = next(one for one in feed.queries if one.name == query.name)
            reference.window(feed.window(asked, at_ms))
            rows = list(wanted.windows[query.name].bags[-1].elements())
            differs = difference(reference.select(asked.select_text), rows, REFERENCE)
            if differs is not None:
                yield query.name, f"{differs} (window that ends with day {days.last_day})"


def _protocol(bench: Bench, sizes: Sizes, days: Days) -> Iterator[tuple[int, dict[str, float]]]:
    at_ms = end_ms(days)
    for count in sizes.stream_counts:
        said, at_ms = run_control(bench, count, sizes.control_s, at_ms)
        yield count, said


def _write_down(
    session: Session,
    wanted: _Found,
    found: _Found,
    said: Mapping[int, Mapping[str, float]],
    triples: bytes,
    days: Days,
    why: Mapping[str, str],
) -> None:
    about: dict[str, Any] = {"checked": f"{REFERENCE} and the embedded engine", "busy": session.busy()}

    def write(query: str, metric: str, values: Sequence[float], unit: str = "ms", **case: int) -> None:
        key = (EXPERIMENT, query, WUKONGS, {**session.case, **case})
        session.record.measured(*key, metric, values, unit=unit, **about)

    def write_moved(query: str, moved: Mapping[str, float], count: float) -> None:
        write(query, "CPU", [1e3 * moved["cpu_s"] / count])
        for metric, name, unit in (
            ("requests", "requests", "requests"),
            ("rows moved", "rows", "rows"),
            ("moved", "bytes", "bytes"),
            ("all messages", "messages_out", "messages"),
            ("all moved", "bytes_out", "bytes"),
        ):
            write(query, metric, [moved[name] / count], unit)

    for name, one in found.one_shot.queries.items():
        bag = wanted.one_shot.queries[name].bag
        told = why.get(name) or difference(list(bag.elements()), list(one.bag.elements()), "the embedded engine")
        if told:
            session.record.skipped(EXPERIMENT, name, WUKONGS, session.case, told)
            continue
        about["rows"] = bag.total()
        write(name, "execution", [s * 1e3 for s in one.seconds])
        write_moved(name, one.moved, 1)
        if session.case["nodes"] == 2:  # so a round is one request
            alone_s, rounds = median(wanted.one_shot.queries[name].seconds), max(1.0, one.moved["requests"])
            write(name, "above embedded", [1e6 * (s - alone_s) / rounds for s in one.seconds], "us")
    for name, run_ in found.windows.items():
        if name == TUPLES:
            continue
        bags = wanted.windows[name].bags
        told = why.get(name) or _different_window(bags, run_.bags)
        if told:
            session.record.skipped(EXPERIMENT, name, WUKONGS, session.case, told)
            continue
        about["rows"] = sorted(bag.total() for bag in bags)[len(bags) // 2]
        write(name, "execution", [s * 1e3 for s in run_.latency_s])
        write(name, "latency", [s * 1e3 for s in run_.seen_s])
        write_moved(name, run_.moved, len(bags))
    del about["rows"]
    about["checked"] = "the answers of this cluster"
    alone = found.windows[TUPLES]
    sizes = [sum(len(table) for table in part.values()) for part in days.parts]
    write(TUPLES, "push", [size / s for size, s in zip(sizes, alone.push_s, strict=True) if size], "tuples/s")
    write_moved(TUPLES, alone.moved, days.tuples)
    for streams, one_said in said.items():
        write(PROTOCOL, "stream batches", [one_said["ticks"]], "batches/s", streams=streams)
        for metric, name, unit in (("messages", "told_out", "messages"), ("bytes", "told_bytes_out", "bytes")):
            write(PROTOCOL, metric, [one_said[name]], unit, streams=streams)
        write(PROTOCOL, "CPU", [1e3 * one_said["cpu_s"]], streams=streams)
    write("a call", "execution", [s * 1e3 for s in found.one_shot.call_s])
    write(STORED, "load", [triples.count(b"\n") / found.one_shot.load_s], "triples/s")


def _different_window(expected: Sequence[Any], found: Sequence[Any]) -> str | None:
    for number, (one, other) in enumerate(zip(expected, found, strict=True), 1):
        told = difference(list(one.elements()), list(other.elements()), "the embedded engine")
        if told:
            return f"{told} (window {number} of {len(expected)})"
    return None
