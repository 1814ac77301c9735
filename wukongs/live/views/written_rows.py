"""Rows of term ids as text, for the log and the checkpoints of a data folder: an Arrow IPC stream with a column of
terms for each variable (null: unbound), and the weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from wukongs.csparql.terms import Variable
from wukongs.incremental.zset import ZSet
from wukongs.live.argument_tables import table_text, text_table
from wukongs.query.binding_table import BindingTable, TermSpace
from wukongs.store.dtypes import UNBOUND, Int64Array

_WEIGHT = "weight"


def written(rows: ZSet, terms: TermSpace) -> str:
    """Return rows as text. terms: they have the texts of the ids."""
    import pyarrow as pa

    columns = []
    for column in rows.table.columns:
        bound = np.flatnonzero(column != UNBOUND)
        texts = np.full(len(column), None, object)
        texts[bound] = terms.texts(column[bound])
        columns.append(pa.array(texts.tolist(), pa.large_string()))
    names = [str(place) for place in range(len(columns))]
    return table_text(pa.table([*columns, pa.array(rows.weights, pa.int64())], [*names, _WEIGHT]))


def read(text: str, variables: Sequence[Variable], ids_of: Callable[[list[str]], Int64Array]) -> ZSet:
    """Return the rows that a text holds. ids_of: returns the ids of terms."""
    table = text_table(text, "rows of a live view")
    columns = []
    for place in range(len(variables)):
        texts = table.column(place).to_pylist()
        bound = np.array([text is not None for text in texts], np.bool_)
        column = np.full(len(texts), UNBOUND, np.int64)
        column[bound] = ids_of([text for text in texts if text is not None])
        columns.append(column)
    weights = table.column(_WEIGHT).to_numpy().astype(np.int64)
    return ZSet(BindingTable(tuple(variables), tuple(columns), table.num_rows), weights)
