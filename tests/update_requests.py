"""Random SPARQL Update requests as strategies, and the quads that an engine has stored, compared up to blank nodes."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

import wukongs
from tests import strategies as make
from tests.oracles.query_ast import Node, Var
from tests.oracles.rdf import Term, Triple, iri, to_oxigraph
from tests.oracles.update_ast import (
    Data,
    Modify,
    NoGraph,
    Operation,
    QuadPattern,
    Quads,
    Store,
    Transfer,
    Whole,
    text_of,
)
from tests.oracles.values import Undefined

GRAPHS = [*make.GRAPHS, iri(f"{make.EX}g2")]
NAMES: st.SearchStrategy[Term | None] = st.sampled_from([None, None, *GRAPHS])
EVERYTHING = "SELECT ?g ?s ?p ?o { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }"


def data(blank: bool) -> st.SearchStrategy[tuple[QuadPattern, ...]]:
    label: list[Node] = [Var("_:d"), Var("_:e")] if blank else []
    subjects: st.SearchStrategy[Node] = st.sampled_from([*make.SUBJECTS, *label])
    objects: st.SearchStrategy[Node] = st.sampled_from([*make.SUBJECTS, *label, *make.NUMBERS, *make.PLAIN_LITERALS])
    triple = st.tuples(subjects, st.sampled_from(make.PREDICATES), objects)
    return st.lists(st.tuples(NAMES, triple), max_size=8).map(tuple)


@st.composite
def templates(draw: st.DrawFn, blank: bool) -> tuple[QuadPattern, ...]:
    label: list[Node] = [Var("_:t")] * 2 if blank else []
    nodes: st.SearchStrategy[Node] = st.sampled_from([*make.VARS * 3, *make.SUBJECTS, *label, make.NUMBERS[0]])
    edges: st.SearchStrategy[Node] = st.sampled_from([*make.PREDICATES * 2, make.VARS[3], make.VARS[0]])
    graphs: st.SearchStrategy[Node | None] = st.sampled_from([None, None, None, *GRAPHS, Var("g"), make.VARS[1]])
    quads = st.tuples(graphs, st.tuples(nodes, edges, nodes))
    return tuple(draw(st.lists(quads, min_size=1, max_size=3)))


@st.composite
def modifications(draw: st.DrawFn) -> Modify:
    kind = draw(st.sampled_from(["where", "delete", "insert", "both", "both"]))
    if kind == "where":
        return Modify(draw(templates(False)), (), None)
    labels = make.Labels()
    where = draw(make.groups(tuple(GRAPHS), True, draw(st.sampled_from([0, 1, 2])), labels))
    using, named = draw(
        st.sampled_from([((), ())] * 3 + [((GRAPHS[0],), ()), ((GRAPHS[1],), (GRAPHS[0],)), ((), (GRAPHS[1],))])
    )
    return Modify(
        draw(templates(False)) if kind != "insert" else (),
        draw(templates(True)) if kind != "delete" else (),
        where,
        draw(st.sampled_from([None, None, GRAPHS[0], GRAPHS[2]])),
        using,
        named,
    )  # fmt: skip


OPERATIONS: st.SearchStrategy[Operation] = st.one_of(
    data(True).map(lambda quads: Data("INSERT", quads)),
    data(True).map(lambda quads: Data("INSERT", quads)),
    data(False).map(lambda quads: Data("DELETE", quads)),
    modifications(),
    modifications(),
    modifications(),
    st.builds(
        Whole,
        st.sampled_from(["CLEAR", "CLEAR", "DROP"]),
        st.sampled_from(["DEFAULT", "NAMED", "ALL", *GRAPHS, *GRAPHS]),
        st.sampled_from([True, True, False]),
    ),
    st.builds(Whole, st.just("CREATE"), st.sampled_from(GRAPHS), st.sampled_from([True, True, False])),
    st.builds(Transfer, st.sampled_from(["COPY", "MOVE", "ADD"]), NAMES, NAMES, st.sampled_from([True, True, False])),
)
REQUESTS = st.lists(st.lists(OPERATIONS, min_size=1, max_size=4), min_size=1, max_size=5)


def request_text(request: list[Operation]) -> str:
    """Every INSERT DATA has labels of its own."""
    texts = [text_of(operation) for operation in request]
    for number, operation in enumerate(request):
        if isinstance(operation, Data):
            texts[number] = texts[number].replace("_:d ", f"_:d{number} ").replace("_:e ", f"_:e{number} ")
        elif isinstance(operation, Modify):
            texts[number] = texts[number].replace("_:q", f"_:q{number}n")
    return " ;\n".join(texts)


def canonical(quads: Quads) -> list[str]:
    """The quads as lines, blank nodes renamed so that isomorphic datasets are equal."""
    import pyoxigraph as ox

    def made(triple: Triple, graph: Term | None) -> Any:
        subject, predicate, term = map(to_oxigraph, triple)
        return ox.Quad(subject, predicate, term, ox.DefaultGraph() if graph is None else to_oxigraph(graph))

    dataset = ox.Dataset(made(triple, graph) for graph, triple in quads)
    dataset.canonicalize(ox.CanonicalizationAlgorithm.UNSTABLE)
    return sorted(map(str, dataset))


def stored(engine: wukongs.Engine, at: int | None = None) -> Quads:
    from tests.oracles.rdf import from_rdflib

    found: Quads = set()
    for graph, *triple in engine.query(EVERYTHING, at=at):
        subject, predicate, term = map(from_rdflib, triple)
        quad = (None if graph is None else from_rdflib(graph), (subject, predicate, term))
        assert quad not in found, f"{quad} twice"
        found.add(quad)
    return found


def outcome(quads: Quads, request: list[Operation]) -> tuple[Quads | None, bool]:
    """The quads after a request (None: it is refused), and whether libraries may differ there."""
    made = []
    missed = False
    for strict in (True, False):
        store = Store(set(quads), strict)
        try:
            made.append(store.apply(request))
        except NoGraph:
            made.append(None)
        missed |= store.has_missed
    if made[0] != made[1] and (None in made or canonical(made[0] or set()) != canonical(made[1] or set())):
        raise Undefined
    return made[0], missed
