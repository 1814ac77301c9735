"""Random lives of continuous queries whose matches are kept from firing to firing, and evaluated anew: the windows have
the same rows, each as often."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import wukongs
from tests.fuzz import SEED, TIER, scaled
from wukongs.incremental import maintained, window_join
from wukongs.incremental.groups import Grouped
from wukongs.query.expressions import expressions
from wukongs.query.plans import deltas

pytestmark = pytest.mark.nojit

S, T = "http://e/s", "http://e/t"
NODES = [f"<http://e/n{number}>" for number in range(5)]
PREDICATES = ["p", "q", "k", "v"]
XSD = "http://www.w3.org/2001/XMLSchema#"
VALUES = [
    *[f'"{number}"^^<{XSD}integer>' for number in (-3, 0, 1, 2, 2, 7)],
    *[f'"{number}"^^<{XSD}decimal>' for number in ("0.1", "1.0", "2.50", "2.5", "-7.25", "12345678901234567890.5")],
    *[f'"{number}"^^<{XSD}double>' for number in ("1.0E0", "2.5E1")],
    *['"n/a"', '"a long text that no id can hold"', f'"7"^^<{XSD}byte>', "<http://e/n1>"],
]
STORED = "FROM <urn:x-wukongs:default>"
G = "http://e/g"


def text_of(rng: random.Random, name: str) -> str:
    """A query of one to four patterns, over windows that are merged or named, and the stored graph."""
    step = rng.choice([100, 100, 200, 300])
    clause, graphs = [], []
    for stream in rng.sample([S, T], rng.choice([1, 1, 2])):
        for number in range(rng.choice([1, 1, 2])):
            size = f"[RANGE {step * rng.choice([1, 2, 3, 5, 10])}ms STEP {step}ms]"
            own = f"http://e/w{len(clause)}"
            match rng.choice(["merged", "named", "own"]) if not number else "own":
                case "merged":
                    clause.append(f"FROM STREAM <{stream}> {size}")
                    graphs.append("{ %s }")
                case "named":
                    clause.append(f"FROM NAMED STREAM <{stream}> {size}")
                    graphs.append(f"GRAPH <{stream}> {{ %s }}")
                case _:
                    clause.append(f"FROM NAMED WINDOW <{own}> ON <{stream}> {size}")
                    graphs.append(f"GRAPH <{own}> {{ %s }}")
    if rng.random() < 0.5:
        clause.append(STORED)
        graphs.append("{ %s }")
    if rng.random() < 0.3:
        clause.append(rng.choice([f"FROM <{G}>", f"FROM NAMED <{G}>"]))
        graphs.append("{ %s }" if "NAMED" not in clause[-1] else f"GRAPH <{G}> {{ %s }}")
    where = " ".join(rng.choice(graphs) % pattern(rng) for _ in range(rng.randint(1, 4)))
    if rng.random() < 0.3:
        where += f" FILTER(?a != {rng.choice(['?b', *NODES])})"
    every = rng.choice(["", "", "", f" COMPUTED EVERY {step * 2}ms"])
    head, tail = rng.choice(["*", "*", "DISTINCT *", "DISTINCT ?a"]), ""
    if rng.random() < 0.5:
        head, where, tail = beyond(rng, where, graphs)
    output = rng.choice(["QUERY", "QUERY", "ISTREAM", "DSTREAM"])
    return (
        f"PREFIX : <http://e/> REGISTER {output} {name}{every} AS "
        f"SELECT {head} {' '.join(clause)} WHERE {{ {where} }} {tail}"
    )


def beyond(rng: random.Random, where: str, graphs: list[str]) -> tuple[str, str, str]:
    """Make more than patterns of a clause: the head of a query, its clause, and what stands behind it."""
    for _ in range(rng.randint(0, 2)):
        other = rng.choice(graphs) % pattern(rng)
        where += " " + rng.choice(
            [
                f"OPTIONAL {{ {other} }}",
                f"MINUS {{ {other} }}",
                f"FILTER NOT EXISTS {{ {other} }}",
                f"{{ {other} }} UNION {{ {rng.choice(graphs) % pattern(rng)} }}",
                f"FILTER({rng.choice(['?a', '?b'])} {rng.choice(['<', '>=', '!='])} {rng.choice(['1', '2.0', '?c'])})",
                'FILTER(STRLEN(STR(?a)) > 2 || REGEX(STR(?b), "n"))',
            ]
        )
    if rng.random() < 0.5:
        value = rng.choice(["?a * 2", "?b + ?a", "?a", "STR(?b)", "STRLEN(STR(?a))"])
        where += f" BIND({value} AS ?d) " + rng.choice(["", "FILTER(?d != 4)"])
    if rng.random() < 0.3:
        head = rng.choice(["*", "DISTINCT ?a ?b", "DISTINCT ?b ?d", "DISTINCT *", "?b"])
        return head, where, rng.choice(["", "ORDER BY ?a ?b LIMIT 5"])
    keys = rng.choice([[], ["?a"], ["?b"], ["?a", "?c"], ["?d"]])
    made = [f"({aggregate(rng)} AS ?x{number})" for number in range(rng.randint(1, 4))]
    tail = f"GROUP BY {' '.join(keys)} " if keys else ""
    tail += rng.choice(["", "", "HAVING(COUNT(*) > 1)", f"HAVING(MAX(?b) > {rng.choice([1, 2.5])})"])
    return " ".join(keys + made), where, tail


def aggregate(rng: random.Random) -> str:
    if rng.random() < 0.2:
        return rng.choice(["COUNT(*)", "COUNT(DISTINCT *)"])
    name = rng.choice(["COUNT", "SUM", "AVG", "MIN", "MAX", "SAMPLE", "SUM", "AVG", "MIN", "MAX"])
    return f"{name}({rng.choice(['', '', '', 'DISTINCT '])}{rng.choice(['?a', '?b', '?b', '?c', '?d', '?b * 0.5'])})"


def pattern(rng: random.Random) -> str:
    ends = ["?a", "?a", "?b", "?b", "?c", rng.choice(NODES)]
    predicate = "?r" if rng.random() < 0.03 else f":{rng.choice(PREDICATES)}"
    return f"{rng.choice(ends)} {predicate} {rng.choice(ends)} ."


def tuple_of(rng: random.Random, values: list[str]) -> tuple[str, str, str]:
    predicate = rng.choice([*PREDICATES, "v"])
    return rng.choice(NODES), f"<http://e/{predicate}>", rng.choice(values if predicate == "v" else NODES)


def story(seed: int) -> list[tuple[Any, ...]]:
    """What is done, in order."""
    rng = random.Random(seed)
    lateness_ms = rng.choice([0, 0, 0, 150])
    values = rng.choice([VALUES, VALUES[:4], VALUES[:11], VALUES[:12], NODES])
    some = [[f"http://e/{name}" for name in names] for names in (PREDICATES[:1], PREDICATES[1:3], ["v"])]
    timing = {stream: rng.choice([True, False, *some]) for stream in (S, T)}
    done: list[tuple[Any, ...]] = [("streams", timing, lateness_ms)]
    done += [("register", text_of(rng, f"q{number}")) for number in range(3)]
    times = {S: 0, T: 0}
    for _ in range(rng.randint(25, 50)):
        what = rng.choice(
            ["push"] * 8 + ["advance"] * 8 + ["insert"] * 3 + ["delete", "pause", "resume", "replace", "register"]
        )
        stream = rng.choice([S, T])
        if what == "push":
            triples = [tuple_of(rng, values) for _ in range(rng.randint(1, 8))]
            at_ms = [times[stream] + 1 + rng.choice([0, 50, 99, 150, 250]) for _ in triples]
            signs = ["-" if not timing[stream] and rng.random() < 0.2 else "+" for _ in triples]
            done.append((what, stream, sorted(zip(at_ms, triples, signs, strict=True))))
            times[stream] = max(at_ms) if lateness_ms == 0 else times[stream] + 50
        elif what == "advance":
            times[stream] += rng.choice([0, 100, 100, 100, 200, 300, 1000])
            done.append((what, stream, times[stream]))
        elif what in ("insert", "delete"):
            triple = f"{rng.choice(NODES)} <http://e/{rng.choice(PREDICATES)}> {rng.choice(NODES)}"
            if rng.random() < 0.3:
                triple = f"GRAPH <{G}> {{ {triple} }}"
            done.append(("update", f"{what.upper()} DATA {{ {triple} }}"))
        elif what == "register":
            done.append((what, text_of(rng, f"m{len(done)}")))
        else:
            done.append((what, rng.randrange(3), rng.randrange(1 << 30)))
    end_ms = max(times.values()) + 2000
    return [*done, ("advance", S, end_ms), ("advance", T, end_ms)]


def live(events: list[tuple[Any, ...]]) -> tuple[dict[str, list[Any]], int, int]:
    """Return the windows of each query, how many firings have only looked for what is new, and of how many queries the
    groups were kept."""
    queries: dict[str, Any] = {}
    streams: dict[str, wukongs.Stream] = {}
    ran: dict[int, Any] = {}
    grouped: set[str] = set()
    with wukongs.Engine() as engine:
        for what, *rest in events:
            engine.settle(60)
            if what == "streams":
                timing, lateness_ms, *late = rest
                for stream in (S, T):
                    streams[stream] = engine.stream(
                        stream,
                        timing=timing[stream],
                        batch_ms=100,
                        lateness_ms=lateness_ms,
                        on_late="count",
                        late=late[0] if late else "drop",
                    )
            elif what == "register":
                query = engine.register(rest[0])
                queries[query.name] = query
            elif what == "push":
                stream, tuples = rest
                columns = zip(*((*triple, at_ms, sign) for at_ms, triple, sign in tuples), strict=True)
                names = ("subject", "predicate", "object", "timestamp_ms", "op")
                streams[stream].push_arrow(pa.table(dict(zip(names, map(list, columns), strict=True))))
            elif what == "advance":
                streams[rest[0]].advance(rest[1])
            elif what == "update":
                engine.update(rest[0])
            elif what == "replace":
                queries[f"q{rest[0]}"].replace(text_of(random.Random(rest[1]), f"q{rest[0]}"))
            else:
                getattr(queries[f"q{rest[0]}"], what)()
            for query in queries.values():
                kept = query.text.answering.maintained
                parts = [] if kept is None else kept.parts
                found = [join.deltas for part in parts for join in part.joins if join.deltas is not None]
                ran.update((id(one), one) for one in found)
                grouped.update(query.name for part in parts if isinstance(part.top, Grouped) and part._is_in_step)
        engine.settle(60)
        windows = {}
        for name, query in queries.items():
            windows[name] = [
                (one.end_ms, one.partial, sorted(one.texts(), key=repr)) for one in query.results(timeout_s=0)
            ]
            query.close()
    return windows, sum(one.ran for one in ran.values()), len(grouped)


@pytest.mark.slow
def test_windows_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = grouped = 0
    for number in range(4 if TIER == "fast" else scaled(40)):
        seed = ((SEED or 0) << 16) + number
        events = story(seed)
        monkeypatch.setattr(deltas, "ROWS_MIN", 1e18)
        anew, none, _ = live(events)
        monkeypatch.setattr(deltas, "ROWS_MIN", 0.0)
        monkeypatch.setattr(maintained, "STAY_MIN", number % 3)
        found, count, groups = live(events)
        for name, expected in anew.items():
            assert found[name] == expected, (seed, name)
        assert none == 0
        ran += count
        grouped += groups
    assert ran > 0
    assert grouped > 0


def told(*rows: tuple[str, str, str, int]) -> list[tuple[str, str, str, int]]:
    return [(f"<http://e/{s}>", f"<http://e/{p}>", o if o[0] == '"' else f"<http://e/{o}>", t) for s, p, o, t in rows]


def registered(engine: wukongs.Engine, head: str, clause: str, where: str, tail: str = "") -> Any:
    """A query over S whose matches are kept."""
    text = f"SELECT {head} {clause} WHERE {{ {where} }} {tail}"
    return engine.register(f"PREFIX : <http://e/> REGISTER QUERY q AS {text}")


def advance(engine: wukongs.Engine, stream: wukongs.Stream, *ends_ms: int) -> None:
    for end_ms in ends_ms:
        stream.advance(end_ms)
        engine.settle(60)


def test_what_is_sealed_behind_a_firing_with_its_tick_is_seen_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """The query fires before the tuples of its tick join, which then join together with those of the next."""
    monkeypatch.setattr(deltas, "ROWS_MIN", 0.0)
    with wukongs.Engine() as engine:
        stream = engine.stream(S, timing=["http://e/likes"], batch_ms=100)
        where = f"GRAPH <{S}> {{ ?u :likes ?p }} ?p :creator ?c"
        query = registered(engine, "?u ?c", f"{STORED} FROM NAMED STREAM <{S}> [RANGE 3s STEP 1s]", where)
        stream.push(told(("a", "r", "b", 5000)))
        advance(engine, stream, 6000, 7000, 8000)
        stream.push(told(("u", "likes", "p1", 8900)))
        advance(engine, stream, 9000)
        stream.push(told(("x", "r", "y", 9950), ("p1", "creator", "c1", 10_050)))
        advance(engine, stream, 10_300, 11_300)
        rows = {window.end_ms: len(window) for window in query.results(timeout_s=0)}
    assert (rows[10_000], rows[11_000]) == (0, 1)


def test_a_match_is_held_once_where_its_stored_part_came_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patterns are matched in the window and in the stored graph, of which a firing before its tick hears nothing."""
    monkeypatch.setattr(deltas, "ROWS_MIN", 0.0)
    with wukongs.Engine() as engine:
        stream = engine.stream(S, timing=["http://e/q"], batch_ms=100)
        query = registered(engine, "*", f"{STORED} FROM STREAM <{S}> [RANGE 1s STEP 100ms]", "?a :p ?b . ?b :q ?c")
        stream.push(told(("m", "p", "n", 50), ("n", "q", "o", 50)))
        advance(engine, stream, 100, 200, 300, 400)
        stream.push(told(("a", "p", "b", 450)))
        advance(engine, stream, 500)
        stream.push(told(("b", "q", "c", 560), ("x", "r", "y", 570)))
        advance(engine, stream, 600, 700)
        rows = {window.end_ms: len(window) for window in query.results(timeout_s=0)}
    assert rows == {100: 1, 200: 1, 300: 1, 400: 1, 500: 1, 600: 2, 700: 2}


