"""The answer of a continuous query for one window, by pyoxigraph: windows and stored data as named graphs.

The text of a query becomes plain SPARQL: REGISTER goes, `FROM [NAMED] STREAM <s> [...]` becomes `FROM [NAMED] <s>`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import pyoxigraph

DEFAULT_GRAPH = "urn:x-wukongs:default"
_REGISTER = re.compile(r"REGISTER\s+QUERY\s+\w+\s+AS\b", re.IGNORECASE)
_STREAM = re.compile(r"FROM\s+(NAMED\s+)?STREAM\s+(\S+)\s*\[[^\]]*\]", re.IGNORECASE)


def split_time(text: str) -> list[tuple[int, str]]:
    """`s p o . 12` lines as (12, `s p o .`)."""
    pairs = [line.rsplit(" ", 1) for line in text.splitlines()]
    return [(int(time), line) for line, time in pairs]


def plain_sparql(text: str) -> str:
    return _STREAM.sub(lambda match: f"FROM {match[1] or ''}{match[2]}", _REGISTER.sub("", text))


def answer(text: str, windows: Mapping[str, Iterable[str]], stored: Iterable[str]) -> int:
    """The number of rows for windows (stream IRI -> N-Triples lines) and stored N-Triples lines."""
    store = pyoxigraph.Store()
    for name, lines in {**windows, DEFAULT_GRAPH: stored}.items():
        data = "\n".join(lines).encode()
        store.bulk_load(data, format=pyoxigraph.RdfFormat.N_TRIPLES, to_graph=pyoxigraph.NamedNode(name))
    return len(list(store.query(plain_sparql(text))))  # type: ignore[arg-type]
