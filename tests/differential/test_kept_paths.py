"""Paths of registered queries that are kept from firing to firing, against the definitions of section 18.4
(tests/oracles/paths.py): random graphs that change, random paths, windows that slide, stored triples that come and go,
pauses, and restarts."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path as Folder
from typing import Any

import pytest

import wukongs
from tests.fuzz import SEED, TIER, scaled
from tests.oracles import paths as oracle
from tests.oracles.paths import Path, Triples, Var
from wukongs.query.paths import forest, kept_paths, paths, reach

pytestmark = pytest.mark.nojit

S, G = "http://e/s", "http://e/g"
NODES = tuple(f"<http://e/{number}>" for number in range(9))
LINKS = ("<http://e/p>", "<http://e/q>", "<http://e/r>")
ASKS = "<http://e/asks>"
DEFAULT = "urn:x-wukongs:default"
LIVES = 5 if TIER == "fast" else scaled(50)
FIRINGS = 16
Row = tuple[Any, ...]


def random_path(rng: random.Random, depth: int) -> Path:
    match rng.choice("ll^/|!*+" if depth else "lll!"):
        case "l":
            return "link", rng.choice(LINKS)
        case "!":
            return "!", (ASKS, *rng.sample(LINKS, rng.choice((0, 1)))), rng.choice((None, None, (ASKS, LINKS[0])))
        case "^":
            return "^", random_path(rng, depth - 1)
        case "*" | "+" as suffix:
            return suffix, random_path(rng, depth - 1)
        case kind:
            return kind, random_path(rng, depth - 1), random_path(rng, depth - 1)


class Question:
    """A registered query with one path, and what the definitions say that it answers."""

    def __init__(self, rng: random.Random, name: str, ends: tuple[str, str] | None = None) -> None:
        self.name = name
        self.path: Path = (rng.choice("*++"), random_path(rng, 2))
        pairs = [("?x", "?y"), ("?x", "?y"), ("?x", "?x"), (rng.choice(NODES), "?y"), ("?x", rng.choice(NODES))]
        self.ends = ends or rng.choice(pairs)
        self.range_ms = rng.choice((100, 300, 500, 1000))
        self.place = rng.choice(("stored", "window", "both", "named", "stored named"))
        self.asks = ends is None and rng.random() < 0.4
        clause = f"FROM NAMED STREAM <{S}>"
        graphs = [f"FROM <{DEFAULT}>", f"FROM NAMED <{G}>"]
        if self.place in ("window", "both"):
            clause = f"FROM STREAM <{S}>"
            graphs = graphs[self.place == "window" :]
        text = f"{self.ends[0]} {oracle.text(self.path, str)} {self.ends[1]}"
        if self.place in ("named", "stored named"):
            text = f"GRAPH <{S if self.place == 'named' else G}> {{ {text} }}"
        asked = f"GRAPH <{S}> {{ ?s {ASKS} ?x }}" if "NAMED" in clause else f"?s {ASKS} ?x"
        where = f"{asked} . {text}" if self.asks else text
        self.text = (
            f"REGISTER QUERY {name} AS SELECT * {clause} [RANGE {self.range_ms}ms STEP 100ms] {' '.join(graphs)} "
            f"WHERE {{ {where} }}"
        )

    def expected(self, window: Triples, stored: Triples, named: Triples) -> Counter[Row]:
        merged = {"stored": stored, "window": window, "both": window | stored, "named": window}
        triples = merged.get(self.place, named)
        ends = [Var(end) if end.startswith("?") else end for end in self.ends]
        found = oracle.evaluate(self.path, *ends, triples)
        if self.asks:
            asks = stored | window if self.place == "both" else window
            rows = [{"?s": a, "?x": b} for a, p, b in asks if p == ASKS]
            # A variable that a join binds leads to itself only where the graph knows it.
            found = [{**row, **one} for row in rows for one in found if one.get("?x", row["?x"]) == row["?x"]]
        return Counter(tuple(sorted(one.items())) for one in found)


class Life:
    """An engine with some of these queries, and the sets of triples that it has to hold."""

    def __init__(self, rng: random.Random, folder: Folder | None = None, late: str = "drop") -> None:
        self.rng = rng
        self.late = late
        self.folder = folder
        self.questions = [Question(rng, f"q{number}") for number in range(4)]
        self.questions[0] = Question(rng, "q0", ("?x", "?y"))
        self.stored: dict[str, Triples] = {DEFAULT: set(), G: set()}
        self.tuples: list[tuple[int, tuple[str, str, str]]] = []
        self.at_ms = 0
        self.paused: set[str] = set()
        self.queries: dict[str, Any] = {}
        self.moved = 0
        self.open()

    def open(self) -> None:
        self.engine = wukongs.Engine() if self.folder is None else wukongs.Engine(data_dir=self.folder)
        self.stream = self.engine.stream(S, timing=True, batch_ms=100, late=self.late)
        self.queries = {one.name: self.engine.register(one.text) for one in self.questions}

    def close(self) -> None:
        self.moved += sum(query.stats().get("moves_of_paths", 0) for query in self.queries.values())
        self.engine.close()

    def triple(self) -> tuple[str, str, str]:
        rng = self.rng
        return rng.choice(NODES), rng.choice((*LINKS, *LINKS, ASKS)), rng.choice(NODES)

    def update(self) -> None:
        rng = self.rng
        graph = rng.choice((DEFAULT, G))
        known = sorted(self.stored[graph])
        gone = set(rng.sample(known, min(len(known), rng.choice((0, 0, 1, 2)))))
        come = {self.triple() for _ in range(rng.choice((0, 1, 3)))}
        if len(known) > 25:
            come = set()
        for word, triples in (("DELETE", gone), ("INSERT", come)):
            inside = " . ".join(map(" ".join, sorted(triples)))
            inside = f"GRAPH <{G}> {{ {inside} }}" if graph == G else inside
            self.engine.update(f"{word} DATA {{ {inside} }}")
        self.stored[graph] = (self.stored[graph] - gone) | come

    def tick(self) -> None:
        rng = self.rng
        for _ in range(rng.choice((0, 1, 1, 2))):
            self.update()
        if rng.random() < 0.1:
            name = rng.choice(sorted(self.queries)[1:])
            getattr(self.queries[name], "resume" if name in self.paused else "pause")()
            self.paused ^= {name}
        if self.late == "open" and self.at_ms and rng.random() < 0.2:  # no window that is closed has it
            late = self.at_ms - rng.randint(0, 400), self.triple()
            self.tuples.append(late)
            self.stream.push([(*late[1], late[0])])
        come = [(self.at_ms + rng.randint(1, 100), self.triple()) for _ in range(rng.choice((0, 1, 2, 4)))]
        self.tuples += sorted(come)
        self.stream.push([(*triple, at_ms) for at_ms, triple in sorted(come)])
        self.at_ms += 100
        self.stream.advance(self.at_ms)
        self.engine.settle(60)
        self.check()

    def check(self) -> None:
        for question in self.questions:
            windows = list(self.queries[question.name].results(timeout_s=0))
            assert len(windows) == (question.name not in self.paused), question.text
            after_ms = self.at_ms - question.range_ms
            window = {triple for at_ms, triple in self.tuples if after_ms < at_ms <= self.at_ms}
            for one in windows:
                assert one.end_ms == self.at_ms
                names = [f"?{name}" for name in one.vars]
                found = Counter(tuple(sorted(zip(names, row, strict=True))) for row in one.texts())
                expected = question.expected(window, self.stored[DEFAULT], self.stored[G])
                assert found == expected, (question.text, self.at_ms)


@pytest.fixture(autouse=True)
def _kept_if_there_is_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_paths, "ROWS_MIN", 0)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(LIVES))
def test_rows_are_those_of_the_definitions(number: int) -> None:
    life = Life(random.Random(f"kept paths {'tests' if SEED is None else SEED}/{number}"))
    for _ in range(FIRINGS):
        life.tick()
    life.close()
    assert life.moved > 0


@pytest.mark.parametrize("number", range(2 if TIER == "fast" else scaled(15)))
def test_rows_with_carried_tuples_are_those_of_the_definitions(number: int) -> None:
    """Of a stream with late="open" (DESIGN.md, section 6): a late tuple joins the windows that are not closed.

    While a window has such tuples its paths are searched anew. So some lives move none: then another one is tried."""
    for attempt in ("", "/1", "/2", "/3"):
        life = Life(random.Random(f"carried {'tests' if SEED is None else SEED}/{number}{attempt}"), late="open")
        for _ in range(FIRINGS):
            life.tick()
        life.close()
        if life.moved > 0:
            break
    assert life.moved > 0


@pytest.mark.slow
@pytest.mark.parametrize("number", range(2 if TIER == "fast" else scaled(15)))
def test_the_smallest_rooms_and_the_shortest_calls_change_nothing(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forest, "ENTRIES_FIRST", 1)
    monkeypatch.setattr(forest, "SPANS", 1)
    monkeypatch.setattr(forest, "EDGES_PER_CALL", 3)
    monkeypatch.setattr(paths, "PAIRS_MAX", 0)  # a constant and an end that a join binds
    life = Life(random.Random(f"small forests {'tests' if SEED is None else SEED}/{number}"))
    for _ in range(FIRINGS):
        life.tick()
    life.close()
    assert life.moved > 0


@pytest.mark.parametrize("number", range(2 if TIER == "fast" else scaled(15)))
def test_what_goes_back_to_searching_gives_the_same_rows(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forests that may take little room, changes that may look at little: paths come and go."""
    rng = random.Random(f"refused {'tests' if SEED is None else SEED}/{number}")
    monkeypatch.setattr(forest, "ENTRIES_FIRST", 1)
    monkeypatch.setattr(forest, "EDGES_PER_CALL", 20)
    monkeypatch.setattr(reach, "BYTES_MAX", rng.choice((500, 2000, 10_000)))
    monkeypatch.setattr(reach, "WORK_MIN", rng.choice((-10, 0, 100)))
    monkeypatch.setattr(reach, "TURNED_MIN", rng.choice((1, 3)))
    monkeypatch.setattr(reach, "REFUSALS_MAX", 1)
    life = Life(rng)
    for _ in range(FIRINGS):
        life.tick()
    life.close()


@pytest.mark.parametrize("number", range(2 if TIER == "fast" else scaled(10)))
def test_after_a_restart(number: int, tmp_path: Folder) -> None:
    life = Life(random.Random(f"restarts {'tests' if SEED is None else SEED}/{number}"), tmp_path)
    for _ in range(3):
        for _ in range(FIRINGS // 2):
            life.tick()
        life.close()
        life.open()
        life.paused = {name for name in life.paused if name in life.queries}
    life.tick()
    life.close()
    assert life.moved > 0
