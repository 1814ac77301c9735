"""Live views beside updates, readers in threads of their own, pauses, other texts and a small view_lag_max_rows: what
each reader has summed is the content in the end, and streams that views make have stored it."""

from __future__ import annotations

import random
import threading
from collections import Counter
from typing import Any

import pytest

import wukongs

EX = "PREFIX : <http://ex/> "
TEXTS = [
    "SELECT ?x ?z WHERE { ?x :p ?y . ?y :p ?z }",
    "SELECT ?y (COUNT(*) AS ?n) WHERE { ?x :p ?y } GROUP BY ?y",
    "SELECT DISTINCT ?y WHERE { ?x :p ?y OPTIONAL { ?y :p ?z } } ORDER BY ?y LIMIT 3",
    "SELECT ?x WHERE { ?x :p ?y FILTER NOT EXISTS { ?y :p ?z } }",
    "SELECT ?y WHERE { :a0 :p+ ?y }",
    "ASK { :a1 :p :a2 }",
    "CONSTRUCT { ?x :label ?l } WHERE { ?x :p ?y BIND(CONCAT(STR(?y), 'x') AS ?l) }",
]
MADE = [
    "CONSTRUCT { ?x :seen ?y } WHERE { ?x :p ?y }",
    "CONSTRUCT { ?y :end :yes } WHERE { ?x :p ?y MINUS { ?y :p ?z } }",
    "CONSTRUCT { ?x :count ?n } WHERE { SELECT ?x (COUNT(*) AS ?n) WHERE { ?x :p ?y } GROUP BY ?x }",
    TEXTS[-1],
]
FEW, MANY = range(1, 2), range(2, 30)
SEEDS = [*FEW, *(pytest.param(seed, marks=pytest.mark.slow) for seed in MANY)]


def change(engine: wukongs.Engine, chance: random.Random, most: int) -> None:
    count = chance.choice((1, 1, 2, most))
    data = " ".join(f":a{chance.randrange(8)} :p :a{chance.randrange(8)} ." for _ in range(count))
    engine.update(f"{EX}{'INSERT' if chance.random() < 0.55 else 'DELETE'} DATA {{ {data} }}")


def begin_again(view: Any, text: str, chance: random.Random) -> Any:
    """Pause and resume a view, or give it another text; return its text."""
    if chance.random() < 0.5:
        view.pause()
        view.resume()
        return view.source.text
    view.replace(f"{EX}REGISTER QUERY {view.name} AS {text}")
    return text


class Reader:
    """Sums what a view reports, in a thread, until it is stopped."""

    def __init__(self, view: Any) -> None:
        self.view, self.rows = view, Counter[tuple[str | None, ...]]()
        self.errors = list[BaseException]()
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._is_stopped.is_set():
                self.read(0.02)
        except BaseException as error:
            self.errors.append(error)

    def read(self, timeout_s: float) -> None:
        for report in self.view.results(timeout_s=timeout_s):
            if report.is_reset:
                self.rows.clear()
            texts = report.texts() if report.width else [()] * len(report)
            for row, weight in zip(texts, report.weights.tolist(), strict=True):
                self.rows[row] += weight
            assert min(self.rows.values(), default=0) >= 0

    def stop(self) -> Counter[tuple[str | None, ...]]:
        self._is_stopped.set()
        self._thread.join()
        self.read(0)
        assert self.errors == []
        return +self.rows


@pytest.mark.parametrize("seed", SEEDS)
def test_each_reader_has_the_content_in_the_end(seed: int) -> None:
    chance = random.Random(seed)
    with wukongs.Engine(settings={"view_lag_max_rows": chance.choice((0, 2, 5, 20))}) as engine:
        engine.update(EX + "INSERT DATA { :a0 :p :a1 }")
        views: list[Any] = [
            engine.register(
                f"{EX}REGISTER QUERY v{number} AS {text}",
                keep=chance.random() < 0.3,
                output=chance.choice((None, None, "rstream")),
            )
            for number, text in enumerate(TEXTS)
        ]
        readers = [Reader(view) for view in views]
        for _ in range(40):
            change(engine, chance, 40)
            if chance.random() < 0.3:
                begin_again(chance.choice(views), chance.choice(TEXTS[:-2]), chance)
            if chance.random() < 0.2:
                engine.settle(30)
        engine.settle(30)
        for view, reader in zip(views, readers, strict=True):
            content, found = view.content(), reader.stop()
            is_ask = content.kind == "ask"
            assert found == Counter([()] * content.boolean if is_ask else map(tuple, content.texts())), view.source.text
            view.close()
        assert engine.stats()["handles"] == []


@pytest.mark.parametrize("seed", SEEDS)
def test_streams_that_views_make_store_their_contents_in_the_end(seed: int) -> None:
    """The last view reads what the stream of the first one stores."""
    chance = random.Random(seed)
    with wukongs.Engine(settings={"view_lag_max_rows": chance.choice((0, 5, 20, 60))}) as engine:
        clock = engine.stream("http://ex/clock", batch_ms=10)
        clock.advance(0)
        engine.settle(30)
        back = "CONSTRUCT { ?o :back ?s } WHERE { GRAPH :g0 { ?s ?p ?o FILTER (!isLiteral(?o)) } }"
        texts = [chance.choice(MADE), chance.choice(MADE), back]
        views = []
        for number, text in enumerate(texts):
            engine.stream(f"http://ex/m{number}", batch_ms=100, into=f"http://ex/g{number}")
            head = f"{EX}REGISTER QUERY v{number} AS "
            views.append(engine.register(head + text, into=f"http://ex/m{number}", every_ms=100))
        now_ms = 0
        for _ in range(60):
            change(engine, chance, 10)
            if chance.random() < 0.4:
                now_ms += chance.choice((10, 50, 100, 250))
                clock.advance(now_ms)
            if chance.random() < 0.1:
                engine.settle(30)
            if chance.random() < 0.1:
                number = chance.randrange(2)
                found = begin_again(views[number], chance.choice(MADE), chance)
                texts[number] = found.removeprefix(f"{EX}REGISTER QUERY v{number} AS ")
        for end_ms in range(now_ms // 100 * 100 + 100, now_ms + 800, 100):  # a view that lags needs some periods
            clock.advance(end_ms)
            engine.settle(30)
        for number, text in enumerate(texts):
            stored = engine.query(f"SELECT * {{ GRAPH <http://ex/g{number}> {{ ?s ?p ?o }} }}").texts()
            assert set(stored) == set(engine.query(EX + text).texts()), text
