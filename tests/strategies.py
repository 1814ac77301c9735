"""Hypothesis strategies: small RDF graphs, random queries of the supported language, timed streams.

Few names, so that joins meet. Numbers are binary fractions, so that no system may round them differently.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from tests.oracles import query_ast as ast
from tests.oracles.paths import Path
from tests.oracles.query_ast import Var
from tests.oracles.rdf import XSD, Term, Triple, bnode, iri, literal

EX = "http://example.org/"
SUBJECTS = [iri(f"{EX}s{i}") for i in range(3)]
PREDICATES = [iri(f"{EX}p{i}") for i in range(2)]
GRAPHS = [iri(f"{EX}g{i}") for i in range(2)]
BLANKS = [bnode("b0"), bnode("b1")]
PLAIN_LITERALS = [
    literal("1", XSD + "integer"),
    literal("2", XSD + "integer"),
    literal("-3", XSD + "integer"),
    literal("40", XSD + "integer"),
    literal("1.5", XSD + "decimal"),
    literal("0.25", XSD + "decimal"),
    literal("2.5E0", XSD + "double"),
    literal("one"),
    literal('two words "quoted" \\ é'),
    literal("one", language="en"),
    literal("un", language="fr"),
    literal("true", XSD + "boolean"),
    literal("2021-03-04", XSD + "date"),
    literal("2021-03-04T05:06:07Z", XSD + "dateTime"),
    literal("x", EX + "datatype"),
]
ODD_LITERALS = [
    literal("01", XSD + "integer"),
    literal("+1", XSD + "integer"),
    literal("1.0", XSD + "decimal"),
    literal("1.50", XSD + "decimal"),
    literal("25e-1", XSD + "double"),
    literal("abc", XSD + "integer"),
    literal("", ""),
]
NUMBERS = [each for each in PLAIN_LITERALS if each.datatype in (XSD + "integer", XSD + "decimal", XSD + "double")]
VARS = [Var(name) for name in "abcd"]


def triples(odd: bool = False, blank: bool = True) -> st.SearchStrategy[Triple]:
    """One triple; odd adds literals whose lexical form is not the canonical one of their value."""
    blanks = BLANKS if blank else []
    objects = [*SUBJECTS * 4, *blanks * 2, *NUMBERS * 2, *PLAIN_LITERALS, *(ODD_LITERALS * 4 if odd else [])]
    return st.tuples(st.sampled_from([*SUBJECTS, *blanks]), st.sampled_from(PREDICATES), st.sampled_from(objects))


def graphs(odd: bool = False, max_size: int = 16, blank: bool = True) -> st.SearchStrategy[set[Triple]]:
    """A set of triples; its least size is drawn first, or nearly all graphs would be tiny."""
    return st.integers(0, max_size - 2).flatmap(lambda n: st.sets(triples(odd, blank), min_size=n, max_size=max_size))


@st.composite
def quads(draw: st.DrawFn) -> dict[Term | None, set[Triple]]:
    """A whole stored dataset: the default graph under None, and up to two named graphs (the same triple in several)."""
    odd = draw(st.sampled_from([False, False, False, True]))
    result: dict[Term | None, set[Triple]] = {None: draw(graphs(odd))}
    for name in GRAPHS:
        result[name] = draw(graphs(odd, max_size=9))
    return {name: found for name, found in result.items() if found or name is None}


# expressions


def operands() -> st.SearchStrategy[ast.Expression]:
    leaf: st.SearchStrategy[ast.Expression] = st.one_of(
        st.sampled_from(VARS),
        st.sampled_from(VARS),
        st.sampled_from(NUMBERS),
        st.sampled_from(PLAIN_LITERALS + SUBJECTS),
    )
    return st.one_of(leaf, leaf, arithmetic())


def arithmetic() -> st.SearchStrategy[ast.Expression]:
    leaf: st.SearchStrategy[ast.Expression] = st.one_of(st.sampled_from(VARS), st.sampled_from(NUMBERS))
    one = st.builds(ast.Arithmetic, st.sampled_from("+-*/"), leaf, leaf)
    return st.one_of(one, one, st.builds(ast.Arithmetic, st.sampled_from("+-*"), one, leaf))


def conditions() -> st.SearchStrategy[ast.Expression]:
    compared = st.builds(ast.Compare, st.sampled_from(["=", "!=", "<", ">", "<=", ">="]), operands(), operands())
    leaf: st.SearchStrategy[ast.Expression] = st.one_of(compared, compared, st.builds(ast.Bound, st.sampled_from(VARS)))
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.builds(lambda a: ast.Logic("!", (a,)), inner),
            st.builds(lambda op, a, b: ast.Logic(op, (a, b)), st.sampled_from(["&&", "||"]), inner, inner),
        ),
        max_leaves=3,
    )


# patterns


@st.composite
def bgps(draw: st.DrawFn, blank: str) -> ast.Bgp:
    """One to three triple patterns; `blank` labels the blank node of this pattern, which no other pattern may use."""
    hidden = Var(f"_:{blank}")
    subject: st.SearchStrategy[ast.Node] = st.sampled_from([*VARS * 4, *SUBJECTS, hidden, hidden])
    predicate: st.SearchStrategy[ast.Node] = st.sampled_from([*PREDICATES * 3, VARS[3]])
    term: st.SearchStrategy[ast.Node] = st.sampled_from(
        [*VARS * 5, *SUBJECTS, *NUMBERS[:2], *PLAIN_LITERALS[6:8], hidden, hidden]
    )
    size = draw(st.sampled_from([1, 1, 1, 2, 2, 3]))
    return ast.Bgp(tuple(draw(st.tuples(subject, predicate, term)) for _ in range(size)))


def paths() -> st.SearchStrategy[Path]:
    """Property paths of up to four parts."""
    link = st.tuples(st.just("link"), st.sampled_from(PREDICATES))
    some = st.one_of(st.none(), st.lists(st.sampled_from(PREDICATES), min_size=1, max_size=2, unique=True).map(tuple))
    negated = st.tuples(st.just("!"), some, some).filter(lambda path: path[1] is not None or path[2] is not None)
    return st.recursive(
        st.one_of(link, link, negated),
        lambda inner: st.one_of(
            st.tuples(st.sampled_from("^*+?*+"), inner),
            st.tuples(st.sampled_from("/|"), inner, inner),
        ),
        max_leaves=4,
    )


def path_triples() -> st.SearchStrategy[ast.PathTriple]:
    end: st.SearchStrategy[ast.Node] = st.sampled_from([*VARS * 3, *SUBJECTS, NUMBERS[0], iri(f"{EX}nowhere")])
    return st.builds(ast.PathTriple, end, paths(), end)


@dataclass
class Labels:
    """Counts the blank nodes of one query, since a label may stand in one basic graph pattern only."""

    used: int = 0

    def next(self) -> str:
        self.used += 1
        return f"q{self.used}"


@st.composite
def groups(
    draw: st.DrawFn, named: tuple[Term, ...], any_graph: bool, depth: int, labels: Labels, start_empty: bool = False
) -> ast.Group:
    """A group: a basic graph pattern, then elements of every kind.

    named : graphs that GRAPH <iri> may name.  any_graph : whether GRAPH ?g may stand.
    start_empty : whether the group may begin with another element than a basic graph pattern.
    """
    elements: list[object] = []
    if not start_empty or draw(st.booleans()):
        elements.append(draw(bgps(labels.next())))
    kinds = ["bgp", "filter", "path"]
    if depth > 0:
        kinds += ["optional", "optional", "union", "group"] + (["graph", "graph"] if named else [])
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=0 if elements else 1, max_size=3 if depth == 2 else 1)):
        inner = groups(named, any_graph, depth - 1, labels)
        if kind == "bgp" and not (elements and isinstance(elements[-1], ast.Bgp)):
            elements.append(draw(bgps(labels.next())))
        elif kind == "path":
            elements.append(draw(path_triples()))
        elif kind == "filter":
            elements.append(ast.Filter(draw(conditions())))
        elif kind == "optional":
            elements.append(ast.Optional(draw(inner)))
        elif kind == "union":
            elements.append(ast.Union((draw(inner), draw(inner))))
        elif kind == "group":
            elements.append(draw(inner))
        elif kind == "graph":
            choices: list[ast.Node] = [*named, Var("g")] if any_graph else [*named]
            name = draw(st.sampled_from(choices))
            elements.append(ast.GraphPattern(name, draw(inner)))
    return ast.Group(tuple(elements))  # type: ignore[arg-type]


@st.composite
def queries(
    draw: st.DrawFn,
    kinds: tuple[str, ...] = ("select", "select", "select", "grouped", "grouped", "ask", "construct"),
    named: tuple[Term, ...] = tuple(GRAPHS),
    any_graph: bool = True,
    where: ast.Group | None = None,
) -> ast.Query:
    """A query over the pools of this module: SELECT, grouped SELECT, ASK or CONSTRUCT."""
    if where is None:
        where = draw(groups(named, any_graph, 2, Labels(), start_empty=True))
    kind = draw(st.sampled_from(kinds))
    if kind == "ask":
        return ast.Query("ask", where)
    if kind == "construct":
        node: st.SearchStrategy[ast.Node] = st.sampled_from([*VARS, *VARS, SUBJECTS[0], Var("_:new")])
        edge: st.SearchStrategy[ast.Node] = st.sampled_from([*PREDICATES, VARS[3]])
        template = st.lists(st.tuples(node, edge, node), min_size=1, max_size=2)
        return ast.Query("construct", where, template=tuple(draw(template)))
    return draw(grouped(where)) if kind == "grouped" else draw(plain(where))


@st.composite
def plain(draw: st.DrawFn, where: ast.Group) -> ast.Query:
    shown = draw(st.lists(st.sampled_from([*VARS, *VARS, Var("g")]), min_size=1, max_size=4, unique=True))
    columns = [ast.Column(var) for var in shown]
    if draw(st.integers(0, 3)) == 0:
        columns.append(ast.Column(Var("v"), draw(arithmetic())))
    order: list[tuple[Var, bool]] = []
    limit, offset = None, 0
    if draw(st.integers(0, 3)) == 0:
        order = [(var, draw(st.booleans())) for var in draw(st.permutations(shown))]
        limit = draw(st.one_of(st.none(), st.integers(0, 5)))
        offset = draw(st.sampled_from([0, 0, 1, 3]))
    return ast.Query("select", where, tuple(columns), draw(st.booleans()), None, tuple(order), limit, offset)


@st.composite
def grouped(draw: st.DrawFn, where: ast.Group) -> ast.Query:
    keys = tuple(draw(st.lists(st.sampled_from(VARS[:3]), max_size=2, unique=True)))
    columns = [ast.Column(var) for var in keys]
    function = st.sampled_from(["COUNT", "COUNT", "SUM", "AVG", "MIN", "MAX"])
    for name in "vw"[: draw(st.integers(1, 2))]:
        if draw(st.integers(0, 3)) == 0:
            aggregate = ast.Aggregate("COUNT", False, None)
        else:
            aggregate = ast.Aggregate(draw(function), draw(st.booleans()), draw(st.sampled_from(VARS)))
        columns.append(ast.Column(Var(name), aggregate))
    return ast.Query("select", where, tuple(columns), False, keys)
