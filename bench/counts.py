"""Counts of work: what a small set of queries and changes costs in lines of kernels, look-ups, rows, batches and bytes.

`python -m wukongs.bench counts` compares them with the last record, docs/benchmarks/counts.json; `--renew` writes it.
They are counted, not timed, in a process whose kernels are not compiled: there a kernel is a Python function, of which
each line that runs can be counted, in all threads. The data is tiny and made by a seed, and everything is settled
before and after a part is counted. So the same code gives the same numbers, also on a busy machine.

A tolerance (TOLERANCES) is no allowance for noise. It lets a change pass that adds a line to a loop, and stops one that
does a tenth more. Numbers that fell beyond it are told, too: a record that is too high would hide the next rise.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest.mock import patch

import numpy as np

import wukongs
from wukongs.adapters.lsbench_people import NetworkSettings
from wukongs.bench.experiments.feed import Feed
from wukongs.bench.harness import ROOT, Report
from wukongs.bench.lsbench.data import IRI, LsbenchData, generate_lsbench
from wukongs.bench.lsbench.queries import one_shot_bodies, with_constants
from wukongs.bench.lsbench.replay import feed_of
from wukongs.bench.store.injection import BATCH_MS, RATES, declare, grow, inject, stream_lines
from wukongs.engine import Engine
from wukongs.live.injector import Injector
from wukongs.store.encoder import encode_ntriples

RECORD = ROOT / "docs" / "benchmarks" / "counts.json"
RENEW = "python -m wukongs.bench counts --renew"
LINES, LOOK_UPS, STEP_ROWS, ROWS, BATCHES, BYTES = "kernel lines", "look-ups", "step rows", "rows", "batches", "bytes"
TOLERANCES = {LINES: 0.10, LOOK_UPS: 0.10, STEP_ROWS: 0.0, ROWS: 0.0, BATCHES: 0.0, BYTES: 0.02}
"""By which share a number may differ from its record. Lines change by a few percent with the text of a loop; a plan
that explores twice as much has twice as many. Rows, batches: any difference is another plan, answer or merge. Bytes: a
field of a header."""
SMALL = NetworkSettings(
    users=40,
    friends=8,
    duration_ms=6500,
    posts_per_s=20,
    comments_per_s=20,
    photos_per_s=60,
    positions_per_s=20,
    likes_per_post=20,
)
FULL_MS, STEPS = 1000, 2
"""Windows are full from then on; so many firings are counted."""
BATCHES_INJECTED = 12
SETTLE_S = 120.0
_KNOWS, _USER = "http://xmlns.com/foaf/0.1/knows", "http://www.ins.cwi.nl/sib/user/u"
_UPDATE = """PREFIX foaf: <http://xmlns.com/foaf/0.1/>
DELETE { ?who foaf:firstName ?name } INSERT { ?who foaf:name ?name } WHERE { ?who foaf:firstName ?name }"""
_FRIENDSHIP = f"INSERT DATA {{ <{_USER}0> <{_KNOWS}> <{_USER}new> }}"
_RULES = f"""RULE second: CONSTRUCT {{ ?a <http://e/far> ?c }} WHERE {{ ?a <{_KNOWS}> ?b . ?b <{_KNOWS}> ?c }}"""
_POSTS = f"""REGISTER QUERY many AS SELECT ?who ?post FROM NAMED STREAM <{IRI["PO"]}> [RANGE 1s STEP 100ms]
WHERE {{ GRAPH <{IRI["PO"]}> {{ ?who <http://rdfs.org/sioc/ns#creator_of> ?post }} }}"""
_LOOK_UPS = {"lower_bound", "lower_key", "edge_position", "may_have_key", "may_hold", "probe_key", "window_holds"}
Counts = dict[str, dict[str, int]]
"""By what was counted: unit -> how many."""


# --- counting ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Tally:
    """The lines of kernels that a thread runs inside of `counting`, the injector's only inside of a firing, and the
    look-ups among them. Merges in idle time are not counted: when they come is for the clock to say."""

    lines: int = 0
    look_ups: int = 0
    _inside: set[int] = field(default_factory=set)
    _kinds: dict[CodeType, bool | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        threading.settrace(self._called)  # of threads that begin from now on
        sys.settrace(self._called)

    @contextmanager
    def counting(self, firings: bool = False) -> Iterator[None]:
        """Count from nothing on. firings: those of the injector, not this thread."""
        self.lines = self.look_ups = 0
        with patch.object(Injector, "_fire", self._within(Injector._fire)) if firings else self._entered():
            yield

    def _within(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            with self._entered():
                return function(*arguments)

        return run

    @contextmanager
    def _entered(self) -> Iterator[None]:
        self._inside.add(threading.get_ident())
        try:
            yield
        finally:
            self._inside.discard(threading.get_ident())

    def _called(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        if threading.get_ident() not in self._inside:
            return None
        code = frame.f_code
        if code not in self._kinds:
            is_kernel = code.co_filename.endswith("_kernels.py")
            self._kinds[code] = code.co_name in _LOOK_UPS if is_kernel else None
        looks_up = self._kinds[code]
        if looks_up is None:
            return None
        self.look_ups += looks_up
        return self._line

    def _line(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        self.lines += event == "line"
        return self._line


def count() -> Counts:
    """Count everything. For a process whose kernels are not compiled: `counted` starts it."""
    assert os.environ.get("NUMBA_DISABLE_JIT") == "1", "kernels that are compiled have no lines to count"
    tally, data = Tally(), generate_lsbench(SMALL)
    feed = feed_of(data)
    found = dict(_firings(tally, feed))
    found |= dict(_stored(tally, data, feed))
    found |= dict(_injected(tally, data))
    return found | {"log a second of streams": _logged(feed)}


def _firings(tally: Tally, feed: Feed) -> Iterator[tuple[str, dict[str, int]]]:
    """Count what answering the windows of each query takes. One is registered after the other, over the same streams; a
    firing comes before those that count. All streams are timing, so that the stored graph stays one batch."""
    import pyarrow as pa

    users = pa.table({"who": [f"<{_USER}{number}>" for number in range(SMALL.users)]})
    feed = replace(feed, timing=frozenset(feed.streams))
    with feed.engine() as engine:

        def push(start_ms: int, end_ms: int) -> None:
            for at_ms, parts in feed.pushes(start_ms, end_ms):
                engine.push_many({name: parts.get(name) for name in feed.streams}, at_ms)
                engine.settle(SETTLE_S)

        end_ms = FULL_MS
        push(0, end_ms)
        texts = {query.name: query.register_text for query in (*feed.queries, *feed.others)}
        for name, text in {**texts, "posts of 40 users from a table": _POSTS}.items():
            query = engine.register(text, bindings=users if text is _POSTS else None)
            push(end_ms, end_ms := end_ms + feed.step_ms)
            with tally.counting(firings=True):
                push(end_ms, end_ms := end_ms + STEPS * feed.step_ms)
            windows = list(query.results(timeout_s=0))[-STEPS:]
            assert windows[-1].end_ms == end_ms, (name, windows)
            counts = {LINES: tally.lines, LOOK_UPS: tally.look_ups, ROWS: sum(map(len, windows))}
            if text is not _POSTS:
                counts[STEP_ROWS] = _step_rows(query.explain(analyze=True))
            query.close()
            yield f"{name}, {STEPS} firings", counts


def _step_rows(explained: str) -> int:
    """Return the rows that all steps of a plan have made, from EXPLAIN's text."""
    ends = [line.rstrip().rsplit("  ", 1)[1] for line in explained.splitlines() if "  ~" in line]
    return sum(int(end.removesuffix(" rows").strip()) for end in ends if not end.startswith("~"))


def _stored(tally: Tally, data: LsbenchData, feed: Feed) -> Iterator[tuple[str, dict[str, int]]]:
    """Count loading, S1-S6, an update, and what follows from a change."""
    with wukongs.Engine() as engine:
        with tally.counting():
            engine.load(io.BytesIO(feed.stored), format="nt")
            engine.settle(SETTLE_S)
        stats = engine.stats()
        size = stats["stored_bytes"] + stats["term_bytes"]
        yield "load", {LINES: tally.lines, ROWS: stats["stored_triples"], BATCHES: stats["stored_batches"], BYTES: size}
    with wukongs.Engine() as engine:
        absorbed = (stream.between(-1, FULL_MS) for stream in feed.streams.values())
        engine.load(io.BytesIO(b"".join([feed.stored, *absorbed])), format="nt")
        engine.settle(SETTLE_S)
        constants = {"user": data.user, "person": data.person, "other": data.person, "group": "g0"}
        for name, (_, body) in one_shot_bodies().items():
            yield name, _asked(tally, engine, with_constants(body, constants))
        before = engine.stats()["updates"]["inserted"]
        with tally.counting():
            engine.update(_UPDATE)
            engine.settle(SETTLE_S)
        rows = engine.stats()["updates"]["inserted"] - before
        yield "update all first names", {LINES: tally.lines, LOOK_UPS: tally.look_ups, ROWS: rows}
    with wukongs.Engine(rules=_RULES) as engine:
        engine.load(io.BytesIO(feed.stored), format="nt")
        engine.settle(SETTLE_S)
        before = engine.stats()["inferred_triples"]
        with tally.counting():
            engine.update(_FRIENDSHIP)
            engine.settle(SETTLE_S)
        rows = engine.stats()["inferred_triples"] - before
        yield "follow rules from one triple", {LINES: tally.lines, LOOK_UPS: tally.look_ups, ROWS: rows}


def _asked(tally: Tally, engine: Engine, text: str) -> dict[str, int]:
    for _ in range(2):  # from the third time on its plan and its program are known
        engine.query(text).serialize("json")
    with tally.counting():
        result = engine.query(text)
        size = len(result.serialize("json"))
    counted = {LINES: tally.lines, LOOK_UPS: tally.look_ups}
    return {**counted, STEP_ROWS: _step_rows(engine.explain(text, analyze=True)), ROWS: len(result), BYTES: size}


def _injected(tally: Tally, data: LsbenchData) -> Iterator[tuple[str, dict[str, int]]]:
    """Count what stream batches of five streams take from encoded columns to visible, with all merging, by one
    thread."""
    core = grow(Report("counts", {}), data, 2 * data.stored_count)
    states = {name: declare(core, name) for name in RATES}
    sizes = {name: rate * BATCH_MS // 1000 // 100 for name, rate in RATES.items()}
    lines = {name: stream_lines(data, name, 2, size) for name, size in sizes.items()}
    before, total = len(core.arrangement), 0
    for number in range(1, BATCHES_INJECTED + 1):
        encoded = {}
        for name, pieces in lines.items():
            columns, _ = encode_ntriples(next(pieces), b"")
            encoded[name] = replace(columns, timestamps=np.full(len(columns), number * BATCH_MS, np.int64))
        with tally.counting():
            inject(core, states, encoded, number)
        total += tally.lines
    rows, batches = len(core.arrangement) - before, core.arrangement.trace.batch_count
    size = core.arrangement.trace.size_bytes
    yield f"inject {BATCHES_INJECTED} stream batches", {LINES: total, ROWS: rows, BATCHES: batches, BYTES: size}


def _logged(feed: Feed) -> dict[str, int]:
    """Count the bytes that a data folder's log is given for a second of streams and an update."""
    with tempfile.TemporaryDirectory() as folder, wukongs.Engine(Path(folder) / "data") as engine:
        engine.load(io.BytesIO(feed.stored), format="nt")
        for name in feed.streams:
            engine.stream(name, timing=name in feed.timing, batch_ms=feed.batch_ms, history_ms=feed.range_ms)
        engine.push_many(dict.fromkeys(feed.streams), 0)
        for end_ms, parts in feed.pushes(0, FULL_MS):
            engine.push_many({name: parts.get(name) for name in feed.streams}, end_ms)
            engine.settle(SETTLE_S)
        engine.update(_UPDATE)
        return {BYTES: engine.stats()["durability"]["log_bytes_written"]}


# --- the record -------------------------------------------------------------------------------------------------------


def counted() -> Counts:
    """Count in a process of its own. Raises subprocess.CalledProcessError."""
    command = [sys.executable, "-m", "wukongs.bench.counts"]
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True, timeout=900)
    found: Counts = json.loads(done.stdout)
    return found


def python_version() -> str:
    """Return the version of Python that lines depend on."""
    return "{}.{}".format(*sys.version_info)


def read_record() -> tuple[str, Counts]:
    """Return the version of Python of the last record, and what it counted."""
    held = json.loads(RECORD.read_text(encoding="utf-8"))
    return held["python"], held["counts"]


def differences(record: Mapping[str, Mapping[str, int]], now: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return a sentence for each number that differs by more than its tolerance, the greatest rise first."""
    found: list[tuple[float, str]] = []
    for what in {**record, **now}:
        before, after = record.get(what, {}), now.get(what, {})
        for unit in {**before, **after}:
            old, new = before.get(unit), after.get(unit)
            if old is None or new is None:
                found.append((0.0, f"{what}, {unit}: {'not in the record' if old is None else 'no longer counted'}"))
            elif abs(new - old) > TOLERANCES[unit] * old:
                ratio = new / old if old else float("inf")
                way = "up" if new > old else "down"
                told = f"{what}: {unit} went {way} from {old:,} to {new:,} ({ratio:.2f} times, "
                found.append((ratio, f"{told}{TOLERANCES[unit]:.0%} are allowed)"))
    return [text for _, text in sorted(found, key=lambda one: -one[0])]


def main(argv: Sequence[str]) -> int:
    """Compare with the record, or renew it; return the exit status: 1 if a number differs."""
    parser = argparse.ArgumentParser(prog="python -m wukongs.bench counts", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--renew", action="store_true", help=f"write {RECORD.relative_to(ROOT)} anew")
    options = parser.parse_args(argv)
    now = counted()
    version, record = read_record() if RECORD.exists() else (python_version(), {})
    told = differences(record, now)
    print("\n".join(told) or "no count differs from the record by more than its tolerance")
    if options.renew:
        RECORD.write_text(json.dumps({"python": python_version(), "counts": now}, indent=1) + "\n", encoding="utf-8")
        return 0
    if version != python_version():
        print(f"the record was made with Python {version}, which has other lines than {python_version()}")
    elif told:
        print(f"after a look at why: {RENEW}")
    return 1 if told else 0


if __name__ == "__main__":
    json.dump(count(), sys.stdout)
