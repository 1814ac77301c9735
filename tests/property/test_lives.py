"""Random lives of a durable engine against sets: all kinds of updates, loads, streams, windows, ends at any time.

An end is a restart, or a crash: a copy of the data folder as it is, opened in its place. The model
(tests/oracles/evolving.py) knows nothing of snapshots, logs or checkpoints.
"""

from __future__ import annotations

import io
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

import wukongs
from tests import strategies as make
from tests.fuzz import fuzzed
from tests.inside import core_of
from tests.oracles.durable import Delivered
from tests.oracles.evolving import Answer, Evolving, Rows
from tests.oracles.rdf import Term, Triple, from_rdflib, nquad, ntriples
from tests.oracles.sparql_oracle import TooBig
from tests.oracles.stream_oracle import DEFAULT_GRAPH_IRI, OracleStream
from tests.oracles.update_ast import Operation
from tests.oracles.values import Undefined
from tests.update_requests import GRAPHS, OPERATIONS, canonical, outcome, request_text, stored

A, B = f"{make.EX}a", f"{make.EX}b"
TIMING = make.PREDICATES[1]
INTO = GRAPHS[1]
SETTLE_S = 60.0
TRIPLES = make.triples(blank=False)
GAPS = st.sampled_from([0, 0, 1, 40, 100, 101, 250, 900])
Steps = list[tuple[Triple, int]]
STEPS = st.lists(st.tuples(TRIPLES, st.sampled_from([0, 0, 1, 30, 60, 99, 100, 150])), max_size=8)


def beside(graph: Term | None) -> Answer:
    """The triples of a window with those of a stored graph that have the same subject and no blank node."""

    def answer(window: set[Triple], model: Evolving) -> Rows:
        held = [triple for triple in model.graph(graph) if triple[2].kind != "bnode"]
        return Counter((*tuple_, *triple[1:]) for tuple_ in window for triple in held if tuple_[0] == triple[0])

    return answer


@dataclass(frozen=True)
class Watch:
    stream: str
    range_ms: int
    step_ms: int
    dataset: str
    where: str
    answer: Answer | None

    def text(self, name: str) -> str:
        size = f"[RANGE {self.range_ms}ms STEP {self.step_ms}ms]"
        return (
            f"REGISTER QUERY {name} AS SELECT * {self.dataset} STREAM <{self.stream}> {size} WHERE {{ {self.where} }}"
        )


_NO_BLANK = "FILTER (!isBlank(?x))"
WATCHES = {
    "short": Watch(A, 300, 100, "FROM", "?s ?p ?o", None),
    "long": Watch(B, 2000, 1000, "FROM", "?s ?p ?o", None),
    "default": Watch(
        A,
        600,
        300,
        f"FROM <{DEFAULT_GRAPH_IRI}> FROM NAMED",
        f"GRAPH <{A}> {{ ?s ?p ?o }} ?s ?q ?x {_NO_BLANK}",
        beside(None),
    ),
    "named": Watch(
        B,
        400,
        400,
        f"FROM NAMED <{INTO.value}> FROM NAMED",
        f"GRAPH <{B}> {{ ?s ?p ?o }} GRAPH <{INTO.value}> {{ ?s ?q ?x {_NO_BLANK} }}",
        beside(INTO),
    ),
}
COLUMNS = ("s", "p", "o", "q", "x")


def rows_of(window: Any) -> Rows:
    order = [window.vars.index(name) for name in COLUMNS if name in window.vars]
    return Counter(tuple(from_rdflib(row[place]) for place in order) for row in window)


@dataclass
class Reader:
    """A registered query: its handle in this life of the engine, and the windows that were read in all of them."""

    handle: Any
    registered_ms: int
    delivered: Delivered = field(default_factory=Delivered)


class LifeMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.lives = 0
        self.readers: dict[str, Reader] = {}
        self.model = Evolving(
            {
                A: OracleStream(A, 100, frozenset({TIMING.value})),
                B: OracleStream(B, 200, into=INTO),
            }
        )

    @initialize(
        hash_bits=st.sampled_from([62, 62, 6]),
        segment_bytes=st.sampled_from([1 << 10, 1 << 12, 1 << 20]),
        tick_ms=st.sampled_from([0, 0, 300]),
        watched=st.sets(st.sampled_from(sorted(WATCHES)), min_size=2),
    )
    def begin(self, hash_bits: int, segment_bytes: int, tick_ms: int, watched: set[str]) -> None:
        self.model.tick_ms = tick_ms or self.model.tick_ms
        self.settings = wukongs.Settings(
            hash_bits=hash_bits,
            tick_ms=tick_ms,
            log_segment_bytes=segment_bytes,
            checkpoint_bytes=4 * segment_bytes,
            sync_interval_ms=1000,
        )
        self._open(self.folder / "0")
        for stream in self.streams.values():
            stream.advance(0)
        for name in sorted(watched):
            self.register(name)

    def teardown(self) -> None:
        if hasattr(self, "engine"):
            try:
                self._end()
            finally:
                self.engine.close()
        shutil.rmtree(self.folder)

    def _open(self, folder: Path) -> None:
        self.engine = wukongs.Engine(folder, settings=self.settings)
        self.streams = {
            A: self.engine.stream(A, timing=[TIMING.value], batch_ms=100, history_ms=400),
            B: self.engine.stream(B, batch_ms=200, history_ms=400, into=INTO.value, index="matching"),
        }
        assert {query.name for query in self.engine.queries()} == set(self.readers)
        for name, reader in self.readers.items():
            reader.handle = self.engine.register(WATCHES[name].text(name))
            reader.delivered.restart()
            reader.delivered.acknowledged_ms = -1  # it is logged with what comes later, so such a window may come again

    # --- what is told -------------------------------------------------------------------------------------------------

    @rule(first=STEPS, second=STEPS, gap=st.none() | GAPS, looks=st.booleans())
    def push(
        self, first: list[tuple[Triple, int]], second: list[tuple[Triple, int]], gap: int | None, looks: bool
    ) -> None:
        """Push to both streams, then close both up to the later one and a gap."""
        for stream, steps in ((A, first), (B, second)):
            t = self.model.streams[stream].last_ms + 1  # after an advance to t, tuples of t are late
            tuples = []
            for triple, step in steps:
                t += step
                tuples.append((triple, t))
            self.streams[stream].push([(*map(ntriples, triple), time) for triple, time in tuples])
            self.model.push(stream, tuples)
        if gap is not None:
            self._advance(gap)
        if looks:
            self._look()

    push_more = push

    def _advance(self, gap: int) -> None:
        t = max(stream.last_ms for stream in self.model.streams.values()) + gap
        for name, stream in self.streams.items():
            stream.advance(t)
            self.model.advance(name, t)

    @rule(graph=st.sampled_from([None, *GRAPHS]), triples=st.lists(TRIPLES, max_size=6))
    def load(self, graph: Term | None, triples: list[Triple]) -> None:
        data = "".join(nquad(triple, graph) for triple in triples).encode()
        self.engine.load(io.BytesIO(data), format="nq")
        self.model.quads = self.model.quads | {(graph, triple) for triple in triples}

    @rule(request=st.lists(OPERATIONS, min_size=1, max_size=3))
    def update(self, request: list[Operation]) -> None:
        text = request_text(request)
        try:
            expected, _ = outcome(self.model.quads, request)
        except (TooBig, Undefined):
            return
        if expected is None:
            try:
                self.engine.update(text)
            except wukongs.UpdateError:
                self._look()
                return
            raise AssertionError(f"not refused: {text}")
        self.engine.update(text)
        self.model.quads = expected
        self._look()

    def _look(self) -> None:
        """Compare all that is stored; from then on the model calls blank nodes as the engine does."""
        self.engine.settle(SETTLE_S)
        found = stored(self.engine)
        if found != self.model.quads:
            assert canonical(found) == canonical(self.model.quads)
            self.model.quads = found
        assert self.engine.stats()["stored_triples"] == len(found)
        names = {graph.value for graph, _ in found if graph is not None}
        assert set(self.engine.graph_names()) == names

    # --- windows ------------------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(sorted(WATCHES)))
    def register(self, name: str) -> None:
        if name in self.readers:
            return
        watch = WATCHES[name]
        self.engine.settle(SETTLE_S)
        self.readers[name] = Reader(self.engine.register(watch.text(name)), self.model.stable_ms)
        self.model.watch(name, watch.stream, watch.range_ms, watch.step_ms, watch.answer)

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def close_query(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.readers)))
        self.readers.pop(name).handle.close()
        del self.model.queries[name]

    @precondition(lambda self: self.readers)
    @rule(data=st.data(), count=st.integers(1, 5))
    def read(self, data: st.DataObject, count: int) -> None:
        self.engine.settle(SETTLE_S)
        self._read(data.draw(st.sampled_from(sorted(self.readers))), count)

    def _read(self, name: str, count: int) -> None:
        reader, watched = self.readers[name], self.model.queries[name]
        previous = None
        for window in reader.handle.results(timeout_s=0):
            if previous is not None:
                reader.delivered.acknowledged_ms = previous
            previous = window.end_ms
            assert window.end_ms in watched.expected, f"{name} fired at {window.end_ms}"
            if window.partial:  # slices that were dropped before the query came cannot be in its first windows
                assert window.end_ms - watched.range_ms < reader.registered_ms, f"{name} at {window.end_ms}"
                reader.delivered.read(window.end_ms, "partial")
            else:
                rows = rows_of(window)
                assert rows == watched.expected[window.end_ms], f"{name} at {window.end_ms}"
                reader.delivered.read(window.end_ms, rows)
            count -= 1
            if count == 0:
                break

    # --- its ends -----------------------------------------------------------------------------------------------------

    @rule()
    def checkpoint(self) -> None:
        self.engine.checkpoint()

    @rule()
    def restart(self) -> None:
        self.engine.close()
        self._open(self.folder / str(self.lives))

    @rule()
    def crash(self) -> None:
        self.lives += 1
        copy = self.folder / str(self.lives)
        with core_of(self.engine).journal._turn:  # no checkpoint meanwhile: a copy takes time, a crash does not
            shutil.copytree(self.folder / str(self.lives - 1), copy)
        self.engine.close()
        self._open(copy)

    def _end(self) -> None:
        self.crash()
        self._advance(1000)
        self._look()
        for name, reader in self.readers.items():
            self._read(name, 1 << 30)
            missing = self.model.must_come(name) - set(reader.delivered.rows)
            assert not missing, f"{name}: no windows {sorted(missing)}"


def test_lives() -> None:
    run_state_machine_as_test(LifeMachine, settings=fuzzed(8, steps=25))
