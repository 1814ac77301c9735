"""The answers of the three systems, made comparable.

An answer is a truth value, or a bag of rows of cells (of triples, for CONSTRUCT, each once). Cells:

* a number is its datatype and value: systems write computed numbers differently ("1.0E0", "1"), and divide decimals to
  18 digits or to more, so decimals, floats and doubles count to 9 significant digits, integers to all;
* the texts that GROUP_CONCAT joins (columns ?j...) stand sorted, since their order is open;
* a blank node is its label. The libraries get the engine's labels, so those of the data are equal; those that a query
  makes are equal up to renaming.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import pyoxigraph
import rdflib

import wukongs
from tests.oracles.compare import Cell, same_rows
from tests.oracles.rdf import Term, bnode, from_oxigraph, from_rdflib, iri, literal, to_rdflib
from tests.oracles.values import number
from wukongs.store.canonical import split_literal

Rows = list[tuple[Cell, ...]]
Answer = bool | Rows
UNBOUND: Cell = ("unbound",)


class Refused(Exception):
    """A library has no answer: its message."""


@lru_cache(maxsize=1 << 14)
def cell_of_text(text: str) -> Cell:
    """The cell of a canonical text of the engine."""
    return _cell(term_of(text))


def canonical(text: str) -> str:
    """The text that an answer shows with its language tag in lower case, as ids have it."""
    head, at, tag = text.rpartition('"@')
    return f"{head}{at}{tag.lower()}" if text.startswith('"') and at else text


@lru_cache(maxsize=1 << 14)
def term_of(text: str) -> Term:
    if text.startswith("<"):
        return iri(text[1:-1])
    if text.startswith("_:"):
        return bnode(text[2:])
    lexical, datatype, language = split_literal(text)
    return literal(lexical, datatype or "", language or "")


@lru_cache(maxsize=1 << 14)
def cell_of_oxigraph(term: Any) -> Cell:
    return _cell(from_oxigraph(term))


def _cell(term: Term) -> Cell:
    found = number(term)
    if found is None:
        return tuple(term)
    if found.kind == "integer":
        return "number", found.kind, str(found.value)
    value = float(found.value)
    shown = "0" if value == 0 else f"{value:.9g}" if math.isfinite(value) else str(value)
    return "number", found.kind, shown


def _row(cells: Iterable[Cell], names: Sequence[str]) -> tuple[Cell, ...]:
    row = tuple(cells)
    if not any(name.startswith("j") for name in names):
        return row
    return tuple(
        ("joined", *sorted(cell[1].split("|"))) if name.startswith("j") and cell[0] == "literal" else cell
        for name, cell in zip(names, row, strict=True)
    )


def of_engine(result: wukongs.Result | wukongs.WindowResult) -> Answer:
    if result.kind == "ask":
        return bool(result.boolean)
    return of_rows(result.texts(), () if result.is_graph else result.vars, result.is_graph)


def of_rows(texts: Iterable[tuple[str | None, ...]], names: Sequence[str], is_graph: bool) -> Rows:
    """The rows, or the triples of a graph, of canonical texts."""
    rows = [_row((UNBOUND if t is None else cell_of_text(t) for t in row), names) for row in texts]
    return list(set(rows)) if is_graph else rows


def of_solutions(solutions: Iterable[dict[str, str]], names: Sequence[str]) -> Rows:
    """The rows of solutions that have canonical texts."""
    return [
        _row((cell_of_text(solution[name]) if name in solution else UNBOUND for name in names), names)
        for solution in solutions
    ]


def of_oxigraph(store: pyoxigraph.Store, text: str, kind: str, names: Sequence[str]) -> Answer:
    """pyoxigraph's answer, its columns in the order of names (SELECT * leaves it open). Raises Refused."""
    try:
        result: Any = store.query(text)
        if kind == "ask":
            return bool(result)
        if kind == "construct":
            triples = {tuple(map(cell_of_oxigraph, (t.subject, t.predicate, t.object))) for t in result}
            return list(triples)
        found = [variable.value for variable in result.variables]
        if sorted(found) != sorted(names):
            raise Refused(f"columns {found} in place of {names}")
        rows = [
            _row((UNBOUND if t is None else cell_of_oxigraph(t) for t in (row[n] for n in names)), names)
            for row in result
        ]
    except (SyntaxError, OSError, ValueError, RuntimeError) as error:
        raise Refused(f"{type(error).__name__}: {error}") from None
    return rows


