"""Columns of ids as Arrow arrays: each distinct term is written once, as N-Triples has it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from wukongs.query.output.row_formats import ntriples_terms
from wukongs.query.rows import PIECE_ROWS, numbered
from wukongs.query.rows_kernels import number_ids
from wukongs.query.terms.decoding import Utf8Reader
from wukongs.store.dtypes import UNBOUND, Int32Array, Int64Array

_STRING_BYTES_MAX = (1 << 31) - 1


def dictionary_columns(columns: Sequence[Int64Array], reader: Utf8Reader) -> list[pa.DictionaryArray]:
    """Return columns as dictionary-encoded strings, all with the same dictionary, null for UNBOUND. columns[i] :
    int64[n]; texts of 2 GiB or more together are large strings."""
    if not columns:
        return []
    count, flat = len(columns[0]), columns[0] if len(columns) == 1 else np.concatenate(columns)
    numbers, distinct, is_bound = _distinct(flat)
    is_null = None
    if not is_bound:
        kept = distinct != UNBOUND
        is_null = ~kept[numbers]
        numbers = (np.cumsum(kept) - 1).astype(np.int32)[numbers]
        distinct = distinct[kept]
    text, offsets = ntriples_terms(distinct, reader)
    if offsets[-1] <= _STRING_BYTES_MAX:
        terms = pa.StringArray.from_buffers(len(distinct), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(text))
    else:
        terms = pa.LargeStringArray.from_buffers(len(distinct), pa.py_buffer(offsets), pa.py_buffer(text))
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


def _distinct(ids: Int64Array) -> tuple[Int32Array, Int64Array, bool]:
    """Number distinct ids by first occurrence: (number of each, the distinct ones, whether none is UNBOUND)."""
    if len(ids) <= PIECE_ROWS:
        found: tuple[Int32Array, Int64Array, bool] = number_ids(ids)
        return found
    numbers, firsts = numbered([ids], len(ids))
    distinct = ids[firsts]
    return numbers.astype(np.int32), distinct, bool((distinct != UNBOUND).all())
