"""Helpers of the Engine's tests: names, and results as plain tuples."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import wukongs

EX = "http://ex/"
A, B = EX + "streamA", EX + "streamB"


def node(name: str) -> str:
    """<http://ex/name>, as N-Triples."""
    return f"<{EX}{name}>"


def at(name: str, t: int, predicate: str = "p", term: str = "o") -> tuple[str, str, str, int]:
    """A tuple to push: name predicate term, at t."""
    return node(name), node(predicate), node(term), t


def rows(result: Iterable[tuple[Any, ...]]) -> list[tuple[str, ...]]:
    """Sorted rows, IRIs without their namespace."""
    return sorted(tuple("" if term is None else str(term).removeprefix(EX) for term in row) for row in result)


def names(result: Iterable[tuple[Any, ...]]) -> list[str]:
    """The first column, sorted."""
    return [row[0] for row in rows(result)]


def register_text(
    window: str, name: str = "q", stream: str = A, where: str = "{ ?s ?p ?o }", select: str = "?s"
) -> str:
    return f"REGISTER QUERY {name} AS SELECT {select} FROM STREAM <{stream}> [{window}] WHERE {where}"


def windows(query: Any, timeout_s: float = 0) -> dict[int, list[str]]:
    """Window end -> first column, for all windows that a settled engine has reported."""
    found: dict[int, list[str]] = {}
    for window in query.results(timeout_s=timeout_s):
        assert window.end_ms not in found, f"window {window.end_ms} came twice"
        found[window.end_ms] = names(window)
    return found


def subjects(engine: wukongs.Engine) -> list[str]:
    """The subjects in the stored default graph, sorted."""
    return names(engine.query("SELECT ?s { ?s ?p ?o }"))


def slow_filter(names: str) -> str:
    """A filter that lets no row through, and takes 10 us for each in which variables of these one-letter names differ.

    A query over a million rows lasts for ten seconds with it, and takes little memory, so that its time ends first.
    """
    texts = ", ".join(f"STR(?{name})" for name in names)
    return f"FILTER({'SHA512(' * 10}CONCAT({texts}){')' * 10} = 'none')"
