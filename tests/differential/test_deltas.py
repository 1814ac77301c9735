"""Random lives of continuous queries whose matches are kept from firing to firing, and evaluated anew: the windows have
the same rows, each as often."""

from __future__ import annotations

import random
from typing import Any

import pytest

import wukongs
from tests.fuzz import SEED, scaled
from wukongs.query.plans import deltas

pytestmark = pytest.mark.nojit

S, T = "http://e/s", "http://e/t"
NODES = [f"<http://e/n{number}>" for number in range(5)]
PREDICATES = ["p", "q", "k"]
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
    head = rng.choice(["*", "*", "DISTINCT *"])
    return f"PREFIX : <http://e/> REGISTER QUERY {name}{every} AS SELECT {head} {' '.join(clause)} WHERE {{ {where} }}"


def pattern(rng: random.Random) -> str:
    ends = ["?a", "?a", "?b", "?b", "?c", rng.choice(NODES)]
    predicate = "?r" if rng.random() < 0.03 else f":{rng.choice(PREDICATES)}"
    return f"{rng.choice(ends)} {predicate} {rng.choice(ends)} ."


def story(seed: int) -> list[tuple[Any, ...]]:
    """What is done, in order."""
    rng = random.Random(seed)
    lateness_ms = rng.choice([0, 0, 0, 150])
    done: list[tuple[Any, ...]] = [("streams", rng.choice([True, False]), lateness_ms)]
    done += [("register", text_of(rng, f"q{number}")) for number in range(3)]
    times = {S: 0, T: 0}
    for _ in range(rng.randint(25, 50)):
        what = rng.choice(
            ["push"] * 8 + ["advance"] * 8 + ["insert"] * 3 + ["delete", "pause", "resume", "replace", "register"]
        )
        stream = rng.choice([S, T])
        if what == "push":
            triples = [
                (rng.choice(NODES), f"<http://e/{rng.choice(PREDICATES)}>", rng.choice(NODES))
                for _ in range(rng.randint(1, 8))
            ]
            at_ms = [times[stream] + 1 + rng.choice([0, 50, 99, 150, 250]) for _ in triples]
            done.append((what, stream, sorted(zip(at_ms, triples, strict=True))))
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


def live(events: list[tuple[Any, ...]]) -> tuple[dict[str, list[Any]], int]:
    """Return the windows of each query, and how many firings have only looked for what is new."""
    queries: dict[str, Any] = {}
    streams: dict[str, wukongs.Stream] = {}
    ran: dict[int, Any] = {}
    with wukongs.Engine() as engine:
        for what, *rest in events:
            engine.settle(60)
            if what == "streams":
                timing, lateness_ms = rest
                for stream in (S, T):
                    streams[stream] = engine.stream(
                        stream, timing=timing, batch_ms=100, lateness_ms=lateness_ms, on_late="count"
                    )
            elif what == "register":
                query = engine.register(rest[0])
                queries[query.name] = query
            elif what == "push":
                stream, tuples = rest
                streams[stream].push([(*triple, at_ms) for at_ms, triple in tuples])
            elif what == "advance":
                streams[rest[0]].advance(rest[1])
            elif what == "update":
                engine.update(rest[0])
            elif what == "replace":
                queries[f"q{rest[0]}"].replace(text_of(random.Random(rest[1]), f"q{rest[0]}"))
            else:
                getattr(queries[f"q{rest[0]}"], what)()
            for query in queries.values():
                if query.compiled is not None and (found := query.compiled.deltas) is not None:
                    ran[id(found)] = found
        engine.settle(60)
        windows = {}
        for name, query in queries.items():
            windows[name] = [(one.end_ms, one.partial, sorted(one.texts())) for one in query.results(timeout_s=0)]
            query.close()
    return windows, sum(one.ran for one in ran.values())


def test_windows_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = 0
    for number in range(scaled(40)):
        seed = ((SEED or 0) << 16) + number
        events = story(seed)
        monkeypatch.setattr(deltas, "ROWS_MIN", 1e18)
        anew, none = live(events)
        monkeypatch.setattr(deltas, "ROWS_MIN", 0.0)
        found, count = live(events)
        for name, expected in anew.items():
            assert found[name] == expected, (seed, name)
        assert none == 0
        ran += count
    assert ran > 0


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
