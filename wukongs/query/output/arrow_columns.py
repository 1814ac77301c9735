"""Columns of ids as Arrow arrays: each distinct term is written once, as N-Triples has it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from wukongs.query.output.row_formats import ntriples_terms
from wukongs.query.rows import numbered
from wukongs.query.terms.decoding import Utf8Reader
from wukongs.store.dtypes import UNBOUND, Int64Array

_STRING_BYTES_MAX = (1 << 31) - 1
_FEW = 64
"""So many are told apart in Python: a kernel would take longer to be called."""


def dictionary_columns(columns: Sequence[Int64Array], reader: Utf8Reader) -> list[pa.DictionaryArray]:
    """Return columns as dictionary-encoded strings, all with the same dictionary, null for UNBOUND. columns[i] :
    int64[n]; texts of 2 GiB or more together are large strings."""
    if not columns:
        return []
    count, flat = len(columns[0]), columns[0] if len(columns) == 1 else np.concatenate(columns)
    places, distinct = _distinct(flat)
    is_bound = distinct != UNBOUND
    is_null = None
    if not is_bound.all():
        is_null = ~is_bound[places]
        places = (np.cumsum(is_bound) - 1)[places]
        distinct = distinct[is_bound]
    text, offsets = ntriples_terms(distinct, reader)
    if offsets[-1] <= _STRING_BYTES_MAX:
        terms = pa.StringArray.from_buffers(len(distinct), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(text))
    else:
        terms = pa.LargeStringArray.from_buffers(len(distinct), pa.py_buffer(offsets), pa.py_buffer(text))
    numbers = places.astype(np.int32)
    return [
        pa.DictionaryArray.from_arrays(
            pa.array(numbers[start : start + count], mask=None if is_null is None else is_null[start : start + count]),
            terms,
        )
        for start in range(0, len(columns) * count, count or 1)
    ] or [pa.DictionaryArray.from_arrays(pa.array([], pa.int32()), terms) for _ in columns]


def string_columns(columns: Sequence[Int64Array], reader: Utf8Reader) -> list[pa.StringArray]:
    """Return columns as strings, null for UNBOUND. columns[i] : int64[n]"""
    return [column.dictionary_decode() for column in dictionary_columns(columns, reader)]


def _distinct(ids: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Number distinct ids by first occurrence: (number of each, the distinct ones)."""
    if len(ids) > _FEW:
        places, firsts = numbered([ids], len(ids))
        return places, ids[firsts]
    known = dict[int, int]()
    numbers = [known.setdefault(term, len(known)) for term in ids.tolist()]
    return np.array(numbers, np.int64), np.array(list(known), np.int64)
