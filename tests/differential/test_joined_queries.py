"""Random lives told to two engines: in one, queries of a shape fire as one, in the other each is alone. Each query has
the same windows, gaps and errors in both. A third one is a cluster, of which two nodes are told by turns."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

import wukongs
from tests.clusters import PATIENT, cluster
from tests.fuzz import SEED, first_and_slow, scaled
from wukongs.live import joined_group, joined_queries

NODES = [f"<http://e/n{number}>" for number in range(6)]
S, T = "http://e/s", "http://e/t"
STORED = "FROM <urn:x-wukongs:default>"
WINDOW = f"FROM STREAM <{S}> [RANGE 300ms STEP 100ms]"
BOTH = f"{WINDOW} FROM STREAM <{T}> [RANGE 200ms STEP 200ms]"
NAMED = f"FROM NAMED STREAM <{S}> [RANGE 200ms STEP 100ms]"
SHAPES = [
    ("SELECT ?x ?y", WINDOW, "%s :p ?x . ?x :p ?y"),
    ("SELECT ?x", f"{STORED} {WINDOW}", "%s :k ?x . ?x :p ?y"),
    ("SELECT ?x ?z", f"{STORED} {WINDOW}", "?x :p %s OPTIONAL { ?x :k ?z }"),
    ("SELECT ?x", f"{STORED} {BOTH}", "{ ?x :p %s } UNION { %s :q ?x }"),
    ("SELECT ?x", f"{STORED} {WINDOW}", "%s :p ?x MINUS { ?x :k %s }"),
    ("SELECT DISTINCT ?x", f"{STORED} {WINDOW}", "%s :k+ ?x . ?y :p ?x"),
    ("SELECT ?x (COUNT(?y) AS ?n)", WINDOW, "?x :p ?y . ?y :p %s"),
    ("SELECT (COUNT(?y) AS ?n)", WINDOW, "%s :p ?y"),
    ("SELECT ?x", BOTH, "%s :p ?x . ?x :q ?y FILTER(?y != :n3)"),
    ("SELECT ?x", NAMED, f"%s :k ?x GRAPH <{S}> {{ ?x :p ?y }}"),
    ("SELECT ?x", f"{STORED} {WINDOW}", "%s :p ?x FILTER NOT EXISTS { ?x :k %s }"),
    ("SELECT *", WINDOW, "%s :p* %s"),
    ("SELECT ?x ?n", WINDOW, "?x :p %s { SELECT ?x (COUNT(?y) AS ?n) { ?x :p ?y } GROUP BY ?x }"),
    ("SELECT ?r ?x ?v", f"{STORED} {BOTH}", "%s ?r ?x BIND(STR(?x) AS ?v) VALUES ?x { :n0 :n1 :n2 }"),
    ("SELECT ?x", NAMED, f"GRAPH <{S}> {{ %s :p ?x . ?x :p %s }}"),
    ("SELECT (MAX(?y) AS ?m) ?x", f"{STORED} {WINDOW}", "?x :k %s OPTIONAL { ?x :p ?y } OPTIONAL { %s :p ?z }"),
]
COUNTS = ("windows", "rows", "errors", "last_rows", "not_reported", "results_waiting", "results_dropped")
OUTPUTS = ("QUERY", "ISTREAM", "DSTREAM")
TAILS = {0: " ORDER BY ?x ?y LIMIT 2", 6: " GROUP BY ?x", 15: " GROUP BY ?x HAVING(COUNT(?z) < 3)"}


def nodes_of(rng: random.Random) -> list[str]:
    """Return two constants, which may be the same, or be in no data."""
    return rng.choices([*NODES, "<http://e/nowhere>"], k=2)


def shapes_of(rng: random.Random) -> list[int]:
    """Return the shapes of some queries: the place in SHAPES, and in OUTPUTS times len(SHAPES)."""
    return [one + rng.choice([0, 0, 1, 2]) * len(SHAPES) for one in rng.sample(range(len(SHAPES)), 3)]


def story(seed: int) -> list[tuple[Any, ...]]:
    """What is done, in order."""
    rng = random.Random(seed)
    done: list[tuple[Any, ...]] = [("load", 0)]
    names: list[str] = []
    times = {S: 0, T: 0}
    shapes = shapes_of(rng)
    for number in range(rng.randint(25, 45)):
        what = rng.choice(["register"] * 5 + ["push"] * 6 + ["advance"] * 3 + ["close", "pause", "resume", "replace"])
        what = rng.choice(["read", "group", "look", "load"]) if rng.random() < 0.15 else what
        if what == "register":
            names.append(f"q{number}")
            every = rng.choice(["", "", "", " COMPUTED EVERY 200ms"])
            report = rng.choice(["", "", " REPORT NON EMPTY RESULT"])
            is_called = rng.random() < 0.3
            done.append((what, names[-1], every + report, rng.choice(shapes), nodes_of(rng), is_called))
        elif what in times or what in ("push", "advance"):
            stream = rng.choice([S, S, T])
            times[stream] += rng.choice([0, 40, 100, 150, 300])
            times[stream] += 2000 * (what == "advance" and rng.random() < 0.2)  # a jump
            pairs = [(rng.choice(NODES), rng.choice(NODES)) for _ in range(rng.randint(1, 6))]
            done.append((what, stream, times[stream], pairs))
            times[stream] += what == "advance"
        elif what == "load":
            done.append((what, number))
        elif names:
            done.append((what, rng.choice(names), rng.choice(shapes), nodes_of(rng)))
    end_ms = max(6000, *(t + 1000 for t in times.values()))
    return [*done, ("advance", S, end_ms, []), ("advance", T, end_ms, [])]


def text_of(name: str, options: str, shape: int, nodes: list[str]) -> str:
    output, shape = OUTPUTS[shape // len(SHAPES)], shape % len(SHAPES)
    head, clause, where = SHAPES[shape]
    for node in nodes * 2:
        where = where.replace("%s", node, 1)
    tail = TAILS.get(shape, "")
    return f"PREFIX : <http://e/> REGISTER {output} {name}{options} AS {head} {clause} WHERE {{ {where} }}{tail}"


def plain(window: wukongs.WindowResult) -> tuple[Any, ...]:
    return window.end_ms, window.start_ms, window.partial, tuple(window.vars), sorted(window.texts(), key=repr)


def read(query: Any, found: list[Any], group: str | None = None) -> None:
    while True:
        try:
            found.extend(plain(window) for window in query.results(timeout_s=0, group=group))  # those before a gap too
            return
        except wukongs.GapError as gap:
            found.append(("gap", gap.from_ms, gap.to_ms, gap.count))
        except wukongs.WukongsError as error:
            found.append(type(error).__name__)


def live(events: list[tuple[Any, ...]], opened: AbstractContextManager[Sequence[Any]]) -> dict[str, dict[str, Any]]:
    """Return what each query has reported: to whoever reads it, by name; and what its counts are. opened: the engines
    of a cluster's nodes, or one alone."""
    found: dict[str, dict[str, Any]] = {}
    queries: dict[str, Any] = {}
    with opened as engines:
        streams = {stream: engines[0].stream(stream, timing=True, batch_ms=100) for stream in (S, T)}
        for number, (what, *rest) in enumerate(events):
            engine = engines[number % len(engines)]
            engine.settle(60)
            if what == "register":
                name, options, shape, nodes, is_called = rest
                own = found[name] = {"read": [], "called": [], "group": []}
                on_result = (lambda window, own=own: own["called"].append(plain(window))) if is_called else None
                queries[name] = engine.register(text_of(name, options, shape, nodes), on_result)
            elif what == "push":
                stream, time_ms, pairs = rest
                predicate = "<http://e/p>" if stream == S else "<http://e/q>"
                streams[stream].push([(s, predicate, o, time_ms) for s, o in pairs])
            elif what == "advance":
                streams[rest[0]].advance(rest[1])
            elif what == "load":
                lines = (f"{NODES[at]} <http://e/k> {NODES[(at + 1 + rest[0]) % 6]} .\n" for at in range(6))
                engine.load(io.BytesIO("".join(lines).encode()), format="nt")
            elif what == "replace" and not queries[rest[0]].is_closed:
                queries[rest[0]].replace(text_of(rest[0], "", *rest[1:]))
            elif what in ("close", "pause", "resume"):
                getattr(queries[rest[0]], what)()
            elif what == "read":
                read(queries[rest[0]], found[rest[0]]["read"])
            elif what == "group" and not queries[rest[0]].is_closed:
                read(queries[rest[0]], found[rest[0]]["group"], "together")
            elif what == "look" and not queries[rest[0]].is_closed:
                assert "SELECT" in queries[rest[0]].explain(analyze=True)
                assert queries[rest[0]].why().startswith(rest[0])
        for engine in engines:
            engine.settle(60)
        for name, query in queries.items():
            if query.is_closed or name[-1] in "02468":
                read(query, found[name]["read"])
            stats = query.stats()
            found[name]["counts"] = [stats[key] for key in COUNTS]
        stats = engines[0].stats()
        assert set(stats["queries"]) == {name for name, query in queries.items() if not query.is_closed}
    for name, query in queries.items():
        read(query, found[name]["read"])
        found[name]["terms"] = stats["terms"] if len(engines) == 1 else None
    return found


