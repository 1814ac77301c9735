"""TableChange: triples that go and triples that come, as Arrow tables: an operation of an update (Engine.apply).

The columns are encoded by the kernels that encode what is pushed and loaded, so no term becomes an object. The rest is
an update as any other: it reads a snapshot, is logged and sealed as one (update_request.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from wukongs.csparql.terms import is_reported
from wukongs.csparql.updates import Operation
from wukongs.errors import DataError
from wukongs.query.terms.query_terms import QueryTerms, TermKeeper
from wukongs.store.encoded import Encoded
from wukongs.store.encoder import encode_columns, rename_terms
from wukongs.store.hidden_graphs import check_graphs_written
from wukongs.store.quads import Quads
from wukongs.store.terms import blank_node

if TYPE_CHECKING:
    import pyarrow

COLUMNS = ("subject", "predicate", "object")


@dataclass(frozen=True, slots=True)
class TableChange:
    """Triples by the columns subject, predicate, object and, if they name their graph, graph: N-Triples. First those
    of `deletes` go, then those of `inserts` come."""

    deletes: pyarrow.Table | None
    inserts: pyarrow.Table | None

    @staticmethod
    def of(inserts: pyarrow.Table | None, deletes: pyarrow.Table | None) -> TableChange:
        """Check the tables. Raises SettingsError (no table), DataError (a column that is missing, or is too many)."""
        return TableChange(_checked(deletes, "deletes"), _checked(inserts, "inserts"))


Change = Operation | TableChange
"""An operation of an update request."""


def _checked(table: pyarrow.Table | None, what: str) -> pyarrow.Table | None:
    from wukongs.query.terms.arrow_terms import as_ntriples, table_of

    if table is None:
        return None
    table = table_of(table, what)
    names = table.column_names
    missing = [name for name in COLUMNS if name not in names]
    extra = [name for name in names if name not in (*COLUMNS, "graph") or names.count(name) > 1]
    if missing or extra:
        wrong = f"no column {missing[0]}" if missing else f"a column {extra[0]} too many"
        raise DataError(
            f"{what}: the table has {wrong}: expected {', '.join(COLUMNS)} and, if wanted, graph, found "
            f"{', '.join(names) or 'none'}"
        )
    try:
        return as_ntriples(table, COLUMNS)
    except DataError as error:
        raise DataError(f"{what}: {error}") from None


def inserted(table: pyarrow.Table, keeper: TermKeeper, default_graph: int, scope: str, hash_bits: int) -> Quads:
    """Make the terms of a table known; return its quads. scope: names its blank nodes, but for those that results have
    reported.

    Raises DataError, naming row and column, for what is no term or does not fit its place."""
    confirmed, _ = keeper.confirm(_encoded(table, "inserts", scope, hash_bits))
    return _in_graphs((confirmed.graphs, confirmed.subjects, confirmed.predicates, confirmed.objects), default_graph)


def deleted(table: pyarrow.Table, terms: QueryTerms, default_graph: int, scope: str, hash_bits: int) -> Quads:
    """Do the same without making terms known: quads with one that nobody knows match nothing."""
    encoded = _encoded(table, "deletes", scope, hash_bits)
    graphs, subjects, predicates, objects = terms.ids_of(
        encoded, encoded.graphs, encoded.subjects, encoded.predicates, encoded.objects
    )
    return _in_graphs((graphs, subjects, predicates, objects), default_graph)


def _in_graphs(quads: Quads, default_graph: int) -> Quads:
    graphs, subjects, predicates, objects = quads
    return np.where(graphs == -1, default_graph, graphs), subjects, predicates, objects


def _encoded(table: pyarrow.Table, what: str, scope: str, hash_bits: int) -> Encoded:
    subjects, predicates, objects = (table.column(name) for name in COLUMNS)
    graphs = table.column("graph") if "graph" in table.column_names else None
    try:
        encoded = encode_columns(
            subjects, predicates, objects, graphs=graphs, scope=scope.encode(), hash_bits=hash_bits
        )
        check_graphs_written(encoded)
    except DataError as error:
        raise DataError(f"{what}: {error}") from None
    return _with_reported(encoded, scope, hash_bits)


def _with_reported(encoded: Encoded, scope: str, hash_bits: int) -> Encoded:
    """Let labels under which results report stored blank nodes stand for these."""
    prefix = blank_node(scope.encode(), "")
    if encoded.terms.text.tobytes().find(f"{prefix}s".encode()) < 0 and not len(encoded.clashes):
        return encoded
    texts = [*encoded.terms.texts(), *encoded.clashes.texts()]
    own = {row: f"_:{text.removeprefix(prefix)}" for row, text in enumerate(texts) if text.startswith(prefix)}
    reported = {row: text for row, text in own.items() if is_reported(text)}
    if not reported:
        return encoded
    return rename_terms(encoded, np.array(list(reported), np.int64), list(reported.values()), hash_bits)
