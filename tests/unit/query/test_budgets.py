"""Bad queries end in a named error that says which limit, its value, in what operator, and what to do; then the engine
answers as before, holds no snapshot and no memory for them, and other queries go on."""

from __future__ import annotations

import gc
import io
import itertools
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import wukongs
from tests.engine_helpers import A, at, register_text, windows
from tests.inside import core_of
from tests.unit.query.test_pattern_process import end_in_the_process
from wukongs import settings
from wukongs.live import update_request
from wukongs.query import limits as limits_module
from wukongs.query import rows
from wukongs.query.limits import Limits, current, limits_of

# In the thread that the tests run in, before any of them.
NO_EXECUTION = current()

NODES = 300
MEGABYTE = 1 << 20
PREFIX = "PREFIX : <http://ex/> "
ASKED = f"{PREFIX}SELECT (COUNT(*) AS ?n) {{ ?s :p ?o }}"

ANY = "?a{0} :p ?b{0} . "
PRODUCT = "".join(ANY.format(number) for number in range(6))
FOUR = "".join(f"{{ SELECT ?x{number} {{ ?x{number} :p ?y{number} }} }} " for number in range(4))
LISTED = " ".join(f'"{number}"' for number in range(2_000))
DOUBLED = " ".join(f"BIND(CONCAT(?x{number}, ?x{number}) AS ?x{number + 1})" for number in range(40))
REPLACED = " ".join(f"BIND(REPLACE(?x{number}, '.', '$0$0$0$0$0$0$0$0') AS ?x{number + 1})" for number in range(14))
NESTED = (
    "?a :p ?b OPTIONAL { { SELECT ?c ?d { ?c :p ?d } } OPTIONAL { { SELECT ?e ?f { ?e :p ?f } } "
    "OPTIONAL { { SELECT ?g ?h { ?g :p ?h } } } } }"
)
TEMPLATE = " ".join(f"?a :t{number} ?c ." for number in range(12))
TWO = "?a :p ?b . ?c :p ?d "

BAD = {
    "six-way product": (f"SELECT * {{ {PRODUCT} }}", "a basic graph pattern"),
    "self-join": ("SELECT * { ?a :in ?h . ?b :in ?h . ?c :in ?h . ?d :in ?h }", "a basic graph pattern"),
    "dense path": ("SELECT * { ?a (:p|^:p|:in|^:in)+ ?b . ?b (:p|^:p|:in|^:in)+ ?c }", ""),
    "GROUP_CONCAT": (f"SELECT (GROUP_CONCAT(STR(?a)) AS ?all) {{ {TWO} . ?e :p ?f }}", ""),
    "ORDER BY": (f"SELECT * {{ {TWO} . ?e :p ?f }} ORDER BY ?d ?b ?f", "a basic graph pattern"),
    "DISTINCT": (f"SELECT DISTINCT ?a ?c ?e {{ {TWO} . ?e :p ?f }}", "a basic graph pattern"),
    "EXISTS per row": (
        f"SELECT * {{ {TWO} FILTER EXISTS {{ SELECT ?a (COUNT(*) AS ?n) {{ ?a :p ?x . ?y :p ?z . ?u :p ?v . "
        "?w :p ?q } GROUP BY ?a } }",
        "a basic graph pattern",
    ),
    "nested OPTIONAL": (f"SELECT * {{ {NESTED} }}", "OPTIONAL"),
    "subqueries": (f"SELECT * {{ {FOUR} }}", "join"),
    "VALUES x VALUES": (
        f"SELECT * {{ VALUES ?x {{ {LISTED} }} VALUES ?y {{ {LISTED} }} VALUES ?z {{ {LISTED} }} }}",
        "join",
    ),
    "UNION": (
        "SELECT * { { SELECT ?a ?c ?e { ?a :p ?b . ?c :p ?d . ?e :p ?f } } UNION { SELECT ?a ?c ?e "
        "{ ?a :p ?b . ?c :p ?d . ?e :p ?f } } }",
        "a basic graph pattern",
    ),
    "CONSTRUCT": (f"CONSTRUCT {{ {TEMPLATE} }} {{ {TWO} }}", "CONSTRUCT"),
}
"""Name -> (query, the operator that breaks rows_max = 1,000,000; empty where it depends on the limit)."""