def begun(events: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return a life in which no query gets another text before both streams have advanced: a node knows the first tuple
    of a stream only then, and where a query that has not fired goes on rests on it."""
    both = max(next(at for at, event in enumerate(events) if event[:2] == ("advance", stream)) for stream in (S, T))
    return [event for at, event in enumerate(events) if at > both or event[0] != "replace"]


@contextmanager
def embedded() -> Iterator[Sequence[Any]]:
    with wukongs.Engine() as engine:
        yield [engine]


@contextmanager
def divided() -> Iterator[Sequence[Any]]:
    with cluster(2, 1, silence_pulses_max=PATIENT) as nodes:
        yield [node.engine for node in nodes]


@pytest.mark.parametrize("group_max", first_and_slow([3, 1 << 16]))
def test_queries_of_a_shape_report_what_each_reports_alone(group_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joined_group, "GROUP_MAX", group_max)
    together = 0
    for number in range(scaled(40)):
        seed = ((SEED or 0) << 20) + (group_max & 15) * 1000 + number
        events = story(seed)
        monkeypatch.setattr(joined_queries, "ALONE_MAX", 1 << 30)
        alone = live(events, embedded())
        monkeypatch.setattr(joined_queries, "ALONE_MAX", 0)
        joined = live(events, embedded())
        for name, expected in alone.items():
            assert joined[name] == expected, (seed, name)
        together += sum(len(one["read"]) for one in joined.values())
    assert together


@pytest.mark.slow
def test_groups_of_a_cluster_report_what_an_engine_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same queries alone, in an engine of its own."""
    for number in range(scaled(3)):
        seed = ((SEED or 0) << 20) + 500_000 + number
        events = begun(story(seed))
        monkeypatch.setattr(joined_queries, "ALONE_MAX", 1 << 30)
        alone = live(events, embedded())
        monkeypatch.setattr(joined_queries, "ALONE_MAX", 0)
        joined = live(events, divided())
        for name, expected in alone.items():
            assert joined[name] == {**expected, "terms": None}, (seed, name)
