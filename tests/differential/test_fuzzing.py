"""Some hundred queries of the fuzzer in each run of the tests, what is known of the libraries, the fuzzer itself."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

import wukongs
from tests.differential.disagreements import DISAGREEMENTS, Disagreement
from tests.fuzz import SEED, TIER, scaled
from tests.fuzzing import answers, windows
from tests.fuzzing.faults import OXIGRAPH
from tests.fuzzing.graphs import GRAPHS, Data, random_data
from tests.fuzzing.judge import Open, Tally, World
from tests.fuzzing.order import order_fault
from tests.fuzzing.queries import random_query, text_of
from tests.fuzzing.run import fuzz_world
from tests.fuzzing.trees import operators, shrunk, tree
from tests.oracles.compare import Cell

CASES = Path(__file__).with_name("cases")
WORLDS = 1 if TIER == "fast" else scaled(4)


@pytest.mark.parametrize("number", range(WORLDS))
def test_random_queries_have_no_open_disagreement(number: int) -> None:
    tally = fuzz_world(f"{'tests' if SEED is None else SEED}/{number}")
    assert not tally.opened, "\n\n".join(tally.opened)
    assert tally.queries == 100
    assert tally.not_empty >= 20


def test_queries_are_of_all_kinds() -> None:
    rng = random.Random(5)
    data = random_data(rng)
    seen: set[str] = set()
    for _ in range(1500):
        seen |= operators(random_query(rng, data))
    assert seen >= {
        "ASK", "CONSTRUCT", "SELECT", "SELECT DISTINCT", "SELECT REDUCED", "GROUPED", "GROUP BY", "HAVING", "ORDER BY",
        "LIMIT", "OFFSET", "FROM", "FROM NAMED", "BGP", "PATH", "FILTER", "OPTIONAL", "UNION", "MINUS", "GRAPH",
        "GRAPH ?g", "BIND", "VALUES", "UNDEF", "TRAILING VALUES", "SUBQUERY", "EXISTS", "NOT EXISTS", "/", "|", "^",
        "!()", "path *", "path +", "path ?", "COUNT", "COUNT *", "COUNT DISTINCT", "SUM", "AVG", "MIN", "MAX", "SAMPLE",
        "GROUP_CONCAT", "IN", "NOT IN", "&&", "||", "!", "BOUND", "IF", "COALESCE", "REGEX", "REPLACE", "SUBSTR",
    }  # fmt: skip


# --- what was found -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(CASES.glob("*.rq")), ids=lambda path: path.stem)
def test_a_fault_of_ours_stays_mended(path: Path) -> None:
    """Each file holds a query that once had a wrong answer, its data, and how many rows are right."""
    text = path.read_text(encoding="utf-8")
    [(data, rows)] = re.findall(r"^# data:(.*)\n# rows: (\d+)$", text, re.MULTILINE)
    query = tree("query", "SELECT", *(line for line in text.splitlines() if not line.startswith("#")))
    world = World(quads_of(data))
    try:
        tally = Tally()
        assert world.judge(query, tally) is None
        assert dict(tally.verdicts) == {"agreed": 1}
        assert len(world.engine.query(text_of(query))) == int(rows)
    finally:
        world.close()


# --- what is known of the libraries -----------------------------------------------------------------------------------


def quads_of(lines: str) -> Data:
    data: Data = {"": []}
    for line in filter(None, lines.split(" .")):
        subject, predicate, object_, *graph = line.split()
        data.setdefault(graph[0] if graph else "", []).append((subject, predicate, object_))
    return data


@pytest.mark.parametrize("case", DISAGREEMENTS, ids=lambda case: str(case.query))
def test_a_disagreement_is_settled(case: Disagreement) -> None:
    """The engine answers as the reason says, pyoxigraph does not, and the class that counts it knows it."""
    world = World(quads_of(case.quads))
    try:
        assert world.engine.query(text_of(case.query)).texts() == case.rows
        tally = Tally()
        assert world.judge(case.query, tally) is None
        assert dict(tally.verdicts) == {f"pyoxigraph: {case.fault}": 1}
    finally:
        world.close()


def test_each_class_has_a_case() -> None:
    assert {fault.name for fault in OXIGRAPH} == {case.fault for case in DISAGREEMENTS}


# --- the fuzzer itself ------------------------------------------------------------------------------------------------


@pytest.fixture
def lossy(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that forgets how often a row stands in an answer."""
    whole = answers.of_engine

    def without_repeats(result: wukongs.Result | wukongs.WindowResult) -> answers.Answer:
        answer = whole(result)
        return answer if isinstance(answer, bool) else list(set(answer))

    monkeypatch.setattr(answers, "of_engine", without_repeats)