TEXTS = {
    "CONCAT": (f"SELECT ?x40 {{ BIND('abc' AS ?x0) {DOUBLED} }}", "CONCAT"),
    "REPLACE": (f"SELECT ?x14 {{ BIND('abc' AS ?x0) {REPLACED} }}", "REPLACE"),
    "GROUP_CONCAT": (
        f"SELECT (GROUP_CONCAT(?long) AS ?all) {{ {TWO} BIND(CONCAT(STR(?a), '{'x' * 2000}') AS ?long) }}",
        "GROUP_CONCAT",
    ),
}


class Clock:
    """A second passes whenever somebody looks."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        self.now_s += 1
        return self.now_s


@pytest.fixture(scope="module")
def engine() -> Iterator[wukongs.Engine]:
    """A ring of nodes, all of which are in one hub."""
    options = settings.Settings(rows_max=1_000_000, query_bytes_max=200 * MEGABYTE, spill_bytes_max=0)
    with wukongs.Engine(settings=options) as made:
        lines = [f"<http://ex/n{i}> <http://ex/p> <http://ex/n{(i + 1) % NODES}> ." for i in range(NODES)]
        lines += [f"<http://ex/n{i}> <http://ex/in> <http://ex/hub> ." for i in range(NODES)]
        made.load(io.BytesIO("\n".join(lines).encode()), format="nt")
        yield made


def check_health(engine: wukongs.Engine) -> None:
    """The engine answers, holds no snapshot, and its lock is free."""
    assert engine.query(ASKED).texts() == [(f'"{NODES}"^^<http://www.w3.org/2001/XMLSchema#integer>',)]
    core = core_of(engine)
    assert core.lock.acquire(timeout=60)
    core.lock.release()
    assert engine.stats()["handles"] == []
    assert current() is NO_EXECUTION


@pytest.mark.parametrize("name", BAD)
def test_too_many_rows(engine: wukongs.Engine, name: str) -> None:
    query, operator = BAD[name]
    with pytest.raises(wukongs.BudgetExceeded) as caught:
        engine.query(PREFIX + query, timeout_s=0)
    text = str(caught.value)
    assert operator in text
    assert "rows_max = 1000000" in text or "query_bytes_max = 209715200" in text
    assert "raise rows_max" in text or "raise query_bytes_max" in text
    check_health(engine)


@pytest.mark.parametrize("name", BAD)
def test_too_long(engine: wukongs.Engine, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each looks at the clock often enough, whatever it does: the fourth look is too late."""
    monkeypatch.setattr(limits_module, "time", Clock())
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    with pytest.raises(wukongs.QueryTimeout, match=r"longer than timeout_s = 3, at last in .*: give it more time"):
        engine.query(PREFIX + BAD[name][0], timeout_s=3)
    monkeypatch.undo()
    check_health(engine)


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
def test_texts_too_long(engine: wukongs.Engine, name: str) -> None:
    query, what = TEXTS[name]
    with pytest.raises(wukongs.BudgetExceeded) as caught:
        engine.query(PREFIX + query, timeout_s=0)
    assert f"{what} would take" in str(caught.value) or "BIND would take" in str(caught.value)
    assert "query_bytes_max = 209715200: let patterns" in str(caught.value)
    check_health(engine)


