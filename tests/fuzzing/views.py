"""Lives of live views: random queries of the whole language are registered, the stored graph changes at random, and at
every SN the sum of each reader's reports is judged as the answer of a one-shot query is (judge.py): by pyoxigraph, and
by the definitions.

Changes are triples that are inserted, deleted, deleted and inserted again at one SN, graphs that are cleared, loads,
tuples of a stream that join, and rules that come and go. Readers are of every kind: from the beginning, from later on,
after a pause, and some read rarely, so that their reports are summed.

Some views have arguments, which are bound and unbound between the changes. The content of each is that of the query
asked once with its terms (`bindings=`); and where a term may as well be written into the text, that of this text.
"""

from __future__ import annotations

import io
import random
import re
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import wukongs
from tests.faces import FACES, Face
from tests.fuzzing import answers
from tests.fuzzing.faults import Case
from tests.fuzzing.graphs import EDGES, EX, GRAPHS, NODES, NUMBERS, STRINGS, Data, nquads, random_data, typed
from tests.fuzzing.judge import EVERYTHING, ROWS_MAX, Open, Tally, World
from tests.fuzzing.queries import PREFIXES, random_query, text_of
from tests.fuzzing.trees import Tree, operators
from wukongs.csparql.algebra import Query
from wukongs.csparql.parser import parse_query
from wukongs.incremental import cuts
from wukongs.incremental.operators import operators_of
from wukongs.live.views import runner, shared_views
from wukongs.query.execution.argument_rows import ARGUMENT
from wukongs.store import trace

