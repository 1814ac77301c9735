"""Random lives of a durable engine, cut off and opened again, against a list of what was acknowledged and a twin.

The twin is an engine in memory that is told the same and never ends. A crash leaves what the process had written: a
copy of the folder, taken while the engine is open, is opened in its place.
"""

from __future__ import annotations

import io
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
from hypothesis import given

import wukongs
from tests.fuzz import fuzzed
from tests.inside import core_of
from tests.oracles.durable import Delivered, Model, Rows, Triple

EX = "http://ex/"
STREAMS = (EX + "a", EX + "b")
TIMING = EX + "seen"
LAST_MS = 20_000
LAST = 4
QUERIES: dict[str, tuple[str | None, int | None, int, str]] = {
    "all": (STREAMS[0], 300, 100, f"FROM STREAM <{STREAMS[0]}> [RANGE 300ms STEP 100ms] WHERE {{ ?s ?p ?o }}"),
    "wide": (STREAMS[1], 2000, 1000, f"FROM STREAM <{STREAMS[1]}> [RANGE 2s STEP 1s] WHERE {{ ?s ?p ?o }}"),
    "narrow": (None, 1000, 500, f"FROM STREAM <{STREAMS[1]}> [RANGE 1s STEP 500ms] WHERE {{ ?s <{EX}q> ?o }}"),
    "joined": (
        None,
        500,
        500,
        f"FROM <urn:x-wukongs:default> FROM STREAM <{STREAMS[0]}> [RANGE 500ms STEP 500ms] "
        f"WHERE {{ GRAPH <{STREAMS[0]}> {{ ?s <{TIMING}> ?o }} ?s ?p ?o }}",
    ),
    "last": (STREAMS[0], None, 1, f"FROM STREAM <{STREAMS[0]}> [RANGE TRIPLES {LAST}] WHERE {{ ?s ?p ?o }}"),
    "counted": (
        None,
        500,
        500,
        f"FROM STREAM <{STREAMS[0]}> [RANGE 500ms STEP 500ms] FROM NAMED STREAM <{STREAMS[1]}> [RANGE TRIPLES 9 STEP 3]"
        f" WHERE {{ {{ ?s ?p ?o }} UNION {{ GRAPH ?g {{ ?s <{EX}q> ?o }} }} }}",
    ),
}

UPDATES = (
    "INSERT DATA { {one} . GRAPH <http://ex/g> { {one} . {other} } }",
    "DELETE DATA { {one} . {other} }",
    "DELETE { ?s ?p ?o } INSERT { ?o ?p [] GRAPH <http://ex/g> { ?s ?p ?o } } "
    "WHERE { {one} . ?s ?p ?o FILTER (isIRI(?o)) }",
    "DELETE WHERE { ?s <http://ex/p> ?o } ; INSERT DATA { {other} }",
    "COPY DEFAULT TO <http://ex/h> ; DELETE DATA { GRAPH <http://ex/h> { {one} } }",
    "CLEAR GRAPH <http://ex/g> ; INSERT { GRAPH <http://ex/g> { ?s ?p _:new } } WHERE { ?s ?p ?o }",
    "CLEAR DEFAULT ; INSERT DATA { {one} } ; ADD SILENT <http://ex/h> TO DEFAULT",
)
QUADS = "SELECT ?g ?s ?p ?o { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }"

names = st.integers(0, 12).map(lambda number: f"<{EX}n{number}>")
triples = st.tuples(names, st.sampled_from([f"<{EX}p>", f"<{EX}q>", f"<{TIMING}>"]), names)
gaps = st.sampled_from([0, 0, 1, 40, 99, 100, 101, 250, 900])
pushes = st.tuples(
    st.just("push"), st.sampled_from(STREAMS), st.lists(st.tuples(triples, gaps), min_size=1, max_size=6)
)
operations = st.one_of(
    pushes,
    pushes,
    pushes,
    st.tuples(st.just("advance"), st.sampled_from(STREAMS), gaps | st.just(3000)),
    # A load of nothing is not in the log, and blank nodes of later updates are named by how many loads there were.
    st.tuples(st.just("load"), st.lists(triples, min_size=1, max_size=5)),
    st.tuples(st.just("update"), st.sampled_from(UPDATES), triples, triples),
    st.tuples(st.just("update"), st.sampled_from(UPDATES), triples, triples),
    st.tuples(st.just("register"), st.sampled_from(sorted(QUERIES))),
    st.tuples(st.just("close_query"), st.sampled_from(sorted(QUERIES))),
    st.tuples(st.just("read"), st.sampled_from(sorted(QUERIES)), st.integers(1, 4)),
    st.tuples(st.just("checkpoint")),
    st.tuples(st.just("crash")),
    st.tuples(st.just("restart")),
)