def test_sums_of_very_small_numbers_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deltas, "ROWS_MIN", 0.0)
    charge = f'"0.0000000000000000001602"^^<{XSD}decimal>'
    with wukongs.Engine() as engine:
        stream = engine.stream(S, timing=True, batch_ms=1000)
        clause = f"FROM STREAM <{S}> [RANGE 10s STEP 1s]"
        query = registered(engine, "?s (SUM(?v) AS ?x)", clause, "?s :charge ?v", "GROUP BY ?s")
        for second in (1, 2, 3):
            stream.push(told(("s", "charge", charge, 1000 * second - 10)))
            advance(engine, stream, 1000 * second)
        found = [[str(row[1]) for row in window] for window in query.results(timeout_s=0)]
    assert found == [["0.0000000000000000001602"]] * 3  # a window is a set


def test_a_window_that_lacks_slices_is_evaluated_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """And so is the one behind it: what is kept may have matches of tuples that are gone."""
    monkeypatch.setattr(deltas, "ROWS_MIN", 0.0)
    with wukongs.Engine() as engine:
        stream = engine.stream(S, timing=True, batch_ms=100)
        text = f"SELECT ?a ?b FROM STREAM <{S}> [RANGE 500ms STEP 100ms] WHERE {{ ?a <http://e/p> ?b }}"
        query: Any = engine.register(f"REGISTER QUERY q AS {text}")
        ran = []
        for number in range(1, 13):
            stream.push([(f"<http://e/s{number}>", "<http://e/p>", "<http://e/o>", 100 * number - 50)])
            stream.advance(100 * number)
            engine.settle(60)
            ran.append(query.stats()["firings_by_deltas"])
            if number == 6:
                with engine._core.lock:
                    engine._core.streams[S].ring.drop(4)
        windows = {one.end_ms: (one.partial, len(one)) for one in query.results(timeout_s=0)}
        assert windows == {
            **{100 * number: (False, number) for number in range(1, 6)},
            600: (False, 5),
            700: (True, 3),
            800: (True, 4),
            **{100 * number: (False, 5) for number in range(9, 13)},
        }
        assert ran == [0, 1, 2, 3, 4, 5, 5, 5, 5, 6, 7, 8]
        stats = query.stats()
        assert stats["matches_kept"] == 5
        assert stats["matches_bytes"] <= 64 * 3 * 8


