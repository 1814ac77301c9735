"""Steps of tests of live views: register one, change what is stored, read what has come."""

from __future__ import annotations

from collections import Counter
from typing import Any

import wukongs

EX = "PREFIX : <http://ex/> "
PAIRS = "SELECT ?x ?z WHERE { ?x :p ?y . ?y :p ?z }"
FIRST = EX + "INSERT DATA { :a :p :b . :b :p :c }"
"""What is stored when a test begins."""
Row = tuple[str | None, ...]


def register(engine: wukongs.Engine, text: str, head: str = "REGISTER QUERY", **options: Any) -> Any:
    """Register a view of the name v."""
    return engine.register(f"{EX}{head} v AS {text}", **options)


def update(engine: wukongs.Engine, text: str) -> int:
    """Change what is stored, and wait until views have followed; return the SN."""
    sn = engine.update(EX + text)
    engine.settle(30)
    return sn


def rows(report: Any) -> Counter[Row]:
    """Return the weights of a report's rows, IRIs by their last part."""
    texts = report.texts() if report.width else [()] * len(report)
    found = Counter[Row]()
    for row, weight in zip(texts, report.weights.tolist(), strict=True):
        found[tuple(None if cell is None else cell.replace("http://ex/", "") for cell in row)] += weight
    return found


def rows_of(content: Any) -> Counter[Row]:
    """Return how often a content has each row, IRIs by their last part."""
    return Counter(tuple(cell and cell.replace("http://ex/", "") for cell in row) for row in content.texts())


def joining(*tuples: tuple[str, int]) -> list[tuple[str, str, str, int]]:
    """Make tuples of subjects and times."""
    return [(f"<http://ex/{subject}>", "<http://ex/p>", "<http://ex/o>", at_ms) for subject, at_ms in tuples]


def read(view: Any, **options: Any) -> list[Any]:
    """Return the reports that wait."""
    return list(view.results(timeout_s=0, **options))
