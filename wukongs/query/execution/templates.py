"""Templates of CONSTRUCT, filled with rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from wukongs.csparql.algebra import TriplePattern
from wukongs.csparql.terms import Term, Variable
from wukongs.query.binding_table import BindingTable
from wukongs.query.limits import OBJECT_BYTES, current
from wukongs.query.rows import numbered
from wukongs.query.terms.decoding import column_texts
from wukongs.query.terms.query_terms import QueryTerms
from wukongs.store.dtypes import UNBOUND, Int64Array, UInt8Array
from wukongs.store.terms import blank_node


def fill_template(
    template: Sequence[TriplePattern], table: BindingTable, terms: QueryTerms, scope: str, *, by_solution: bool
) -> tuple[Int64Array, list[Int64Array]]:
    """Fill a template with every row; triples with an unbound or misplaced term are left out (SPARQL 16.2).

    scope: names the blank nodes.
    by_solution: equal rows make blank nodes of equal names in each execution with that scope; else each row its own.
    Return (the row of each triple, its subject, predicate and object), pattern by pattern: equal triples repeat."""
    columns: dict[Term | Variable, Int64Array] = {}
    first_bytes: dict[Term | Variable, UInt8Array] = {}
    parts = dict.fromkeys(part for pattern in template for part in _parts(pattern))
    limits, suffixes = current(), list[str]()
    if blanks := sum(isinstance(part, Variable) and part.is_blank for part in parts):
        limits.hold(OBJECT_BYTES * (1 + blanks) * table.length)
        suffixes = solution_names(table, terms) if by_solution else list(map(str, range(table.length)))
    for part in parts:
        limits.check()
        if isinstance(part, Term):
            columns[part] = np.full(table.length, terms.ids([part.text])[0], np.int64)
        elif part.is_blank:
            labels = [f"{part.name[1:]}r{suffix}" for suffix in suffixes]
            columns[part] = terms.ids([blank_node(f"construct:{scope}".encode(), label) for label in labels])
        else:
            columns[part] = table.column(part)
        first_bytes[part] = _first_bytes(columns[part], terms)
    made = []
    for pattern in template:
        limits.check()
        limits.hold(_TRIPLE_BYTES * table.length)
        subject, predicate, object_ = _parts(pattern)
        fits = np.isin(first_bytes[subject], (_BRACKET, _UNDERSCORE)) & (first_bytes[predicate] == _BRACKET)
        rows = np.flatnonzero(fits & (first_bytes[object_] != 0))
        made.append([rows, *(columns[part][rows] for part in (subject, predicate, object_))])
    limits.check_rows(sum(len(rows) for rows, *_ in made), "Let its pattern have fewer solutions")
    rows, *triples = (np.concatenate(column) for column in zip(*made, strict=True)) if made else [_NO_IDS] * 4
    return rows, triples


def _parts(pattern: TriplePattern) -> tuple[Term | Variable, ...]:
    return pattern.subject, pattern.predicate, pattern.object


_BRACKET, _UNDERSCORE = ord("<"), ord("_")
_NO_IDS = np.empty(0, np.int64)
_TRIPLE_BYTES = 100
"""The bytes that a triple of a template takes for each row, as it is made, put in order and compared."""


def _first_bytes(column: Int64Array, terms: QueryTerms) -> UInt8Array:
    """Return the first byte of each term's canonical form, 0 where there is none."""
    places, firsts = numbered([column], len(column))
    distinct = column[firsts]
    found = np.zeros(len(distinct), np.uint8)
    bound = np.flatnonzero(distinct != UNBOUND)
    found[bound] = terms.first_bytes(distinct[bound])
    return found[places]


def solution_names(table: BindingTable, terms: QueryTerms) -> list[str]:
    """Name each row by its bindings; the n-th of equal rows by these and n."""
    order = sorted(range(len(table.variables)), key=lambda place: table.variables[place].name)
    rows = zip(*(column_texts(table.columns[place], terms) for place in order), strict=True)
    seen: Counter[bytes] = Counter()
    names = []
    for row in rows if order else [()] * table.length:
        name = repr(row).encode("utf-8", "surrogatepass")
        seen[name] += 1
        names.append(f"{blake2b(name, digest_size=12).hexdigest()}n{seen[name]}")
    return names
