"""LSBench's triples as columns of ids, for questions that need no text."""

from __future__ import annotations

import numpy as np

from wukongs.bench.lsbench.data import LsbenchData
from wukongs.store.dtypes import INLINE_MARK, Int64Array
from wukongs.store.encoder import encode_ntriples

Columns = tuple[Int64Array, Int64Array, Int64Array]
"""Subjects, predicates, objects."""


def encode(lines: bytes) -> Columns:
    """Encode N-Triples."""
    encoded = encode_ntriples(lines, b"")[0]
    return encoded.subjects, encoded.predicates, encoded.objects


def stored_and_streams(data: LsbenchData) -> dict[str, Columns]:
    """Return the stored triples, and those of each stream, in the order of the data."""
    return {"stored": encode(data.stored), **{name: encode(stream.lines) for name, stream in data.streams.items()}}


def copies(columns: Columns, count: int) -> Columns:
    """Return `count` tuples: the columns over and over, subjects and objects (but literals) with other ids in each."""
    subjects, predicates, objects = (np.resize(column, count) for column in columns)
    number = np.arange(count, dtype=np.int64) // len(columns[0])
    masks = np.random.default_rng(2).integers(0, 1 << 62, int(number[-1]) + 1, np.int64) << 1
    masks[0] = 0
    is_literal = objects & INLINE_MARK == 1
    return subjects ^ masks[number], predicates, np.where(is_literal, objects, objects ^ masks[number])
