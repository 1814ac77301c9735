"""Results made by hand, for the tests of results and their formats."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wukongs.query.output.results import Kind, Result, Triple
from wukongs.query.terms.decoding import Utf8Reader
from wukongs.store.dictionary import join_texts
from wukongs.store.dtypes import UNBOUND, Int64Array, UInt8Array
from wukongs.store.term_ids import term_ids


class ListReader:
    """Terms by their place in a list; `asked` keeps every id that was asked, in order."""

    def __init__(self, terms: Sequence[str]) -> None:
        self.terms = list(terms)
        self.asked: list[int] = []

    def texts(self, ids: Int64Array) -> list[str]:
        assert ids.dtype == np.int64
        assert UNBOUND not in ids
        self.asked += ids.tolist()
        return [self.terms[term_id] for term_id in ids.tolist()]

    def gather(self, ids: Int64Array) -> tuple[UInt8Array, Int64Array]:
        return join_texts(self.texts(ids))


def columns_of(rows: Sequence[Sequence[str | None]], width: int) -> tuple[ListReader, tuple[Int64Array, ...]]:
    terms = sorted({text for row in rows for text in row if text is not None})
    places = {text: place for place, text in enumerate(terms)}
    columns = tuple(
        np.array([UNBOUND if row[at] is None else places[str(row[at])] for row in rows], np.int64)
        for at in range(width)
    )
    return ListReader(terms), columns


def select(names: str, rows: Sequence[Sequence[str | None]], snapshot: int = 7) -> Result:
    """Make a select result; names apart by blanks, rows of canonical texts or None."""
    variables = tuple(names.split())
    reader, columns = columns_of(rows, len(variables))
    return Result("select", variables, columns, reader, snapshot, length=len(rows))


class IdReader:
    """Terms by their own ids."""

    def __init__(self, terms: Sequence[str]) -> None:
        self.by_id = dict(zip(term_ids(terms).tolist(), terms, strict=True)) if terms else {}

    def texts(self, ids: Int64Array) -> list[str]:
        return [self.by_id[term_id] for term_id in ids.tolist()]

    def gather(self, ids: Int64Array) -> tuple[UInt8Array, Int64Array]:
        return join_texts(self.texts(ids))


def known(names: str, rows: Sequence[Sequence[str | None]], kind: Kind = "select") -> Result:
    """Make a result whose terms have the ids that the store gives them. Rows of canonical texts or None."""
    variables = tuple(names.split())
    width = 3 if kind == "construct" else len(variables)
    reader = IdReader(sorted({text for row in rows for text in row if text is not None}))
    ids = {text: term_id for term_id, text in reader.by_id.items()}
    columns = tuple(
        np.array([UNBOUND if row[at] is None else ids[str(row[at])] for row in rows], np.int64) for at in range(width)
    )
    return Result(kind, variables, columns, reader, 7, kind == "ask" or None, len(rows))


def ask(answer: bool) -> Result:
    return Result("ask", (), (), ListReader([]), 7, boolean=answer)


def construct(triples: Sequence[Triple]) -> Result:
    reader, columns = columns_of(list(dict.fromkeys(triples)), 3)
    return Result("construct", (), columns, reader, 7)


_: tuple[type[Utf8Reader], ...] = (ListReader, IdReader)