def text(name: str) -> str:
    return f"REGISTER QUERY {name} AS SELECT * {QUERIES[name][3]}"


def rows_of(window: Any) -> Rows:
    return tuple(sorted(tuple(map(str, row)) for row in window))


def bare(triple: Triple) -> Triple:
    subject, predicate, term = (part.strip("<>") for part in triple)
    return subject, predicate, term


@dataclass
class Life:
    """A durable engine, its twin and its model."""

    folder: Path
    settings: wukongs.Settings
    model: Model = field(default_factory=lambda: Model(dict.fromkeys(STREAMS, frozenset({TIMING}))))
    queries: dict[str, Any] = field(default_factory=dict)
    twins: dict[str, Any] = field(default_factory=dict)
    delivered: dict[str, Delivered] = field(default_factory=dict)
    stands_ms: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STREAMS, 0))
    lives: int = 0
    is_updated: bool = False
    """From then on only the twin knows what is stored."""

    def __post_init__(self) -> None:
        self.twin = wukongs.Engine(settings=self.settings)
        self.engine = wukongs.Engine(self.folder / "0", settings=self.settings)
        self.twin_streams = self._declare(self.twin)
        self.streams = self._declare(self.engine)
        for stream in [*self.streams.values(), *self.twin_streams.values()]:
            stream.advance(0)

    def _declare(self, engine: wukongs.Engine) -> dict[str, Any]:
        return {
            iri: engine.stream(iri, timing=[TIMING], batch_ms=100, history_ms=400, index=index)
            for iri, index in zip(STREAMS, ("all", "matching"), strict=True)
        }

    def do(self, operation: tuple[Any, ...]) -> None:
        getattr(self, operation[0])(*operation[1:])

    def push(self, stream: str, steps: list[tuple[Triple, int]]) -> None:
        tuples, t = [], max(self.stands_ms[stream], 1)
        for triple, gap in steps:
            t += gap
            tuples.append((*triple, t))
        for pushed in (self.streams[stream], self.twin_streams[stream]):
            pushed.push(tuples)
        self.stands_ms[stream] = t
        self.model.push(stream, [(bare(row[:3]), row[3]) for row in tuples])

    def advance(self, stream: str, gap: int) -> None:
        t = self.stands_ms[stream] + gap
        for each in (self.streams[stream], self.twin_streams[stream]):
            each.advance(t)
        self.stands_ms[stream] = t + 1

    def load(self, loaded: list[Triple]) -> None:
        data = "".join(f"{' '.join(triple)} .\n" for triple in loaded).encode()
        sns = {engine.load(io.BytesIO(data), format="nt") for engine in (self.engine, self.twin)}
        self.model.loaded |= {bare(triple) for triple in loaded}
        assert len(sns) == 1

    def update(self, template: str, one: Triple, other: Triple) -> None:
        """Over all that is closed by now, in both."""
        text = template.replace("{one}", " ".join(one)).replace("{other}", " ".join(other))
        for engine in (self.engine, self.twin):
            engine.settle(timeout_s=60)
        assert self.engine.update(text) == self.twin.update(text)
        self.is_updated = True
        assert self._quads(self.engine) == self._quads(self.twin)

    def _quads(self, engine: wukongs.Engine) -> list[tuple[str, ...]]:
        return sorted(tuple(map(str, row)) for row in engine.query(QUADS))

    def register(self, name: str) -> None:
        if name not in self.queries:
            # Both stand at the same time when the query comes.
            for engine in (self.engine, self.twin):
                engine.settle(timeout_s=60)
            self.queries[name] = self.engine.register(text(name))
            self.twins[name] = self.twin.register(text(name))
            self.delivered[name] = Delivered()

    def close_query(self, name: str) -> None:
        if name in self.queries:
            self.queries.pop(name).close()
            self.twins.pop(name).close()
            del self.delivered[name]

    def read(self, name: str, count: int) -> None:
        if name in self.queries:
            for engine in (self.engine, self.twin):
                engine.settle(timeout_s=60)
            self._read(name, count)

    def _read(self, name: str, count: int) -> None:
        delivered = self.delivered[name]
        previous = None
        for window in self.queries[name].results(timeout_s=0):
            if previous is not None:
                delivered.acknowledged_ms = previous
            delivered.read(window.end_ms, (window.partial, rows_of(window)))
            stream, range_ms, _, _ = QUERIES[name]
            if stream is not None and not window.partial:
                if range_ms is None:
                    expected = self.model.last(stream, LAST, window.end_ms)
                else:
                    expected = self.model.window(stream, window.end_ms - range_ms, window.end_ms)
                assert set(rows_of(window)) == expected, f"{name} at {window.end_ms}"
            previous = window.end_ms
            count -= 1
            if count == 0:
                break

    def checkpoint(self) -> None:
        self.engine.checkpoint()

    def crash(self) -> None:
        self.lives += 1
        copy = self.folder / str(self.lives)
        with core_of(self.engine).journal._turn:  # no checkpoint meanwhile: a copy takes time, a crash does not
            shutil.copytree(self.folder / str(self.lives - 1), copy)
        self.engine.close()
        self._open(copy)

    def restart(self) -> None:
        self.engine.close()
        self._open(self.folder / str(self.lives))

    def _open(self, folder: Path) -> None:
        self.engine = wukongs.Engine(folder, settings=self.settings)
        assert sorted(self.engine.streams()) == sorted(STREAMS)
        assert {query.name for query in self.engine.queries()} == set(self.queries)
        self.streams = self._declare(self.engine)
        self.queries = {name: self.engine.register(text(name)) for name in self.queries}
        for delivered in self.delivered.values():
            delivered.restart()
            # Acknowledgements are logged with what comes after them, so a crash may bring such a window again.
            delivered.acknowledged_ms = -1

    def end(self) -> None:
        for stream in STREAMS:
            for each in (self.streams[stream], self.twin_streams[stream]):
                each.advance(max(*self.stands_ms.values(), LAST_MS) // 1000 * 1000)
        for engine in (self.engine, self.twin):
            engine.settle(timeout_s=60)
        for name, twin in self.twins.items():
            self._read(name, 1 << 30)
            expected = {window.end_ms: (window.partial, rows_of(window)) for window in twin.results(timeout_s=0)}
            assert self.delivered[name].rows == expected, name
        assert self._quads(self.engine) == self._quads(self.twin)
        if not self.is_updated:
            stored = {tuple(map(str, row)) for row in self.engine.query("SELECT ?s ?p ?o { ?s ?p ?o }")}
            assert stored == self.model.stored(1 << 60)


@fuzzed(20)
@given(
    st.lists(operations, min_size=5, max_size=30),
    st.sampled_from([62, 62, 6]),
    st.sampled_from([1 << 10, 1 << 12, 1 << 20]),
)
def test_nothing_acknowledged_is_lost(steps: list[tuple[Any, ...]], hash_bits: int, segment_bytes: int) -> None:
    folder = Path(tempfile.mkdtemp())
    settings = wukongs.Settings(
        hash_bits=hash_bits, log_segment_bytes=segment_bytes, checkpoint_bytes=4 * segment_bytes, sync_interval_ms=1000
    )
    life = Life(folder, settings)
    try:
        for step in [("register", "all"), ("register", "joined"), *steps, ("crash",)]:
            life.do(step)
        life.end()
    finally:
        life.engine.close()
        life.twin.close()
        shutil.rmtree(folder)