def of_rdflib(dataset: rdflib.Dataset, text: str, kind: str, names: Sequence[str]) -> Answer:
    """rdflib's answer, columns in the order of names. Raises Refused."""
    try:
        result = _asked(dataset, text)
        if kind == "ask":
            return bool(result.askAnswer)
        if kind == "construct":
            graph = result.graph or ()
            triples = [tuple(_cell(from_rdflib(term)) for term in triple) for triple in graph]
            return [triple for triple in triples if triple[0][0] in ("iri", "bnode") and triple[1][0] == "iri"]
        variables = [rdflib.Variable(name) for name in names]
        found = [[binding.get(variable) for variable in variables] for binding in result.bindings]
    except Exception as error:  # whatever its evaluation runs into
        raise Refused(f"{type(error).__name__}: {error}") from None
    return [_row((UNBOUND if term is None else _cell(from_rdflib(term)) for term in row), names) for row in found]


def _asked(dataset: rdflib.Dataset, text: str) -> rdflib.query.Result:
    """Ask rdflib without what it logs and warns of each ill-typed literal, and without its changes of literals."""
    logging.getLogger("rdflib.term").setLevel(logging.CRITICAL)
    before = rdflib.NORMALIZE_LITERALS
    rdflib.NORMALIZE_LITERALS = False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = dataset.query(text)
            result.bindings = list(result.bindings) if result.type == "SELECT" else []
            return result
    finally:
        rdflib.NORMALIZE_LITERALS = before


def oxigraph_store(quads: Iterable[tuple[str, ...]]) -> pyoxigraph.Store:
    """A store of quads (graph, subject, predicate, object) as canonical texts; the default graph is ''."""
    from tests.oracles.rdf import to_oxigraph

    store = pyoxigraph.Store()
    made = []
    for graph, *triple in quads:
        name = to_oxigraph(term_of(graph)) if graph else pyoxigraph.DefaultGraph()
        made.append(pyoxigraph.Quad(*(to_oxigraph(term_of(part)) for part in triple), name))
    store.extend(made)
    return store


def rdflib_dataset(quads: Iterable[tuple[str, ...]]) -> rdflib.Dataset:
    store = rdflib.Dataset(default_union=False)
    logging.getLogger("rdflib.term").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", module="rdflib")
    for graph, *triple in quads:
        into = store.graph(to_rdflib(term_of(graph))) if graph else store.default_graph
        subject, predicate, object_ = (to_rdflib(term_of(part)) for part in triple)
        into.add((subject, predicate, object_))
    return store


def same(left: Answer, right: Answer, reduced: bool = False) -> bool:
    """Whether two answers are the same; reduced: rows may stand there less often."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if reduced:
        left, right = list(set(left)), list(set(right))
    if Counter(left) == Counter(right):
        return True
    if len(left) != len(right) or not any(cell[0] == "bnode" for row in left for cell in row):
        return False
    return same_rows(left, right)


def shown(answer: Answer | None) -> str:
    """An answer for people; long ones are cut."""
    if not isinstance(answer, list):
        return str(answer)
    rows = sorted(answer)
    more = [f"  ... {len(rows) - 12} more"] if len(rows) > 12 else []
    return "\n".join([f"{len(rows)} rows", *(f"  {' | '.join(' '.join(c) for c in row)}" for row in rows[:12]), *more])