@pytest.mark.parametrize(
    ("head", "above"),
    [("(?v AS ?n)", "FILTER(?v * ?v > 50)"), ("(MAX(?v) AS ?n)", "BIND(?v * 2 AS ?w) FILTER(?w > 14)")],
)
def test_a_condition_is_evaluated_once_for_each_match(monkeypatch: pytest.MonkeyPatch, head: str, above: str) -> None:
    """However many patterns have something new from which plans find the match."""
    monkeypatch.setattr(deltas, "ROWS_MIN", 0.0)
    looked_at: list[int] = []

    def holds(condition: Any, table: Any, terms: Any) -> Any:
        looked_at.append(table.length)
        return expressions.holds(condition, table, terms)

    monkeypatch.setattr(window_join, "holds", holds)
    text = f"SELECT {head} FROM STREAM <{S}> [RANGE 300ms STEP 100ms] WHERE"
    patterns = f"?a <http://e/p> ?b . ?b <http://e/q> ?c . ?c <http://e/v> ?v {above}"
    with wukongs.Engine() as engine:
        stream = engine.stream(S, timing=True, batch_ms=100)
        query: Any = engine.register(f"REGISTER QUERY q AS {text} {{ {patterns} }}")
        for number in range(1, 13):
            a, b, c = (f"<http://e/{name}{number}>" for name in "abc")
            found = [(a, "<http://e/p>", b), (b, "<http://e/q>", c), (c, "<http://e/v>", str(number))]
            typed = [(*one[:2], f'"{number}"^^<{XSD}integer>' if one[2].isdigit() else one[2]) for one in found]
            stream.push([(*one, 100 * number - 50) for one in typed])
            stream.advance(100 * number)
            engine.settle(60)
        assert query.stats()["firings_by_deltas"] == 10
        assert looked_at == [2] + [1] * 10, "the second firing evaluates the window anew"
        newest = [max((int(row[0]) for row in one if row[0]), default=0) for one in query.results(timeout_s=0)]
        assert newest == [0] * 7 + [8, 9, 10, 11, 12]


