"""The readers of the live views of a victim: each keeps the sum of its reports, and its position, in a file of its own,
before it acknowledges a report. The file and the data folder do not know of each other."""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import wukongs

UPDATED = "<http://ex/updated>"
VIEWS = {
    "edges": f"SELECT ?s ?o WHERE {{ ?s {UPDATED} ?o }}",
    "numbers": f"SELECT ?s (COUNT(*) AS ?n) WHERE {{ ?s {UPDATED} ?o }} GROUP BY ?s",
    "hops": f"SELECT DISTINCT ?a ?c WHERE {{ ?a {UPDATED} ?b OPTIONAL {{ ?b {UPDATED} ?c }} }}",
    "least": f"SELECT ?s ?o WHERE {{ ?s {UPDATED} ?o }} ORDER BY ?s ?o LIMIT 5",
    "named": f"SELECT ?g (CONCAT(STR(?s), '!') AS ?t) WHERE {{ GRAPH ?g {{ ?s {UPDATED} ?o }} }}",
    "joined": "SELECT ?s ?o WHERE { ?s <http://ex/p> ?o }",
    "periods": f"SELECT ?s ?o WHERE {{ ?s {UPDATED} ?o }}",
    "bound": f"SELECT ?o WHERE {{ ?s {UPDATED} ?o }}",
}
"""By their names. `joined` follows tuples of streams, `periods` reports every 200 ms, `bound` has arguments for ?s."""
EVERY_MS = 200
Row = tuple[str | None, ...]


def text_of(name: str) -> str:
    return f"REGISTER QUERY {name} AS {VIEWS[name]}"


def rows_of(rows: Any) -> list[Row]:
    return [tuple(None if term is None else str(term) for term in row) for row in rows]


class KeptSum:
    """The reader of one view. position: None: it has read nothing."""

    def __init__(self, path: Path) -> None:
        self.path, self.position, self.sum = path, None, Counter[Row]()
        if path.exists():
            position, rows = json.loads(path.read_text())
            self.position, self.sum = tuple(position), Counter({tuple(row): count for row, count in rows})

    def take(self, report: Any) -> None:
        """Add a report, unless it was added before. Raises AssertionError for one that cannot be added."""
        end = (report.snapshot, report.minor)
        if report.is_reset:
            self.sum = Counter()
        elif self.position is not None and end <= self.position:
            return
        else:
            assert self.position is not None, f"{self.path.name}: a change before the first reset"
            assert report.after <= self.position[0], f"{self.path.name}: {report.after} behind {self.position}"
        for row, weight in report.changes():
            self.sum[rows_of([row])[0]] += weight
        self.sum = Counter({row: count for row, count in self.sum.items() if count})
        assert min(self.sum.values(), default=1) > 0, f"{self.path.name}: {self.sum}"
        self.position = end
        temporary = self.path.with_suffix(".new")
        temporary.write_text(json.dumps([end, [[row, count] for row, count in self.sum.items()]]))
        os.replace(temporary, self.path)  # a process that is killed leaves the one file or the other


class KeptSums:
    """The views of an engine, and their readers."""

    def __init__(self, engine: wukongs.Engine, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.engine = engine
        self.views: dict[str, Any] = {}
        for name in VIEWS:
            options: dict[str, Any] = {"every_ms": EVERY_MS} if name == "periods" else {}
            options |= {"bindings": [{"s": "<http://ex/n1>"}]} if name == "bound" else {}
            self.views[name] = engine.register(text_of(name), **options)
        self.readers = {name: KeptSum(folder / f"{name}.json") for name in VIEWS}

    def bind(self, number: int) -> None:
        """Bind an argument, and unbind another."""
        bound = self.views["bound"]
        bound.bind([{"s": f"<http://ex/n{number % 12}>"}])
        numbers = {int(argument) for argument, *_ in rows_of(bound.content()) if argument is not None}
        if len(numbers) > 3:
            with contextlib.suppress(wukongs.DataError):  # the content is behind, and it is unbound already
                bound.unbind(min(numbers))

    def read(self, number: int | None = None) -> None:
        """Have readers read. number: of an operation, by which some do not; None: all read to the end."""
        for place, (name, view) in enumerate(self.views.items()):
            if number is not None and (number + place) % 3 == 0:
                continue
            for report in view.results(timeout_s=0, group="kept"):
                self.readers[name].take(report)

    def check(self) -> None:
        """Raise AssertionError if a sum is not the view's content, or the content not the text asked once."""
        for name, view in self.views.items():
            content = Counter(rows_of(view.content()))
            assert self.readers[name].sum == content, f"{name}: {self.readers[name].sum} is not {content}"
            if name != "bound":
                assert content == Counter(rows_of(self.engine.query(VIEWS[name]))), f"{name} asked once"
