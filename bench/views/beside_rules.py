"""Rules of ours beside a program of differential dataflow: all that follows, and the corrections of changes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import wukongs
from wukongs.bench.peers import WUKONGS
from wukongs.bench.peers.dataflow import NAME, Change, Dataflow, numbers_of
from wukongs.bench.rules.data import EX
from wukongs.bench.views.figures import SETTLE_S, Figures, followed

BOTTOM_UP, CORRECTION, LONGEST = "bottom-up", "correction", "longest correction"
CHUNK = 1_000_000
RULES_S = 1800
"""How long one change may take: the first one that needs the ranks of what follows derives all of it anew."""
Pairs = Iterable[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Relation:
    """A predicate that rules conclude. offset: what the program adds to the objects of its triples."""

    name: str
    offset: int = 0


@dataclass(slots=True)
class Sides:
    """An engine with a view of each relation, and the program of the peer."""

    engine: wukongs.Engine
    relations: Sequence[Relation]
    peer: Dataflow
    views: list[Any] = field(default_factory=list)
    samples: dict[str, list[float]] = field(default_factory=dict)
    rows: int = 0

    @staticmethod
    @contextmanager
    def open(relations: Sequence[Relation], view: str, may_build: bool) -> Iterator[Sides]:
        """view: of the program. Raises PeerMissing."""
        peer = Dataflow.start(view, may_build=may_build)
        try:
            with wukongs.Engine(settings={"rules_timeout_s": RULES_S}) as engine:
                yield Sides(engine, relations, peer)
        finally:
            peer.close()

    def close_both(
        self, figures: Figures, rules: str, tables: Sequence[pa.Table], pairs: Pairs, second: Pairs = ()
    ) -> None:
        """Store triples and conclude all that follows, on both sides. pairs: the edges, as the program reads them;
        second: its other relation. Raises WrongAnswer."""
        began_s = time.perf_counter()
        for table in tables:
            for first in range(0, len(table), CHUNK):
                self.engine.apply(table.slice(first, CHUNK))
        self.engine.add_rules(rules)
        ours_s = time.perf_counter() - began_s
        theirs_ms, [theirs] = self.peer.apply([*_edges("e+", pairs), *_second("a+", second)])
        tables = [
            self.engine.query(f"PREFIX : <{EX}> SELECT ?x ?y {{ ?x :{one.name} ?y }}").arrow(dictionary=True)
            for one in self.relations
        ]
        figures.check("all that follows", theirs, self._change([[one] for one in tables]))
        figures.add(BOTTOM_UP, [ours_s], "s", rows=theirs.rows)
        figures.add(BOTTOM_UP, [theirs_ms / 1e3], "s", engine=NAME, rows=theirs.rows)
        for number, one in enumerate(self.relations):
            text = f"PREFIX : <{EX}> REGISTER QUERY v{number} AS SELECT ?x ?y {{ ?x :{one.name} ?y }}"
            self.views.append(self.engine.register(text, snapshot=False))
        self.engine.settle(SETTLE_S)
        for view in self.views:
            list(view.results(timeout_s=0))

    def correct(
        self,
        figures: Figures,
        come: tuple[pa.Table, Pairs],
        gone: tuple[pa.Table, Pairs],
        gone_second: Pairs = (),
    ) -> None:
        """Let triples come and go on both sides, with what follows. gone_second: of the program's other relation.
        Raises WrongAnswer."""
        _, ours_ms, reports = followed(self.engine, self.views, partial(self.engine.apply, come[0], gone[0]))
        theirs_ms, [theirs] = self.peer.apply(
            [*_edges("e+", come[1]), *_edges("e-", gone[1]), *_second("a-", gone_second)]
        )
        found = self._change([[one.arrow(dictionary=True) for one in of_view] for of_view in reports])
        figures.check("a correction", theirs, found)
        self.samples.setdefault(WUKONGS, []).append(ours_ms)
        self.samples.setdefault(NAME, []).append(theirs_ms)
        self.rows += theirs.rows

    def write_corrections(self, figures: Figures, **case: float) -> None:
        """Add the samples since the last call as figures of a case."""
        for who, values in self.samples.items():
            figures.add(CORRECTION, values, "ms", who, self.rows // len(values), **case)
            figures.add(LONGEST, [max(values)], "ms", who, None, **case)
        self.samples, self.rows = {}, 0

    def _change(self, tables: Sequence[Sequence[pa.Table]]) -> Change:
        """Return the change that tables of each relation have, with or without weights."""
        firsts, seconds = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
        weights = [np.empty(0, np.int64)]
        for relation, of_it in zip(self.relations, tables, strict=True):
            for table in of_it:
                firsts.append(numbers_of(table.column(0)))
                seconds.append(numbers_of(table.column(1)) + np.uint64(relation.offset))
                has_weight = "weight" in table.column_names
                weights.append(table.column("weight").to_numpy() if has_weight else np.ones(len(table), np.int64))
        return Change.of(np.concatenate(firsts), np.concatenate(seconds), np.concatenate(weights))


def _edges(kind: str, pairs: Pairs) -> Iterator[str]:
    return (f"{kind} {source} {target}\n" for source, target in pairs)


def _second(kind: str, pairs: Pairs) -> Iterator[str]:
    return (f"{kind} 0 {first} {second}\n" for first, second in pairs)
