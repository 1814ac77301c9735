"""Live views: what readers sum up is the answer of the text asked once, on every face."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest

import wukongs

EX = "PREFIX : <http://ex/> "
HOPS = "SELECT ?x ?z WHERE { ?x :p ?y . ?y :p ?z }"
Row = tuple[Any, ...]


def names(row: Any) -> Row:
    return tuple(None if term is None else str(term).rpartition("/")[2] for term in row)


def given(*terms: str) -> list[dict[str, str]]:
    return [{"x": f"<http://ex/{term}>"} for term in terms]


class Sum:
    """What a reader keeps: the sum of its reports, by (number of the argument, names of terms)."""

    def __init__(self, engine: Any, view: Any) -> None:
        self.engine, self.view, self.rows, self.resets = engine, view, Counter[Row](), 0

    def read(self) -> Counter[Row]:
        self.engine.settle(30)
        for report in self.view.results(timeout_s=0.2, progress=True):
            if report.is_reset:
                self.rows, self.resets = Counter(), self.resets + 1
            for row, weight in report.changes():
                self.rows[names(row)] += weight
        self.rows = +self.rows
        return self.rows


def asked(engine: Any, arguments: dict[int, str]) -> Counter[Row]:
    """Return the rows that each argument has by a query."""
    return Counter(
        (str(number), *names(row))
        for number, term in arguments.items()
        for row in engine.query(EX + HOPS, bindings={"x": f"<http://ex/{term}>"})
    )


@pytest.mark.slow_on("cluster-3")
def test_arguments_come_and_go(engine: Any) -> None:
    engine.update(EX + "INSERT DATA { :a :p :b . :b :p :c . :c :p :d }")
    view = engine.register(f"{EX}REGISTER QUERY v AS {HOPS}", bindings=given("a", "unknown"))
    kept, bound = Sum(engine, view), {0: "a", 1: "unknown"}
    assert kept.read() == asked(engine, bound) == Counter({("0", "a", "c"): 1})
    assert view.bind(given("b", "a")).tolist() == [2, 3]
    bound |= {2: "b", 3: "a"}
    assert kept.read() == asked(engine, bound)
    engine.update(EX + "DELETE DATA { :c :p :d } ; INSERT DATA { :unknown :p :b . :c :p :e }")
    assert kept.read() == asked(engine, bound)
    assert view.unbind(given("a")).tolist() == [0], "the oldest equal one"
    assert view.unbind([2]).tolist() == [2]
    bound = {1: "unknown", 3: "a"}
    assert kept.read() == asked(engine, bound) == Counter({("1", "unknown", "c"): 1, ("3", "a", "c"): 1})
    assert view.bind(given("b")).tolist() == [4], "a number is never used again"
    bound[4] = "b"
    assert kept.read() == asked(engine, bound)
    assert Counter(map(names, view.content())) == kept.rows
    with pytest.raises(wukongs.DataError, match="no argument has the number 2"):
        view.unbind([2])
    assert view.stats()["arguments"] == 3
    assert kept.resets == 1
    view.pause()
    assert view.bind(given("c")).tolist() == [5]
    bound[5] = "c"
    view.resume()
    assert kept.read() == asked(engine, bound)


@pytest.mark.slow_on("cluster-3")
@pytest.mark.parametrize("every", ["COMPUTED EVERY 1s", ""])
def test_a_period_is_one_report_at_its_end(engine: Any, every: str) -> None:
    stream = engine.stream("http://ex/s", batch_ms=100)
    engine.update(EX + "INSERT DATA { :a :p :b . :b :p :c }")
    options: dict[str, Any] = {} if every else {"every_ms": 1000}
    stream.push([("<http://ex/c>", "<http://ex/p>", "<http://ex/d>", 50)])
    stream.advance(100)
    engine.settle(30)
    view = engine.register(f"{EX}REGISTER QUERY v {every} AS {HOPS}", **options)
    reports = list(view.results(timeout_s=0.2))
    for at in range(1, 41):
        ends = f"<http://ex/n{at % 7}>", f"<http://ex/n{at % 5}>"
        stream.push([(ends[0], "<http://ex/p>", ends[1], 100 * at + 50)])
        stream.advance(100 * at + 100)
        if at % 4 == 0:
            engine.update(EX + f"DELETE WHERE {{ :n{at % 7} :p ?x }}")
        if at % 10 == 0:
            engine.settle(30)
            reports += view.results(timeout_s=0.2)
            content = view.content()
            assert content.snapshot == reports[-1].snapshot
            total = Counter[Row]()
            for report in reports:
                for row, weight in report.changes():
                    total[names(row)] += weight
            assert +total == Counter(map(names, content))
    assert [report.is_reset for report in reports] == [True] + [False] * (len(reports) - 1)
    assert [report.time_ms for report in reports[1:]] == [1000, 2000, 3000, 4000]
    assert all(report.after == before.snapshot for before, report in itertools.pairwise(reports))


RULE = EX + "RULE two: CONSTRUCT { ?x :r ?z } WHERE { ?x :p ?y . ?y :p ?z }"


def triples(support: Any) -> set[str]:
    return {"".join(names(part.triple)) + (part.graph or "") for part in support.parts}


@pytest.mark.slow_on("cluster-3")
@pytest.mark.parametrize(
    ("text", "row", "expected"),
    [
        ("SELECT ?x ?z WHERE { ?x :r ?y . ?y :p ?z }", ("<http://ex/a>", "<http://ex/d>"), {"a>r>c>", "c>p>d>"}),
        ("SELECT ?x (COUNT(*) AS ?n) WHERE { ?x :p ?y } GROUP BY ?x", {"n": 2}, {"c>p>d>", "c>p>e>"}),
        ("SELECT ?x ?y FROM :g FROM :h WHERE { ?x :p ?y }", ("<http://ex/a>", "<http://ex/b>"), {"a>p>b>http://ex/h"}),
        ("SELECT ?x WHERE { GRAPH ?g { ?x :p ?y } }", {"x": "<http://ex/a>"}, {"a>p>b>http://ex/h"}),
        ("CONSTRUCT { ?z :back ?x } WHERE { ?x :p ?y . ?y :p ?z }", {"subject": "<http://ex/c>"}, {"a>p>b>", "b>p>c>"}),
        ("SELECT ?x ?z WHERE { ?x :p+ ?z }", {"x": "<http://ex/a>", "z": "<http://ex/e>"}, set()),
    ],
)
def test_a_row_rests_on_triples(engine: Any, text: str, row: Any, expected: set[str]) -> None:
    engine.add_rules(RULE)
    engine.update(EX + "INSERT DATA { :a :p :b . :b :p :c . :c :p :d, :e . GRAPH :h { :a :p :b } }")
    view = engine.register(f"{EX}REGISTER QUERY v AS {text}")
    engine.settle(30)
    engine.update(EX + "INSERT DATA { :e :q :f }")
    engine.settle(30)
    found = view.why(row)
    assert triples(found) == expected
    assert (found.query, found.more, found.is_partial) == ("v", 0, "+" in text)
    by_rule = [part for part in found.parts if part.triple[1].endswith("r>")]
    assert all(triples(one) == {"a>p>b>", "b>p>c>"} and one.rule == "two" for one in by_rule)
    assert len(by_rule) == sum("r>" in triple for triple in expected)
    with pytest.raises(wukongs.DataError, match="view v has no row with"):
        view.why({next(iter(found.row)): "<http://ex/none>"})


def test_a_row_of_an_argument_rests_on_triples(engine: Any) -> None:
    engine.update(EX + "INSERT DATA { :a :p :b . :b :p :c . :b :p :d }")
    view = engine.register(f"{EX}REGISTER QUERY v AS {HOPS}", bindings=given("b", "a"))
    engine.settle(30)
    assert triples(view.why({"argument": 1, "z": "<http://ex/d>"})) == {"a>p>b>", "b>p>d>"}
    with pytest.raises(wukongs.DataError, match="has no row with"):
        view.why({"argument": 0})