@pytest.mark.slow
def test_memory_is_given_back(engine: wukongs.Engine) -> None:
    """Neither the errors nor the engine keep tables."""
    check_health(engine)
    tracemalloc.start()
    try:
        held = tracemalloc.get_traced_memory()[0]
        for query, _ in (*BAD.values(), *TEXTS.values()):
            with pytest.raises(wukongs.BudgetExceeded):
                engine.query(PREFIX + query, timeout_s=0)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - held < 10 * MEGABYTE
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_what_is_held_is_about_what_lives(engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The account is compared with what Python really allocates at the most, for queries of several kinds."""
    seen: list[Limits] = []

    def remembered(*arguments: object) -> Limits:
        seen.append(limits_of(*arguments))  # type: ignore[arg-type]
        return seen[-1]

    monkeypatch.setattr("wukongs.engine.limits_of", remembered)
    for query in (
        f"SELECT * {{ {TWO} }}",
        f"SELECT DISTINCT ?a ?c {{ {TWO} }}",
        f"SELECT ?a ?c {{ {TWO} }} ORDER BY ?d ?b",
        "SELECT * { { SELECT ?a ?b { ?a :p ?b } } { SELECT ?c ?d { ?c :p ?d } } }",
        f"SELECT (CONCAT(STR(?a), STR(?c)) AS ?x) {{ {TWO} }}",
        f"SELECT ?a (GROUP_CONCAT(STR(?c)) AS ?x) {{ {TWO} }} GROUP BY ?a",
        "SELECT * { ?a :p+ ?b }",
    ):
        engine.query(PREFIX + query)
        tracemalloc.start()
        try:
            engine.query(PREFIX + query)
            real = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert real < 1.5 * seen[-1].peak + MEGABYTE, query
        assert seen[-1].peak < 6 * real + MEGABYTE, query


def test_a_hostile_pattern_with_back_references_is_ended(
    engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_in_the_process(monkeypatch)
    hostile = f"ASK {{ BIND('{'a' * 40}b' AS ?x) FILTER REGEX(?x, '^((a+)+)\\\\1*c$') }}"
    with pytest.raises(wukongs.QueryTimeout, match=r"longer than timeout_s = 60, at last in FILTER"):
        engine.query(hostile, timeout_s=60)
    monkeypatch.undo()
    check_health(engine)
    assert engine.query("ASK { FILTER REGEX('abab', '^(ab)\\\\1$') }").boolean


def test_numbers_that_outgrow_everything_are_refused(engine: wukongs.Engine) -> None:
    for first in ("99999999999", "1.1"):
        squared = " ".join(f"BIND(?x{i} * ?x{i} AS ?x{i + 1})" for i in range(40))
        with pytest.raises(wukongs.BudgetExceeded, match="a number of more than 10000 digits: ROUND what"):
            engine.query(f"SELECT ?x40 {{ BIND({first} AS ?x0) {squared} }}")
    check_health(engine)


def test_the_default_time_is_that_of_the_settings() -> None:
    assert limits_of(settings.Settings(), None, 5.0).deadline_s == 305.0
    assert limits_of(settings.Settings(), 0, 5.0).deadline_s is None
    assert limits_of(settings.Settings(query_timeout_s=0), None).deadline_s is None
    assert limits_of(settings.Settings(query_timeout_s=0), 2.5, 5.0).deadline_s == 7.5


def test_no_memory_is_a_named_error(engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(rows.kernels, "number_rows", fail)
    with pytest.raises(wukongs.BudgetExceeded, match="DISTINCT found no memory in this process, beside"):
        engine.query(f"{PREFIX}SELECT DISTINCT ?o {{ ?s :in ?o }}")
    monkeypatch.undo()
    check_health(engine)


# --- continuous queries -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("{ ?a ?p ?b . ?c ?q ?d . ?e ?r ?f }", "the limit is rows_max = 10000"),
        (f"{{ ?s ?p ?o BIND('abc' AS ?x0) {DOUBLED} }}", "query_bytes_max = 104857600"),
    ],
)
def test_a_firing_over_its_budget_is_told_to_its_reader_alone(where: str, told: str) -> None:
    options = settings.Settings(rows_max=10_000, query_bytes_max=100 * MEGABYTE)
    with wukongs.Engine(settings=options) as engine:
        stream = engine.stream(A, timing=True, batch_ms=100)
        bad = engine.register(register_text("RANGE 100ms STEP 100ms", "bad", where=where, select="*"))
        good = engine.register(register_text("RANGE 100ms STEP 100ms", "good"))
        stream.push([at(f"n{number}", 50) for number in range(30)])
        stream.push([at("late", 150)])
        stream.advance(300)
        engine.settle(timeout_s=60)
        assert windows(good) == {100: sorted(f"n{number}" for number in range(30)), 200: ["late"], 300: []}
        outcomes: list[object] = []
        for _ in range(3):
            try:
                outcomes.append(next(bad.results(timeout_s=0)).end_ms)
            except wukongs.BudgetExceeded as caught:
                outcomes.append(str(caught))
        assert told in str(outcomes[0])
        assert outcomes[-1] == 300, "later windows are reported again"
        assert {handle["owner"] for handle in engine.stats()["handles"]} <= {"the firings"}


def test_a_firing_out_of_time_is_told_to_its_reader_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with wukongs.Engine(settings=settings.Settings(query_timeout_s=5)) as engine:
        stream = engine.stream(A, timing=True, batch_ms=100)
        bad = engine.register(
            register_text("RANGE 100ms STEP 100ms", "bad", where="{ ?a ?p ?b . ?c ?q ?d . ?e ?r ?f }")
        )
        good = engine.register(register_text("RANGE 100ms STEP 100ms", "good"))
        monkeypatch.setattr(limits_module, "time", Clock())
        stream.push([at(f"n{number}", 50) for number in range(300)])
        stream.advance(100)
        engine.settle(timeout_s=60)
        monkeypatch.undo()
        with pytest.raises(wukongs.QueryTimeout, match="longer than timeout_s = 5, at last in a basic graph pattern"):
            next(bad.results(timeout_s=0))
        assert list(windows(good)) == [100]


def test_limits_nest_and_count() -> None:
    with Limits(bytes_max=1000) as outer:
        outer.hold(600)
        with Limits(bytes_max=1000) as inner:
            assert current() is inner
            inner.hold(1000)
        assert current() is outer
        with pytest.raises(wukongs.BudgetExceeded, match="the query would take 401 bytes beside 600 that the"):
            outer.hold(401)
        mark = outer.mark()
        outer.keep(100)
        outer.hold(200)
        outer.back_to(mark, 16)
        assert (outer.held, outer.kept, outer.peak) == (716, 100, 900)
        assert list(outer.polled(range(5000))) == list(range(5000))


def test_long_sorts_are_merged_from_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    from wukongs.query.operators import ordering

    keys = [(number * 7919 % 101,) for number in range(1000)]
    whole = ordering.sorted_places(keys)
    monkeypatch.setattr(ordering, "SORTED_AT_ONCE", 7)
    assert ordering.sorted_places(keys) == whole == sorted(range(1000), key=keys.__getitem__)


def test_long_lists_of_texts_are_matched_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    from wukongs.query.functions import patterns

    texts = ["".join(letters) for letters in itertools.product("ab", repeat=6)]
    monkeypatch.setattr(patterns, "PART_STEPS", 500)
    assert patterns.matches(texts, "aab", "") == ["aab" in text for text in texts]
    assert np.array(patterns.matches(["b" * 50, "a"], "a", "")).tolist() == [False, True]


# --- updates ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "template",
    [
        " ".join(f"?a :t{number} ?c ." for number in range(8)),
        "?a :t _:new . _:new :t ?c .",
        "?a ?c ?x . ?x ?c ?a . ?a ?x ?c . ?c ?a ?x .",
    ],
)
def test_what_a_template_makes_is_within_the_budget(template: str) -> None:
    """90 thousand solutions take 3 MB; what is made of them takes more than is left."""
    options = settings.Settings(query_bytes_max=16 * MEGABYTE)
    with wukongs.Engine(settings=options) as engine:
        lines = [f"<http://ex/n{i}> <http://ex/p> <http://ex/n{(i + 1) % NODES}> ." for i in range(NODES)]
        engine.load(io.BytesIO("\n".join(lines).encode()), format="nt")
        where = f"{TWO} BIND(IRI(CONCAT(STR(?c), 'x')) AS ?x)"
        with pytest.raises(wukongs.BudgetExceeded, match="query_bytes_max = 16777216"):
            engine.update(f"{PREFIX}INSERT {{ {template} }} WHERE {{ {where} }}")
        check_health(engine)
        engine.update(f"{PREFIX}INSERT {{ {template} }} WHERE {{ ?a :p ?c BIND(IRI(CONCAT(STR(?c), 'x')) AS ?x) }}")


@pytest.mark.parametrize("template", [" ".join(f"?a :t{number} ?c ." for number in range(8)), "?a :t _:new"])
def test_a_template_is_filled_until_the_deadline(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the pattern has its answer, a second passes at every look: the fifth is too late."""
    with wukongs.Engine() as engine:
        lines = [f"<http://ex/n{i}> <http://ex/p> <http://ex/n{(i + 1) % NODES}> ." for i in range(NODES)]
        engine.load(io.BytesIO("\n".join(lines).encode()), format="nt")
        found = update_request.answer

        def answered(*arguments: Any) -> Any:
            made = found(*arguments)
            monkeypatch.setattr(limits_module, "time", Clock())
            return made

        monkeypatch.setattr(update_request, "answer", answered)
        monkeypatch.setattr(time, "monotonic", lambda: 0.0)
        with pytest.raises(wukongs.QueryTimeout, match="longer than timeout_s = 4"):
            engine.update(f"{PREFIX}INSERT {{ {template} }} WHERE {{ {TWO} }}", timeout_s=4)
        monkeypatch.undo()
        check_health(engine)