VIEWS, CHANGES = 12, 6
CONTENTS = VIEWS * (CHANGES * 4 // 5)
"""The contents that one life compares, about."""
GRAPHS_SHARE = 0.4
"""The share of the lives that have views of GRAPH ?g, of merged default graphs and their like."""
PATHS_SHARE = 0.3
"""The share of the others that have views of paths."""
MOVED_SHARE = 0.005
"""Each kind of operator has to be in so large a share of the views that a change has moved."""
RARE, RARE_FACTOR = (
    (
        *("search", "search (from a constant)", "flag (with exists)", "per graph (and others)"),
        *("graph names for each argument", "per graph for each argument", "nullable sequence for each argument"),
    ),
    13,
)
"""These operators have to be in a smaller share: few texts need them."""
ARGUMENTS_SHARE_OF_VIEWS, ARGUMENTS_SHARE = 0.25, 0.02
"""The views that have arguments; and the contents of an argument that have to be among those that are compared."""
EMBEDDED_OF = 36
"""So many lives are of an engine in memory for one on each other face."""
TERMS = (*NODES, *NODES, *GRAPHS, *NUMBERS[:3], *STRINGS[:2], f"<{EX}unknown>")
KINDS = (
    "each argument",
    *("delta join", "explored", "kept", "linear", "union", "join", "flag", "reduce", "top-k", "exists"),
    *("iterate", "origins", "search", "search (from a constant)", "flag (with exists)", "per graph (and others)"),
    *("template", "constant", "groups", "distinct", "content", "graph names", "per graph"),
    *("delta join (named graphs)", "delta join (merged graphs)", "delta join (named and merged graphs)"),
    *("graph names for each argument", "per graph for each argument", "nullable sequence for each argument"),
)
RULE = f"PREFIX : <{EX}> RULE made: CONSTRUCT {{ ?x {EDGES[1]} ?z }} WHERE {{ ?x {EDGES[0]} ?y . ?y {EDGES[0]} ?z }}"
STREAM = f"{EX}stream"
SETTLE_S = 60
TOO_BIG = "too big for others, compared with the text asked anew"


@dataclass
class Followed:
    """One view, and the sum of the reports that a reader has got. query: what is kept up to date; group: the reader's
    cursor; bound: its arguments, by number, a term for each name; names: these names."""

    tree: Tree
    query: Query
    view: Any
    group: str | None = None
    names: tuple[str, ...] = ()
    bound: dict[int, tuple[str, ...]] = field(default_factory=dict)
    sum: Counter[tuple[str | None, ...]] = field(default_factory=Counter)
    reports: int = 0
    moved: int = 0
    boolean: bool | None = None

    def read(self) -> None:
        """Take what has come. Raises AssertionError for reports that do not follow each other."""
        sn = None
        for report in self.view.results(timeout_s=0, progress=True, group=self.group):
            assert sn is None or report.is_reset or report.after == sn, (report.after, sn)
            sn = report.snapshot
            if report.is_reset:
                self.sum.clear()
            self.reports += 1
            self.moved += bool(len(report)) and not report.is_reset
            rows = report.texts() if report.width else [()] * len(report)
            for row, weight in zip(rows, report.weights.tolist(), strict=True):
                assert weight, row
                self.sum[row] += weight
            if report.boolean is not None:
                self.boolean = report.boolean
        assert all(weight >= 0 for weight in self.sum.values()), "a row fewer than none"
        self.sum = +self.sum

    def answer(self) -> answers.Answer:
        if self.query.form == "ask":
            assert self.boolean is bool(self.sum), (self.boolean, self.sum)
            return bool(self.sum)
        is_graph = self.query.form == "construct"
        assert not is_graph or set(self.sum.values()) <= {1}, "a triple is there once"
        names = () if is_graph else (*([ARGUMENT] if self.names else []), *self.query.variables)
        return answers.of_rows(list(self.sum.elements()), names, is_graph)

    def mechanisms(self) -> set[str]:
        """Return the kinds of its operators; in a view with arguments also those that arguments have a rule for."""
        kinds = {operator.kind for _, operator in operators_of(self.view.operators)}
        if self.names:
            own = {
                f"{kind.removesuffix(' (and others)')} for each argument" for kind in kinds | {*operators(self.tree)}
            }
            kinds |= own.intersection(KINDS)
        return kinds

    def rows_of(self, number: int) -> list[tuple[str | None, ...]]:
        """Return the rows of one argument, without its number."""
        return [row[1:] for row in self.sum.elements() if row[0] == typed(str(number), "integer")]

    def rebind(self, rng: random.Random) -> None:
        """Bind some arguments, and unbind some, by number or by row."""
        if rng.random() < 0.6 or not self.bound:
            self.put(rng, self.view.bind)
        if rng.random() < 0.4:
            numbers = rng.sample(sorted(self.bound), rng.randint(1, len(self.bound)))
            gone = self.view.unbind(numbers).tolist()
            assert gone == sorted(numbers), (gone, numbers)
            self.bound = {number: row for number, row in self.bound.items() if number not in numbers}
        elif self.bound and rng.random() < 0.3:
            row = rng.choice(list(self.bound.values()))
            [number] = self.view.unbind([dict(zip(self.names, row, strict=True))]).tolist()
            assert number == min(one for one, other in self.bound.items() if other == row), (number, self.bound)
            del self.bound[number]

    def put(self, rng: random.Random, bind: Callable[[list[dict[str, str]]], Any]) -> None:
        rows = [tuple(rng.choice(TERMS) for _ in self.names) for _ in range(rng.randint(1, 3))]
        numbers = bind([dict(zip(self.names, row, strict=True)) for row in rows])
        self.bound |= dict(zip(range(len(rows)) if numbers is None else numbers.tolist(), rows, strict=True))


@dataclass
class Lives(Tally):
    """moved: by kind of operator, reports that changed something of views with it; skipped: what views refuse; bound:
    contents of one argument that were compared; written: those with the text that has its terms."""

    moved: Counter[str] = field(default_factory=Counter)
    skipped: int = 0
    bound: int = 0
    written: int = 0

    def faults(self) -> list[str]:
        """Say which operators the views hardly had."""
        least = int(MOVED_SHARE * self.moved["linear"])
        wanted = {kind: least // RARE_FACTOR if kind in RARE else least for kind in KINDS}
        few = [
            f"{kind}: {self.moved[kind]}, {most} at least" for kind, most in wanted.items() if self.moved[kind] < most
        ]
        for kind, count in (("arguments", self.bound), ("arguments in the text", self.written)):
            if count < int(ARGUMENTS_SHARE * self.queries):
                few.append(f"{kind}: {count}, {int(ARGUMENTS_SHARE * self.queries)} at least")
        return few

    def add(self, other: Tally) -> None:
        super().add(other)
        assert isinstance(other, Lives)
        self.moved.update(other.moved)
        self.skipped += other.skipped
        self.bound += other.bound
        self.written += other.written


def fuzz_life(seed: str, face: str | None = None) -> Lives:
    """Live one life. face: of the engine (tests/faces.py); None: drawn, mostly one in memory."""
    rng, lives = random.Random(f"views {seed}"), Lives()
    face = face or random.Random(f"face {seed}").choice((*FACES[1:], *["embedded"] * EMBEDDED_OF))
    data = random_data(rng, blank=False)
    pool = random_data(rng, blank=False)
    of_graphs = rng.random() < GRAPHS_SHARE
    of_paths = not of_graphs and rng.random() < PATHS_SHARE
    if of_graphs:
        data, pool = _shared(rng, data), _shared(rng, pool)
    few = patch.object(cuts, "MARGIN", rng.choice((0, 1, 4)))  # else LIMIT would keep all rows of so small a graph
    sealed = patch.object(trace, "SEALED_ROWS_MAX", rng.choice((4, 1 << 18)))  # else all would be kept as sealed
    is_compared = rng.random() < 0.5
    large = patch.object(runner, "is_large", lambda change, before: is_compared and change > 4)  # else none would be
    alone = patch.object(shared_views, "ALONE_MAX", rng.choice((0, 4)))  # else no view would move with others
    with few, sealed, large, alone, tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        engine = Face(face, seed, Path(folder), stack).open()
        engine.load(io.BytesIO(nquads(data)), format="nq")
        stream = engine.stream(STREAM, batch_ms=10)
        views, late = list[Followed](), list[Followed]()
        while len(views) < VIEWS:
            tree = random_query(rng, data, of_graphs=of_graphs, of_paths=of_paths)
            if (view := _registered(engine, tree, len(views), rng)) is None:
                lives.skipped += 1
            else:
                views.append(view)
                late.append(Followed(tree, view.query, view.view, "late", view.names))
                if rng.random() < 0.8:  # it begins now, and is read again at the end
                    late[-1].read()
        for step in range(CHANGES):
            for _ in range(rng.choice((1, 1, 1, 2, 3))):
                rng.choice(CHANGE)(rng, engine, stream, pool)
            for one in views:
                if one.names and rng.random() < 0.5:
                    one.rebind(rng)
                    if rng.random() < 0.5:
                        rng.choice(CHANGE)(rng, engine, stream, pool)
            if rng.random() < 0.1:
                _pause(rng.choice(views).view)
            engine.settle(SETTLE_S)
            stored = stored_quads(engine)
            for one in views:
                if step == CHANGES - 1 or rng.random() < 0.8:  # others are read later
                    judge = _judge_arguments if one.names else _judge
                    judge(one, stored, lives, rng, f"seed {seed}, change {step}")
        for one, other in zip(views, late, strict=True):
            other.read()
            assert answers.same(other.answer(), one.answer()), f"seed {seed}: {text_of(one.tree)}"
            if one.moved and isinstance(one.view, wukongs.LiveView):
                lives.moved.update(one.mechanisms())
    return lives


def _shared(rng: random.Random, data: Data) -> Data:
    """Return data in which each graph has some triples of each other one, and many graphs have few triples."""
    every = [triple for triples in data.values() for triple in triples]
    found = {name: [*data.get(name, [])[: rng.choice((0, 2, 20))], *rng.sample(every, 4)] for name in ("", *GRAPHS)}
    return {name: list(dict.fromkeys(triples)) for name, triples in found.items()}


def _registered(engine: wukongs.Engine, tree: Tree, number: int, rng: random.Random) -> Followed | None:
    """Register a query, None if it is refused."""
    head = text_of(tree).removeprefix(PREFIXES)
    text = f"{PREFIXES}REGISTER QUERY v{number} AS {head}"
    options: dict[str, Any] = {"keep": rng.random() < 0.2, "unread_bytes_max": rng.choice((1, 1 << 13, 1 << 26))}
    found = Followed(tree, parse_query(text_of(tree)), None)
    names = sorted({name[1:] for name in re.findall(r"\?[a-z]\b", head)})
    if names and rng.random() < ARGUMENTS_SHARE_OF_VIEWS:
        found.names = tuple(rng.sample(names, min(len(names), rng.choice((1, 1, 2)))))
        if "g" in names and "g" not in found.names and rng.random() < 0.5:
            found.names = ("g", *found.names[1:])
        found.put(rng, lambda rows: options.update(bindings=rows))
    try:
        found.view = engine.register(text, **options)
    except (wukongs.UnsupportedFeatureError, wukongs.QuerySyntaxError, wukongs.SettingsError):
        return None
    return found


def _pause(view: Any) -> None:
    view.pause()
    view.resume()


def stored_quads(engine: wukongs.Engine) -> Data:
    """Return all that is stored, inferred triples included."""
    found: Data = {"": []}
    for graph, subject, predicate, object_ in engine.query(EVERYTHING).texts():
        assert subject is not None
        assert predicate is not None
        assert object_ is not None
        found.setdefault(graph or "", []).append((subject, predicate, object_))
    return found


def _judge(one: Followed, stored: Data, lives: Lives, rng: random.Random, place: str) -> None:
    one.read()
    query, ours = one.query, one.answer()
    lives.queries, lives.not_empty = lives.queries + 1, lives.not_empty + bool(ours)
    lives.operators.update(operators(one.tree))
    names = list(query.variables) if query.form == "select" else []
    anew = answers.of_engine(one.view.content())
    if isinstance(ours, list) and len(ours) > ROWS_MAX:
        verdict: str | Open = TOO_BIG if answers.same(ours, anew) else Open(f"{TOO_BIG}: it is not")
        lives.verdicts[TOO_BIG] += 1
    else:
        world = World(stored)
        case = Case(one.tree, text_of(one.tree), query.form, ours, names, world.dataset)
        verdict = world.compare(case, lives, random.Random(rng.random()))
        world.close()
    if isinstance(verdict, Open):
        reason = f"{one.view.explain()}\nanew {answers.shown(anew)}\n{verdict.reason}"
        lives.opened.append(f"{place}\n{text_of(one.tree)}\n{nquads(stored).decode()}{reason}\n")


def _judge_arguments(one: Followed, stored: Data, lives: Lives, rng: random.Random, place: str) -> None:
    """Judge the content of each argument of a view."""
    one.read()
    query, world = one.query, World(stored)
    assert answers.same(one.answer(), answers.of_engine(one.view.content())), f"{place}: {text_of(one.tree)}"
    assert {row[0] for row in one.sum} <= {typed(str(number), "integer") for number in one.bound}, one.bound
    is_reduced = "SELECT REDUCED" in operators(one.tree)
    for number, row in one.bound.items():
        given = dict(zip(one.names, row, strict=True))
        ours = answers.of_rows(one.rows_of(number), query.variables, False)
        asked = answers.of_engine(world.engine.query(text_of(one.tree), given))
        lives.queries, lives.not_empty, lives.bound = lives.queries + 1, lives.not_empty + bool(ours), lives.bound + 1
        reason = f"{place}\n{text_of(one.tree)}\nwith {given}\n{one.view.explain()}\nours {answers.shown(ours)}\n"
        if not answers.same(ours, asked, is_reduced):
            lives.opened.append(f"{reason}asked {answers.shown(asked)}\n{nquads(stored).decode()}\n")
        elif (tree := written(one.tree, given)) is not None and len(ours) <= ROWS_MAX:
            lives.written += 1
            names = [name for name in query.variables if name not in given]
            kept = [at for at, name in enumerate(query.variables) if name not in given]
            ours = answers.of_rows([tuple(cells[at] for at in kept) for cells in one.rows_of(number)], names, False)
            case = Case(tree, text_of(tree), query.form, ours, names, world.dataset)
            verdict = world.compare(case, lives, random.Random(rng.random()))
            if isinstance(verdict, Open):
                lives.opened.append(f"{reason}as {text_of(tree)}\n{verdict.reason}\n{nquads(stored).decode()}\n")
    world.close()


def written(tree: Tree, given: dict[str, str]) -> Tree | None:
    """Return a query with terms in the place of variables, None if that may mean something else, or is no query."""
    names, text = "|".join(given), str(tree)
    made = ("AS", r"VALUES \([^)]*", r"BY[^{}]*", r"BOUND\s*\(")
    if not all(term.startswith("<") for term in given.values()) or text.count("SELECT") > 1:  # a subquery
        return None
    if any(re.search(rf"{before}\s*\?({names})\b", text) for before in made):
        return None
    columns = [part for part in tree.parts if isinstance(part, Tree) and part.sort == "column"]
    shown = [part for part in columns if str(part) not in {f"?{name}" for name in given}]
    if columns and not shown:
        return None

    def put(part: Tree) -> Tree:
        parts = tuple(
            put(one) if isinstance(one, Tree) else re.sub(rf"\?({names})\b", lambda found: given[found[1]], one)
            for one in part.parts
            if one in shown or one not in columns
        )
        return replace(part, parts=parts)

    return put(tree)


# --- changes ----------------------------------------------------------------------------------------------------------


def _some(rng: random.Random, data: Data, count: int) -> Data:
    graph = rng.choice([name for name in data if data[name]] or [""])
    return {graph: rng.sample(data[graph], min(count, len(data[graph])))}


def _block(data: Data) -> str:
    parts = []
    for graph, triples in data.items():
        inside = " ".join(f"{' '.join(triple)} ." for triple in triples)
        parts.append(f"GRAPH {graph} {{ {inside} }}" if graph else inside)
    return " ".join(parts)


def _insert(rng: random.Random, engine: wukongs.Engine, stream: Any, pool: Data) -> None:
    engine.update(f"INSERT DATA {{ {_block(_some(rng, pool, rng.randint(1, 4)))} }}")


def _delete(rng: random.Random, engine: wukongs.Engine, stream: Any, pool: Data) -> None:
    engine.update(f"DELETE DATA {{ {_block(_some(rng, stored_quads(engine), rng.randint(1, 4)))} }}")


def _insert_again(rng: random.Random, engine: wukongs.Engine, stream: Any, pool: Data) -> None:
    block = _block(_some(rng, stored_quads(engine), 3))
    engine.update(f"DELETE DATA {{ {block} }} ; INSERT DATA {{ {block} }}")


def _clear(rng: random.Random, engine: wukongs.Engine, stream: Any, pool: Data) -> None:
    engine.update(rng.choice(("CLEAR DEFAULT", "CLEAR NAMED", "CLEAR ALL")))
    _load(rng, engine, stream, pool)


def _load(rng: random.Random, engine: wukongs.Engine, stream: Any, pool: Data) -> None:
    engine.load(io.BytesIO(nquads(_some(rng, pool, 12))), format="nq")


def _push(rng: random.Random, engine: wukongs.Engine, stream: Any, pool: Data) -> None:
    at_ms = engine.stats()["streams"][STREAM]["closed_ms"] or 0
    tuples = [(rng.choice(NODES), rng.choice(EDGES), rng.choice(NODES), at_ms + 1 + at) for at in range(3)]
    stream.push(tuples)
    stream.advance(at_ms + 10)


def _rule(rng: random.Random, engine: wukongs.Engine, stream: Any, pool: Data) -> None:
    if engine.rules():
        engine.drop_rules("made")
    else:
        engine.add_rules(RULE)


CHANGE: tuple[Callable[[random.Random, wukongs.Engine, Any, Data], None], ...] = (
    *(_insert, _insert, _insert, _delete, _delete, _delete),
    *(_insert_again, _clear, _load, _push, _rule),
)
