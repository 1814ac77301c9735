"""Terms and quads without a syntax around them, as tables of terms that a registry can confirm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from wukongs.store.dtypes import CLASH_FIRST, INLINE_MARK, UNBOUND
from wukongs.store.encoded import Encoded, TermTable, replace_ids
from wukongs.store.quads import Quads
from wukongs.store.term_ids import hash_id, text_ids

if TYPE_CHECKING:
    from wukongs.store.term_registry import TermRegistry

CHUNK_ROWS = 1 << 17
_NO_TIMES = np.empty(0, np.int64)


def encode_texts(texts: Sequence[str], hash_bits: int) -> Encoded:
    """Return canonical forms, repeats allowed, as tuples: in tuple i every term but the graph is text i."""
    distinct = dict.fromkeys(texts)
    parts = [text.encode() for text in distinct]
    ids = text_ids(parts, hash_bits)
    places = np.flatnonzero(ids & INLINE_MARK == 0)
    firsts = np.sort(np.unique(ids[places], return_index=True)[1])
    others = np.delete(places, firsts)  # whose id another text had first
    codes = ids.copy()
    codes[others] = CLASH_FIRST - np.arange(len(others))
    tables = [TermTable.of(ids[some], [parts[place] for place in some.tolist()]) for some in (places[firsts], others)]
    if len(distinct) < len(texts):
        numbers = dict(zip(distinct, range(len(distinct)), strict=True))
        codes = codes[np.fromiter(map(numbers.__getitem__, texts), np.int64, len(texts))]
    return Encoded(codes, codes, codes, np.full(len(codes), UNBOUND), _NO_TIMES, *tables)


def encode_quads(registry: TermRegistry, quads: Quads, default_graph: int) -> Iterator[Encoded]:
    """Yield stored quads in chunks that another registry could confirm: with the texts of their terms, under the hashes
    that these have before any exception. Those of the default graph have no graph term."""
    exceptions = np.array([term for term, _ in registry.exception_records(0)], np.int64)
    reader = registry.snapshot_reader()
    for first in range(0, len(quads[0]), CHUNK_ROWS):
        columns = [column[first : first + CHUNK_ROWS] for column in quads]
        columns[0] = np.where(columns[0] == default_graph, UNBOUND, columns[0])
        distinct = np.unique(np.concatenate(columns))
        distinct = distinct[(distinct != UNBOUND) & (distinct & INLINE_MARK == 0)]
        text, offsets = reader.gather(distinct)
        table = TermTable(distinct, offsets, text)
        is_special = np.isin(distinct, exceptions)
        special = table.take(np.flatnonzero(is_special))
        hashes = [hash_id(text.encode(), registry.hash_bits) for text in special.texts()]
        clashes = TermTable(np.array(hashes, np.int64), special.offsets, special.text)
        codes = CLASH_FIRST - np.arange(len(special))
        graphs, subjects, predicates, objects = (replace_ids(column, special.ids, codes) for column in columns)
        terms = table.take(np.flatnonzero(~is_special)) if len(special) else table
        yield Encoded(subjects, predicates, objects, graphs, _NO_TIMES, terms, clashes)
