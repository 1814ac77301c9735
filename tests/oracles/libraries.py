"""rdflib and pyoxigraph as oracles: an exact dataset and the text of a query without dataset clause, answers as rows.

Documented deviations that the callers must know:
* pyoxigraph's Store keeps values of numbers and dates, not lexical forms: `"01"^^xsd:integer` comes back as `"1"`.
  It is only asked about data whose lexical forms it keeps (`keeps_lexical_forms`).
* pyoxigraph takes equal solutions of `p|q`, and of `!(p|^q)`, for one, where 18.4 has a union, which is a multiset; and
  a path without length from a constant that the graph does not know leads nowhere, where 18.4 says to itself.
* pyoxigraph subtracts one xsd:dateTime from another, for which the operators of 17.3 have no meaning
  (`oxigraph_subtracts_dates`).
* pyoxigraph orders any term and itself: `<=` and `>=` hold of an IRI and itself, where 17.3 has a type error. 17.3.1
  lets a system do so. The judge takes that for no contradiction, and does not allow the answer (`orders_itself`).
* rdflib leaves out rows without any bound variable (`drops_empty_rows`).
* rdflib lets some errors of expressions and paths escape (SUM of an unbound variable, IRI + number, a negated set that
  it does not know): it has no answer then, None.
* rdflib builds triples with literals as subjects, which CONSTRUCT must leave out: left out here.
* rdflib gives MIN and MAX of IRIs as strings, leaves unbound arguments out of SUM and AVG, and makes a group of no
  solutions: it is only asked to count, and only without GROUP BY or over some solutions (`rdflib_is_asked`).
* rdflib normalises the literals of query texts unless NORMALIZE_LITERALS is off, which `rdflib_answer` sees to.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from tests.oracles import paths
from tests.oracles.paths import Var
from tests.oracles.query_ast import Arithmetic, Query, nodes, path_triples
from tests.oracles.rdf import XSD, Term, Triple, from_oxigraph, from_rdflib, to_oxigraph, to_rdflib
from tests.oracles.sparql_oracle import Dataset, Row

Answer = list[Row] | bool | set[Triple]


def rdflib_answer(dataset: Dataset, query: Query) -> Answer | None:
    """The answer of rdflib, rows in its order; None where it fails."""
    import rdflib

    store = rdflib.Dataset(default_union=False)
    for name, triples in dataset.named.items():
        graph = store.graph(to_rdflib(name))
        for triple in triples:
            graph.add(tuple(map(to_rdflib, triple)))
    default = store.default_graph
    for triple in dataset.default:
        default.add(tuple(map(to_rdflib, triple)))
    before = rdflib.NORMALIZE_LITERALS
    rdflib.NORMALIZE_LITERALS = False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            logging.getLogger("rdflib.term").setLevel(logging.ERROR)  # it logs each ill-typed literal
            result = store.query(query.text())
            if query.kind == "ask":
                return bool(result.askAnswer)
            if query.kind == "construct":
                return {
                    t
                    for t in _triples(result.graph or (), from_rdflib)
                    if t[0].kind != "literal" and t[1].kind == "iri"
                }
            return [_row(row, from_rdflib) for row in result]
    except Exception:  # its property paths raise nothing more specific
        return None
    finally:
        rdflib.NORMALIZE_LITERALS = before


def oxigraph_answer(dataset: Dataset, query: Query) -> Answer:
    """The answer of pyoxigraph, rows in its order."""
    import pyoxigraph

    store = pyoxigraph.Store()
    for name, triples in [(None, dataset.default), *dataset.named.items()]:
        graph = pyoxigraph.DefaultGraph() if name is None else to_oxigraph(name)
        store.extend(pyoxigraph.Quad(to_oxigraph(s), to_oxigraph(p), to_oxigraph(o), graph) for s, p, o in triples)
    result: Any = store.query(query.text())
    if query.kind == "ask":
        return bool(result)
    if query.kind == "construct":
        return _triples(((t.subject, t.predicate, t.object) for t in result), from_oxigraph)
    return [_row(row, from_oxigraph) for row in result]


def oxigraph_follows_paths(query: Query) -> bool:
    """Whether pyoxigraph reads the paths of a query as section 18.4 has them (see above)."""
    return not any(
        paths.may_repeat(each.path)
        or (paths.is_nullable(each.path) and not (isinstance(each.subject, Var) and isinstance(each.object, Var)))
        for each in path_triples(query.where)
    )


def oxigraph_subtracts_dates(dataset: Dataset, query: Query) -> bool:
    """Whether a query subtracts, over data with dates, which pyoxigraph answers by durations."""
    graphs = [dataset.default, *dataset.named.values()]
    has_dates = any(term.datatype == XSD + "dateTime" for graph in graphs for triple in graph for term in triple)
    return has_dates and any(isinstance(node, Arithmetic) and node.operator == "-" for node in nodes(query))


def drops_empty_rows(rows: list[Row]) -> list[Row]:
    """The rows that rdflib would show of these."""
    return [row for row in rows if any(value is not None for value in row)]


def _row(row: Any, convert: Callable[[Any], Term]) -> Row:
    return tuple(convert(term) if term is not None else None for term in row)


def _triples(triples: Iterable[Any], convert: Callable[[Any], Term]) -> set[Triple]:
    return {(convert(s), convert(p), convert(o)) for s, p, o in triples}


@lru_cache(maxsize=4096)
def keeps_lexical_form(term: Term) -> bool:
    """Whether pyoxigraph's Store gives the term back to the letter."""
    import pyoxigraph

    store = pyoxigraph.Store()
    node = pyoxigraph.NamedNode("http://ex/x")
    store.add(pyoxigraph.Quad(node, node, to_oxigraph(term)))
    return all(from_oxigraph(quad.object) == term for quad in store)


def keeps_lexical_forms(dataset: Dataset) -> bool:
    graphs = [dataset.default, *dataset.named.values()]
    return all(keeps_lexical_form(term) for graph in graphs for triple in graph for term in triple)
