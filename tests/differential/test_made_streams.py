"""Random chains of two queries, of which the second reads what the first makes, against tests/oracles/made_streams.py.

An engine ends at random places, in order or as in a crash, and is opened again. Each window of both queries comes with
the oracle's rows; none is missing, and none comes again that was taken before an orderly end."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.clusters import PATIENT, cluster
from tests.engine_helpers import EX, A, B, node
from tests.fuzz import SEED, first_and_slow, scaled
from tests.lives import close_and_open, crash_and_open
from tests.oracles.made_streams import Chain, OfTime, OfTriples, Row, Tuple
from wukongs.cluster.cluster_node import ClusterNode

MADE = EX + "made"
BATCH_MS = 100
SETTLE_S = 60.0
STORED = f"SELECT ?s ?o {{ GRAPH <{EX}g> {{ ?s {node('has')} ?o }} }}"
SETTINGS = wukongs.Settings(log_segment_bytes=4096, checkpoint_bytes=20_000)


class Life:
    """One engine, told of random things. reads_stored: the second query joins its window with stored triples, which
    another stream keeps moving on."""

    def __init__(self, folder: Path | None, rng: random.Random, nodes: Sequence[ClusterNode] = ()) -> None:
        self.rng, self.folder, self.copies, self.nodes = rng, folder, 0, nodes
        self.reads_stored = rng.random() < 0.4
        self.is_declared = rng.random() < 0.4
        period_ms = BATCH_MS
        first: OfTime | OfTriples = OfTriples(rng.randrange(1, 8), rng.randrange(1, 6), BATCH_MS)
        if rng.random() < 0.75:
            period_ms = rng.choice([100, 100, 200, 300, 500])
            first = OfTime(rng.choice([100, 200, 400, 1000]), period_ms)
        second = OfTime(period_ms * rng.randrange(1, 5), period_ms * rng.randrange(1, 4))
        self.first, self.second = first, second
        self.end_ms = 6000  # a multiple of all steps
        self.tuples: list[Tuple] = []
        self.paused: list[tuple[int, int]] = []
        self.closed_ms = self.noise_ms = 0
        self.found: dict[str, dict[int, set[Row]]] = {MADE: {}, "read": {}}
        self.was_killed = False
        self.engine = rng.choice(nodes).engine if nodes else wukongs.Engine(folder, settings=SETTINGS)
        known = " . ".join(f"{node(f'n{k}')} {node('is')} 1" for k in range(6))
        self.engine.update(f"INSERT DATA {{ {known} }}")
        self.begin()

    def begin(self) -> None:
        rng = self.rng
        self.stream = self.engine.stream(A, batch_ms=BATCH_MS, timing=True, history_ms=0)
        self.noise = self.engine.stream(B, batch_ms=BATCH_MS, history_ms=0)
        if self.is_declared:
            self.engine.stream(MADE, batch_ms=getattr(self.first, "step_ms", BATCH_MS), into=EX + "g")
        stored, also = ("FROM <urn:x-wukongs:default>", f"?s {node('is')} 1 .") if self.reads_stored else ("", "")
        texts = (
            f"REGISTER STREAM <{MADE}> AS CONSTRUCT {{ ?s {node('has')} ?o }} FROM STREAM <{A}> [{self.first.text()}] "
            f"WHERE {{ ?s {node('p')} ?o }}",
            f"REGISTER QUERY read AS SELECT ?s ?o FROM STREAM <{MADE}> [{self.second.text()}] {stored} "
            f"WHERE {{ {also} ?s {node('has')} ?o }}",
        )
        engines = [rng.choice(self.nodes).engine if self.nodes else self.engine for _ in texts]
        self.queries = {
            query.name: query for query in (engine.register(text) for engine, text in zip(engines, texts, strict=True))
        }

    def push(self) -> None:
        rng, rows = self.rng, list[Tuple]()
        at_ms = max(self.closed_ms + 1, self.tuples[-1][2] if self.tuples else 1)
        for _ in range(rng.randrange(1, 12)):
            at_ms += rng.choice([0, 0, 1, 30, 100, 100, 170])
            rows.append((f"n{rng.randrange(6)}", f"n{rng.randrange(6)}", at_ms))
        rows = [row for row in rows if row[2] < self.end_ms - 500]
        self.stream.push([(node(s), node("p"), node(o), t) for s, o, t in rows])
        self.tuples += rows
        self.closed_ms = max(self.closed_ms, rows[-1][2] - 1) if rows else self.closed_ms
        if rng.random() < 0.7:
            self.noise_ms = max(self.noise_ms, min(at_ms, self.end_ms - 500))
            names = [node(f"x{rng.randrange(1 << 30)}") for _ in range(9)]
            self.noise.push([(name, node("noise"), node("o"), self.noise_ms) for name in names])

    def advance(self) -> None:
        if self.tuples:
            time_ms = self.closed_ms + self.rng.choice([0, 50, 100, 400])
            if time_ms < self.end_ms - 500:
                self.closed_ms = time_ms
                self.stream.advance(time_ms)

    def pause(self) -> None:
        """Let some windows pass that the first query does not report."""
        if not self.tuples or isinstance(self.first, OfTriples):
            return
        self.engine.settle(timeout_s=SETTLE_S)
        self.queries[MADE].pause()
        after_ms = self.closed_ms // BATCH_MS * BATCH_MS + BATCH_MS - 1
        if self.rng.random() < 0.3:
            self.end()
        self.push()
        self.advance()
        self.engine.settle(timeout_s=SETTLE_S)
        self.queries[MADE].resume()
        self.paused.append((after_ms, self.closed_ms // BATCH_MS * BATCH_MS + BATCH_MS - 1))

    def end(self) -> None:
        if self.folder is None:
            return
        if self.rng.random() < 0.5:
            self.read()
        if self.rng.random() < 0.5:
            self.engine = close_and_open(self.folder, SETTINGS)(self.engine)
        else:
            self.copies += 1
            copy = self.folder.with_name(f"copy{self.copies}")
            self.engine = crash_and_open(self.folder, copy, SETTINGS)(self.engine)
            self.folder, self.was_killed = copy, True
        self.begin()

    def read(self) -> None:
        for name, query in self.queries.items():
            for window in query.results(timeout_s=0):
                assert not window.partial, (name, window.end_ms)
                found = {(row[0], row[-1]) for row in _names(window)}
                is_again = window.end_ms in self.found[name]
                assert self.was_killed or not is_again, f"{name} at {window.end_ms} came twice"
                before = self.found[name].setdefault(window.end_ms, found)
                assert before == found, f"{name} at {window.end_ms} came again with other rows"

    def run(self) -> None:
        rng = self.rng
        kinds = [self.push, self.advance, self.read, self.end, self.pause, self.settle]
        self.push()
        for _ in range(rng.randrange(3, 16)):
            rng.choices(kinds, [8, 3, 3, 2, 1, 2])[0]()
        self.stream.advance(self.end_ms)
        self.noise.advance(self.end_ms)
        self.settle()
        self.read()
        stored = {(row[0], row[1]) for row in _names(self.engine.query(STORED))}
        if not self.nodes:
            self.engine.close()
        fired, read = Chain(self.first, self.second, tuple(self.paused)).windows(self.tuples, self.end_ms)
        assert self.found[MADE] == fired
        assert self.found["read"] == read
        assert stored == (set().union(*fired.values()) if self.is_declared else set())

    def settle(self) -> None:
        self.engine.settle(timeout_s=SETTLE_S)


def _names(window: Any) -> list[tuple[str, ...]]:
    return [tuple(str(term).removeprefix(EX) for term in row) for row in window]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["in memory", "in a folder"])
def test_chains_of_two(kind: str, tmp_path: Path) -> None:
    for number in range(scaled(60)):
        seed = (SEED or 0) * 1000 + number
        folder = None if kind == "in memory" else tmp_path / str(number) / "data"
        if folder is not None:
            folder.parent.mkdir()
        try:
            Life(folder, random.Random(seed)).run()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("node_count", first_and_slow([1, 3]))
def test_chains_of_two_on_a_cluster(node_count: int) -> None:
    """The two queries run on any nodes."""
    for number in range(scaled(6)):
        seed = (SEED or 0) * 1000 + number
        with cluster(node_count, 2, SETTINGS, silence_pulses_max=PATIENT) as nodes:
            try:
                Life(None, random.Random(seed), nodes).run()
            except BaseException as error:
                error.add_note(f"seed {seed}")
                raise
