"""Paths searched over batches, tombstones, windows and named graphs against the definitions of section 18.4, with
buffers so small that the search stops and resumes everywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzzed
from tests.oracles import paths as oracle
from tests.property.test_plan import GRAPHS, LITERALS, NAMES, PREDICATES, VERTICES, Maker, term
from tests.quads import spread
from wukongs.csparql import paths
from wukongs.csparql.algebra import DEFAULT, GraphRef, PathPattern
from wukongs.csparql.terms import Term, Variable
from wukongs.query.binding_table import BindingTable
from wukongs.query.limits import Limits
from wukongs.query.paths import circles, path_layout, path_search
from wukongs.query.paths import paths as searched
from wukongs.query.paths.path_machine import PathPlan
from wukongs.query.paths.paths import PathExplorer
from wukongs.store.dtypes import Int64Array
from wukongs.store.term_ids import integer_ids

NOWHERE = Term("<of no data>")
NOWHERE_ID = spread(4000)
X, Y, G, N = Variable("x"), Variable("y"), Variable("g"), Variable("n")


class Terms:
    """A term space that knows one term more than the data."""

    def texts(self, ids: Int64Array) -> list[str]:
        raise AssertionError(f"a search has no use for the texts of {ids}")

    def ids(self, texts: Sequence[str]) -> Int64Array:
        return np.array([NAMES.get(text, NOWHERE_ID) for text in texts], np.int64)


def id_of(each: Term) -> int:
    return NAMES.get(each.text, NOWHERE_ID)


class PathMaker(Maker):
    """Random datasets as those of plans, with random paths over them."""

    def path(self, depth: int) -> oracle.Path:
        rng = self.rng
        kind = (
            rng.choice(["link", "link", "^", "/", "|", "*", "+", "?", "{", "!"]) if depth else rng.choice(["link", "!"])
        )
        if kind == "link":
            return ("link", rng.choice(PREDICATES))
        if kind == "!":
            sides = [tuple(rng.sample(PREDICATES, rng.randrange(3))) for _ in range(2)]
            dropped = rng.choice([0, 1, 2])
            return ("!", *(None if dropped == side + 1 else sides[side] for side in range(2)))
        inner = [self.path(depth - 1) for _ in range(2 if kind in "/|" else 1)]
        return (kind, *inner) if kind in "/|" else self.repeated(kind, *inner)

    def repeated(self, kind: str, inner: oracle.Path) -> oracle.Path:
        if kind != "{":
            return (kind, inner)
        low = self.rng.choice([0, 0, 1, 1, 2, 3])
        return ("{", inner, low, self.rng.choice([None, low, low + 1, low + 3]))

    def path_pattern(self, graph: GraphRef) -> tuple[PathPattern, oracle.Path]:
        rng = self.rng
        path = self.repeated(rng.choice("*+?{{"), self.path(rng.choice([0, 0, 1, 1, 2, 3])))
        ends = [self.end(), self.end()]
        if rng.random() < 0.1:
            ends[1] = ends[0]
        length = N if rng.random() < 0.4 else None
        return PathPattern(ends[0], as_path(path), ends[1], graph, length), path

    def end(self) -> Term | Variable:
        rng = self.rng
        if rng.random() < 0.6:
            return rng.choice([X, Y, G] if rng.random() < 0.1 else [X, Y])
        return NOWHERE if rng.random() < 0.1 else term(rng.choice([*VERTICES, LITERALS[0], PREDICATES[0]]))


def as_path(path: oracle.Path) -> paths.Path:
    match path:
        case ("link", predicate):
            return term(predicate)
        case ("!", forward, inverse):
            sides = (None if side is None else tuple(map(term, side)) for side in (forward, inverse))
            return paths.NegatedSet(*sides)
        case ("/", first, second):
            return paths.PathSequence(as_path(first), as_path(second))
        case ("|", first, second):
            return paths.Alternative(as_path(first), as_path(second))
        case ("{", inner, low, high):
            return paths.Repeated(as_path(inner), low, high)
        case (kind, inner):
            makes = {"^": paths.Inverse, "*": paths.ZeroOrMore, "+": paths.OneOrMore, "?": paths.ZeroOrOne}
            return makes[kind](as_path(inner))
    raise AssertionError(path)


class CircleMaker(PathMaker):
    """Paths that lead back to where they began, most of them without an end."""

    def path_pattern(self, graph: GraphRef) -> tuple[PathPattern, oracle.Path]:
        path = self.path(self.rng.choice([0, 1, 2]))
        path = ("{", path, self.rng.choice([2, 3]), None) if self.rng.random() < 0.2 else ("+", path)
        return PathPattern(X, as_path(path), X, graph), path


def shrink_buffers(monkeypatch: pytest.MonkeyPatch, edges: int, out: int, pairs_max: int) -> None:
    monkeypatch.setattr(circles, "EDGES_PER_CALL", edges)
    for name, value in (
        ("EDGES_PER_CALL", edges),
        ("PAIR_EDGES_FIRST", 1),
        ("PAIRS_FIRST", 2),
        ("MET_PAIRS_FIRST", 2),
        ("OUT_ROWS", out),
        ("SPANS", 1),
    ):
        monkeypatch.setattr(path_search, name, value)
    monkeypatch.setattr(searched, "PAIRS_MAX", pairs_max)
    monkeypatch.setattr(searched, "PAIRS_AN_END_MAX", pairs_max)


def check(maker: PathMaker) -> int:
    """Compare one random pattern, joined with random rows, with the definitions; return how many rows it has."""
    rng = maker.rng
    case = maker.case()
    clause = case.dataset.clause
    graph: GraphRef = rng.choice([DEFAULT, DEFAULT, G, maker.name(clause)])
    pattern, path = maker.path_pattern(graph)
    ids = [*VERTICES * 3, *LITERALS, *GRAPHS, NOWHERE_ID]
    variables = tuple(rng.sample([X, Y, G, N, Variable("elsewhere")], rng.choice([0, 0, 0, 1, 2, 3])))
    counts = integer_ids(np.arange(4)).tolist()
    columns_ids = [counts if variable == N else ids for variable in variables]
    rows = [tuple(map(rng.choice, columns_ids)) for _ in range(rng.randrange(1, 9))] if variables else [()]
    columns = tuple(np.array(column, np.int64) for column in zip(*rows, strict=True))
    seeds = BindingTable(variables, columns, len(rows))

    found = PathExplorer(PathPlan(pattern), case.dataset, Terms(), Limits()).explore(seeds)

    ends = [
        oracle.Var(end.name) if isinstance(end, Variable) else id_of(end) for end in (pattern.subject, pattern.object)
    ]
    solutions = []
    for name, triples in case.model._graphs(graph):
        lengths = oracle.lengths(path, triples, {end for end in ends if not isinstance(end, oracle.Var)})
        for solution in oracle.evaluate(path, *ends, triples):
            if isinstance(graph, Variable) and solution.setdefault(graph.name, name) != name:
                continue
            if pattern.length is not None:
                pair = [solution[end.name] if isinstance(end, oracle.Var) else end for end in ends]
                solution[N.name] = int(integer_ids(np.array([lengths[pair[0], pair[1]]]))[0])
            solutions.append(solution)
    expected = [
        {**row, **solution}
        for row in (dict(zip((v.name for v in variables), values, strict=True)) for values in rows)
        for solution in solutions
        if all(row.get(name, value) == value for name, value in solution.items())
    ]
    names = [variable.name for variable in found.variables]
    assert set(found.variables) == set(variables) | set(pattern.variables())
    answer = Counter(zip(*(column.tolist() for column in found.columns), strict=True) if names else [()] * found.length)
    assert sum(answer.values()) == found.length
    assert answer == Counter(tuple(row[name] for name in names) for row in expected), paths.format_path(pattern.path)
    return len(expected)


@given(
    st.integers(0, 2**32),
    st.sampled_from([6, 20, 40]),
    st.sampled_from([(1, 1), (3, 5), (1000, 100)]),
    st.sampled_from([0, 3, 100]),
)
@fuzzed(600)
def test_paths_reach_what_the_definitions_say(seed: int, size: int, buffers: tuple[int, int], pairs_max: int) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        shrink_buffers(monkeypatch, *buffers, pairs_max)
        check(PathMaker(seed, size))


@pytest.mark.nojit
def test_a_few_paths_reach_what_the_definitions_say(monkeypatch: pytest.MonkeyPatch) -> None:
    solved = 0
    for seed in range(60):
        shrink_buffers(monkeypatch, 3, 5, seed % 3)
        solved += check(PathMaker(seed, 30)) > 0
    assert solved > 20, "most cases have no solution: they prove little"


@given(st.integers(0, 2**32), st.sampled_from([10, 30, 60]), st.sampled_from([1, 3, 1000]), st.sampled_from([0, 2]))
@fuzzed(300)
def test_circles_are_those_of_the_definitions(seed: int, size: int, edges: int, edges_a_node: int) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        shrink_buffers(monkeypatch, edges, 5, 0)
        monkeypatch.setattr(searched, "EDGES_A_NODE", edges_a_node)
        check(CircleMaker(seed, size))


@pytest.mark.nojit
def test_a_few_circles_are_those_of_the_definitions(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, solved = [], 0
    kept = circles.returning_nodes
    monkeypatch.setattr(searched, "returning_nodes", lambda *given: asked.append(1) or kept(*given))
    monkeypatch.setattr(searched, "EDGES_A_NODE", 0)
    for seed in range(60):
        shrink_buffers(monkeypatch, 2, 5, 0)
        solved += check(CircleMaker(seed, 40)) > 0
    assert min(len(asked), solved) > 20


def test_every_way_of_stopping_is_met(monkeypatch: pytest.MonkeyPatch) -> None:
    """The random cases do stop and resume in all the ways that there are."""
    met: dict[str, Counter[int]] = {"search_paths": Counter(), "search_pairs": Counter()}

    def spied(name: str) -> Callable[..., int]:
        kernel = getattr(path_search, name)

        def spy(*arguments: object) -> int:
            status: int = kernel(*arguments)
            met[name][status] += 1
            return status

        return spy

    for name in met:
        monkeypatch.setattr(path_search, name, spied(name))
    for seed in range(250):
        shrink_buffers(monkeypatch, 3, 1, 100)
        check(PathMaker(seed, 40))
    stops = {"search_paths": ("FULL", "MET"), "search_pairs": ()}
    for kernel, others in stops.items():
        for name in ("DONE", "NEED_ROOM", "NEED_SPANS", "PAUSED", *others):
            assert met[kernel][getattr(path_layout, name)] >= 10, (kernel, name, met)
