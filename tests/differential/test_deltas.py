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
    if rng.random() < 0.4:
        clause.append(STORED)
        graphs.append("{ %s }")
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
            ["push"] * 8 + ["advance"] * 8 + ["insert", "delete", "pause", "resume", "replace", "register"]
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
            done.append(("update", f"{what.upper()} DATA {{ {triple} }}"))
        elif what == "register":
            done.append((what, text_of(rng, f"m{len(done)}")))
        else:
            done.append((what, rng.randrange(3), rng.randrange(1 << 30)))
    end_ms = max(times.values()) + 2000
    return [*done, ("advance", S, end_ms), ("advance", T, end_ms)]


def live(events: list[tuple[Any, ...]], slice_bytes_max: int | None) -> tuple[dict[str, list[Any]], int]:
    """Return the windows of each query, and how many firings have only looked for what is new."""
    queries: dict[str, Any] = {}
    streams: dict[str, wukongs.Stream] = {}
    ran: dict[int, Any] = {}
    with wukongs.Engine() as engine:
        for what, *rest in events:
            engine.settle(60)
            if what == "streams":
                timing, lateness_ms = rest
                more = {} if slice_bytes_max is None else {"slice_bytes_max": slice_bytes_max}
                for stream in (S, T):
                    streams[stream] = engine.stream(
                        stream, timing=timing, batch_ms=100, lateness_ms=lateness_ms, on_late="count", **more
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


def compared(seeds: range, monkeypatch: pytest.MonkeyPatch, slice_bytes_max: int | None = None) -> int:
    ran = 0
    for seed in seeds:
        events = story(seed)
        monkeypatch.setattr(deltas, "ROWS_MIN", 1e18)
        anew, none = live(events, slice_bytes_max)
        monkeypatch.setattr(deltas, "ROWS_MIN", 0.0)
        found, count = live(events, slice_bytes_max)
        for name, expected in anew.items():
            assert found[name] == expected, (seed, name)
        assert none == 0
        ran += count
    return ran


def test_windows_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    first = (SEED or 0) << 16
    assert compared(range(first, first + scaled(40)), monkeypatch) > 0


def test_windows_are_the_same_where_slices_go(monkeypatch: pytest.MonkeyPatch) -> None:
    first = ((SEED or 0) << 16) + 10_000
    assert compared(range(first, first + scaled(10)), monkeypatch, 3000) > 0