@pytest.mark.slow
@pytest.mark.usefixtures("lossy")
def test_a_fault_is_found_and_made_small() -> None:
    tally = fuzz_world("lossy/1")
    assert tally.opened
    smallest = min(tally.opened, key=len)
    assert smallest.startswith("seed lossy/1\nPREFIX")
    assert "the definitions say otherwise" in smallest
    assert len(smallest.split(" .\n")) <= 4, smallest  # so few triples are left


def test_a_wrong_window_is_found() -> None:
    data = random_data(random.Random(3), blank=False)
    query = tree("query", "SELECT", "SELECT * WHERE { ?s ?p ?o }")
    right: list[tuple[Cell, ...]] = [tuple(map(answers.cell_of_text, triple)) for triple in data[""]]
    wrong = right[1:]
    assert not windows.disagreements(data, [(query, right)], random.Random(1))
    [(found, opened)] = windows.disagreements(data, [(query, wrong)], random.Random(1))
    assert (found, opened.kind) == (query, "a window answers otherwise")


@pytest.mark.parametrize(
    ("keys", "rows", "fault"),
    [
        ("?x", ["1", "2", "10"], False),
        ("?x", ["2", "1"], True),
        ("DESC( ?x )", ["2", "1"], False),
        ("DESC( ?x )", ["1", "2"], True),
        ("?none ?x", ["2", "1"], False),
    ],
)
def test_rows_in_the_wrong_order_are_found(keys: str, rows: list[str], fault: bool) -> None:
    query = tree("query", "SELECT", "SELECT ?x WHERE { }", tree("order", "ORDER BY", f"ORDER BY {keys}"))
    texts = [(f'"{row}"^^<http://www.w3.org/2001/XMLSchema#integer>',) for row in rows]
    assert bool(order_fault(query, texts, ["x"])) is fault


def test_shrinking_keeps_what_fails() -> None:
    rng = random.Random(11)
    data = random_data(rng)
    queries = [random_query(rng, data) for _ in range(200)]
    query = next(each for each in queries if {"OPTIONAL", "UNION", "FILTER"} <= operators(each))
    small = shrunk(query, lambda each: "OPTIONAL" in operators(each))
    assert "OPTIONAL" in operators(small)
    assert not operators(small) & {"UNION", "FILTER"}
    assert len(str(small)) < len(str(query)) / 2


def test_a_syntax_error_of_ours_is_open() -> None:
    world = World({"": []})
    tally = Tally()
    found = world.judge(tree("query", "SELECT", "SELECT ?x WHERE {"), tally)
    world.close()
    assert isinstance(found, Open)
    assert found.kind.startswith("the engine fails: QuerySyntaxError")
    assert tally.verdicts["OPEN"] == 1


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        ([('"1.0E0"', "D")], [('"1"', "D")], True),
        ([('"1"', "I")], [('"1"', "D")], False),
        ([('"0.33333333333333333333"', "X")], [('"0.333333333333333333"', "X")], True),
        ([('"12345678901"', "I")], [('"12345678902"', "I")], False),
        ([('"a"', "")], [('"a"', ""), ('"a"', "")], False),
        ([("_:a", ""), ("_:b", "")], [("_:c", ""), ("_:d", "")], True),
        ([("_:a", ""), ("_:a", "")], [("_:c", ""), ("_:d", "")], False),
    ],
)
def test_answers_are_compared_as_bags_of_values(
    left: list[tuple[str, str]], right: list[tuple[str, str]], equal: bool
) -> None:
    names = {"D": "double", "I": "integer", "X": "decimal"}
    types = {"": "", **{letter: f"^^<http://www.w3.org/2001/XMLSchema#{name}>" for letter, name in names.items()}}
    both = [[(answers.cell_of_text(text + types[kind]),) for text, kind in rows] for rows in (left, right)]
    assert answers.same(*both) is equal


def test_data_is_what_is_asked_for() -> None:
    data = [random_data(random.Random(seed), blank=False) for seed in range(20)]
    assert all("_:" not in part for each in data for triples in each.values() for triple in triples for part in triple)
    assert {name for each in data for name in each} == {"", *GRAPHS}