@pytest.mark.parametrize("clause", ["FROM NAMED STREAM <http://e/s>", "FROM STREAM <http://e/s>"])
def test_what_is_stored_is_no_reason_to_evaluate_anew(monkeypatch: pytest.MonkeyPatch, clause: str) -> None:
    """A stream of timeless tuples changes the stored graph at each tick; a deletion is a reason, for one firing."""
    monkeypatch.setattr(deltas, "ROWS_MIN", 0.0)
    text = f"SELECT ?a ?b ?c {clause} [RANGE 300ms STEP 100ms] {STORED} WHERE"
    likes = "?b <http://e/likes> ?c" if "NAMED" not in clause else f"GRAPH <{S}> {{ ?b <http://e/likes> ?c }}"
    with wukongs.Engine() as engine:
        stream, other = engine.stream(S, timing=True, batch_ms=100), engine.stream(T, timing=False, batch_ms=100)
        query: Any = engine.register(f"REGISTER QUERY q AS {text} {{ ?a <http://e/knows> ?b . {likes} }}")
        ran = []
        for number in range(1, 9):
            node, friend = f"<http://e/n{number}>", f"<http://e/n{number - 1}>"
            stream.push([(node, "<http://e/likes>", "<http://e/o>", 100 * number)])
            other.push([("<http://e/me>", "<http://e/knows>", friend, 100 * number)])
            for one in (stream, other):
                one.advance(100 * number)
            engine.settle(60)
            if number == 6:
                engine.update("DELETE DATA { <http://e/me> <http://e/knows> <http://e/n5> }")
            ran.append(query.stats()["firings_by_deltas"])
        found = {one.end_ms // 100: sorted(row[1] for row in one.texts()) for one in query.results(timeout_s=0)}
    assert found == {
        number: [f"<http://e/n{one}>" for one in range(max(1, number - 2), number) if number < 7 or one != 5]
        for number in range(1, 9)
    }
    assert ran == [0, 1, 2, 3, 4, 5, 5, 6]


@pytest.mark.parametrize("by", ["update", "stream"])
def test_a_deletion_is_seen_although_merging_has_cancelled_it(monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    """The triple came before one firing and went before the next: the merge of both leaves nothing of its predicate."""
    monkeypatch.setattr(deltas, "ROWS_MIN", 0.0)
    text = f"SELECT ?a ?c FROM NAMED STREAM <{S}> [RANGE 900ms STEP 300ms] {STORED} WHERE"
    knows = ("<http://e/me>", "<http://e/knows>", "<http://e/n1>")
    with wukongs.Engine() as engine:
        stream, other = engine.stream(S, timing=True, batch_ms=100), engine.stream(T, batch_ms=100)
        query: Any = engine.register(
            f"REGISTER QUERY q AS {text} {{ ?a <http://e/knows> ?b . GRAPH <{S}> {{ ?b <http://e/likes> ?c }} }}"
        )
        other.push([(*knows, 100)])
        for number in range(1, 13):
            stream.push([("<http://e/n1>", "<http://e/likes>", f"<http://e/o{number}>", 100 * number)])
            if number == 7 and by == "update":
                engine.update(f"DELETE DATA {{ {' '.join(knows)} }}")
            elif number == 7:
                names = ("subject", "predicate", "object", "timestamp_ms", "op")
                other.push_arrow(pa.table({name: [cell] for name, cell in zip(names, (*knows, 700, "-"), strict=True)}))
            for one in (stream, other):
                one.advance(100 * number)
            engine.settle(60)
            with engine._core.lock:
                engine._core.arrangement.trace.merge_all()
        assert {one.end_ms: len(one) for one in query.results(timeout_s=0)} == {300: 3, 600: 6, 900: 0, 1200: 0}
        assert query.stats()["firings_by_deltas"] == 2, "one firing is evaluated anew"


def test_a_triple_that_came_and_went_between_two_firings_is_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in a window as well, and its matches end with that."""
    monkeypatch.setattr(deltas, "ROWS_MIN", 0.0)
    likes = ("<http://e/n1>", "<http://e/likes>", "<http://e/o>")
    with wukongs.Engine() as engine:
        engine.update("INSERT DATA { <http://e/me> <http://e/knows> <http://e/n1> }")
        stream = engine.stream(S, timing=True, batch_ms=100)
        query: Any = engine.register(
            f"REGISTER QUERY q AS SELECT ?a ?c FROM STREAM <{S}> [RANGE 200ms STEP 100ms] {STORED} "
            "WHERE { ?a <http://e/knows> ?b . ?b <http://e/likes> ?c }"
        )
        for number in range(1, 7):
            if number == 3:
                stream.push([(*likes, 250)])
                for kind in ("INSERT", "DELETE"):
                    engine.update(f"{kind} DATA {{ {' '.join(likes)} }}")
            stream.advance(100 * number)
            engine.settle(60)
        found = {one.end_ms // 100: len(one) for one in query.results(timeout_s=0)}
    assert found == {1: 0, 2: 0, 3: 1, 4: 1, 5: 0, 6: 0}
