"""Random queries over windows, with the data that they are asked of: readings of sensors, and links between nodes."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

E = "http://e/"
STREAM, OTHER = f"{E}s", f"{E}t"
STORED = "FROM <urn:x-wukongs:default>"
GRAPHS = f"{E}g0", f"{E}g1"
"""The stored named graphs: each has some of the triples of the default graph."""
BATCH_MS = 100
XSD = "http://www.w3.org/2001/XMLSchema#"
_REGEX = 'FILTER(REGEX(STR(?s), "[135]$"))'
Triple = tuple[str, str, str]


@dataclass(frozen=True)
class Window:
    """A window over STREAM. name: of its graph, None: it is merged into the default graph."""

    range_ms: int
    step_ms: int
    name: str | None = None

    def text(self) -> str:
        size = f"[RANGE {self.range_ms}ms STEP {self.step_ms}ms]"
        if self.name is None:
            return f"FROM STREAM <{STREAM}> {size}"
        if self.name == STREAM:
            return f"FROM NAMED STREAM <{STREAM}> {size}"
        return f"FROM NAMED WINDOW <{self.name}> ON <{STREAM}> {size}"


@dataclass(frozen=True)
class Clause:
    """The dataset of a query. every_ms: how often it fires; has_graphs: stored named graphs, too."""

    windows: tuple[Window, ...]
    reads_stored: bool
    every_ms: int
    has_graphs: bool = False

    def text(self) -> str:
        stored = [STORED] if self.reads_stored else []
        named = [f"FROM NAMED <{name}>" for name in GRAPHS] if self.has_graphs else []
        return " ".join([*(window.text() for window in self.windows), *stored, *named])

    def every(self) -> str:
        return "" if self.every_ms == self.windows[0].step_ms else f" COMPUTED EVERY {self.every_ms}ms"


@dataclass(frozen=True)
class Asked:
    """A registered query. where: with GRAPH blocks for the windows that have names; bindings: variable and terms of a
    table of arguments; is_computed: its cells may be numbers that systems write differently."""

    name: str
    clause: Clause
    head: str
    where: str
    tail: str = ""
    output: str = "QUERY"
    bindings: tuple[str, tuple[str, ...]] | None = None
    is_computed: bool = False

    def text(self) -> str:
        return (
            f"PREFIX : <{E}> REGISTER {self.output} {self.name}{self.clause.every()} AS "
            f"SELECT {self.head} {self.clause.text()} WHERE {{ {self.where} }} {self.tail}"
        )

    def oracle_text(self) -> str:
        head, where = self.head, self.where
        if self.bindings is not None:
            variable, terms = self.bindings
            rows = " ".join(f"({number} {term})" for number, term in enumerate(terms))
            first, *rest = head.split()
            head = f"{first} ?argument {' '.join(rest)}" if first == "DISTINCT" else f"?argument {head}"
            where = f"VALUES (?argument ?{variable}) {{ {rows} }} {where}"
        return f"PREFIX : <{E}> SELECT {head} WHERE {{ {where} }} {self.tail}"


def graphs_of(triple: Triple) -> tuple[str, ...]:
    """Return the named graphs that have a stored triple: one, or both."""
    number = zlib.crc32(" ".join(triple).encode()) % 3
    return GRAPHS if number == 2 else (GRAPHS[number],)


# --- data -----------------------------------------------------------------------------------------------------------


def iri(name: str) -> str:
    return f"<{E}{name}>"


def value(rng: random.Random, kind: str, lo: int, hi: int) -> str:
    number = rng.randrange(lo, hi)
    if kind == "decimal" and rng.random() < 0.5:
        return f'"{number}.5"^^<{XSD}decimal>'
    if kind == "double":
        return f'"{number}"^^<{XSD}double>'
    return f'"{number}"^^<{XSD}integer>'


def readings(rng: random.Random, count: int, rate: float, sensors: int, kind: str) -> list[list[Triple]]:
    """Return observations of sensors: each with its sensor, a kind, and a result that has a value. Some triples come
    again: the state of a sensor, and whole observations."""
    ticks: list[list[Triple]] = []
    for tick in range(count):
        rows: list[Triple] = []
        for at in range(int(rate) + (rng.random() < rate % 1)):
            seen, result, sensor = f"o{tick}_{at}", f"b{tick}_{at}", f"s{rng.randrange(sensors)}"
            rows += [(iri(seen), iri("p"), iri(sensor)), (iri(seen), iri("k"), iri(rng.choice("TTTU")))]
            rows += [(iri(seen), iri("r"), iri(result)), (iri(result), iri("f"), value(rng, kind, 50, 80))]
            if rng.random() < 0.3:
                rows.append((iri(sensor), iri("state"), iri(rng.choice(["on", "off"]))))
        if ticks and rng.random() < 0.5:
            again = rng.choice(ticks[-6:])
            rows += rng.sample(again, min(len(again), 1 + len(rows) // 8))
        ticks.append(rows)
    return ticks


def stored_facts(rng: random.Random, sensors: int) -> list[Triple]:
    rooms = max(2, sensors // 5)
    found = [(iri(f"s{one}"), iri("in"), iri(f"room{rng.randrange(rooms)}")) for one in range(sensors)]
    found += [(iri(f"room{one}"), iri("part"), iri(f"house{one % 3}")) for one in range(rooms)]
    found += [(iri(f"s{one}"), iri("limit"), value(rng, "integer", 55, 80)) for one in range(0, sensors, 2)]
    return found


def links(rng: random.Random, count: int, rate: float, nodes: int) -> list[list[Triple]]:
    """Return links between nodes, for paths and joins of links with themselves; some come again."""
    ticks: list[list[Triple]] = []
    for _ in range(count):
        rows = []
        for _ in range(int(rate) + (rng.random() < rate % 1)):
            left, right = rng.randrange(nodes), rng.randrange(nodes)
            rows.append((iri(f"n{left}"), iri(rng.choice(["knows", "knows", "likes"])), iri(f"n{right}")))
        if ticks and rng.random() < 0.5:
            again = rng.choice(ticks[-6:])
            rows += rng.sample(again, min(len(again), 1 + len(rows) // 8))
        ticks.append(rows)
    return ticks


# --- parts of queries -------------------------------------------------------------------------------------------------


def clause_of(rng: random.Random, ranges: Sequence[int], stored: float, step: int | None = None) -> Clause:
    """Return one or two windows, merged or named. ranges: in steps."""
    step_ms = BATCH_MS * (rng.choice([1, 1, 1, 2]) if step is None else step)
    named = rng.choice([None, None, None, STREAM, f"{E}w"])
    windows = [Window(rng.choice(ranges) * step_ms, step_ms, named)]
    if rng.random() < 0.2:
        windows.append(Window(rng.choice(ranges) * step_ms, step_ms, None if named is None else f"{E}w2"))
    every_ms = step_ms * (2 if rng.random() < 0.1 else 1)
    return Clause(tuple(windows), rng.random() < stored, every_ms)


def within(rng: random.Random, clause: Clause, patterns: str) -> str:
    """Put patterns into the graph of one of the windows."""
    name = rng.choice(clause.windows).name
    return patterns if name is None else f"GRAPH <{name}> {{ {patterns} }}"


def observation(rng: random.Random, number: int, wants_value: bool = True) -> str:
    patterns = [f"?o{number} :p ?s ."]
    if rng.random() < 0.6:
        patterns.append(f"?o{number} :k :T .")
    if wants_value:
        patterns.append(f"?o{number} :r ?b{number} . ?b{number} :f ?v{number} .")
    return " ".join(patterns)


def facts(rng: random.Random, clause: Clause) -> str:
    if not clause.reads_stored:
        return ""
    return rng.choice(["", "?s :in ?room .", "?s :in ?room . ?room :part ?house .", "?s :limit ?most ."])


def filters(rng: random.Random, names: Sequence[str], bound: str) -> str:
    """Return none to two conditions of values; most of them look at one side alone."""
    found = []
    for _ in range(rng.choice([0, 1, 1, 1, 2])):
        left, op = rng.choice(names), rng.choice(["<", ">", ">=", "!="])
        right = rng.choice([str(rng.randrange(52, 78)), str(rng.randrange(70, 78)), rng.choice(names)])
        if "?most" in bound and rng.random() < 0.5:
            right = "?most"
        found.append(f"FILTER({left} {op} {right})")
    if rng.random() < 0.15:
        found.append(rng.choice(["FILTER(?s != :s1)", "FILTER(STRLEN(STR(?s)) > 11)", _REGEX]))
    return " ".join(found)


def pairs(rng: random.Random, clause: Clause) -> tuple[list[str], str]:
    """Return the variables and the text of two observations of one sensor: five to ten patterns."""
    parts = [within(rng, clause, observation(rng, number)) for number in (1, 2)]
    found = [*parts, facts(rng, clause)]
    if rng.random() < 0.2:
        found.append(within(rng, clause, "?s :state ?x ."))
    if rng.random() < 0.4:
        found.append("FILTER(?o1 != ?o2)")
    where = " ".join(found)
    where = f"{where} {filters(rng, ['?v1', '?v2'], where)}"
    variables = [name for name in ("?s", "?o1", "?v1", "?o2", "?v2", "?room", "?x") if name in where]
    return rng.sample(variables, rng.randint(2, len(variables))), where


def chain(rng: random.Random, clause: Clause) -> tuple[list[str], str]:
    """Return links joined with links: two to four."""
    count = rng.choice([2, 2, 3, 3, 4])
    parts = [f"?n{at} :{rng.choice(['knows', 'likes'])} ?n{at + 1} ." for at in range(count)]
    where = " ".join(within(rng, clause, part) for part in parts)
    if rng.random() < 0.4:
        where += rng.choice([f" FILTER(?n0 != ?n{count})", " FILTER(?n1 != :n1)", f" FILTER(?n{count} != :n2)"])
    return [f"?n{at}" for at in range(count + 1)], where


def singles(rng: random.Random, clause: Clause) -> tuple[list[str], str]:
    where = f"{within(rng, clause, observation(rng, 1))} {facts(rng, clause)}"
    where = f"{where} {filters(rng, ['?v1'], where)}"
    return [name for name in ("?s", "?o1", "?v1", "?room") if name in where], where


def states(rng: random.Random, clause: Clause) -> tuple[list[str], str]:
    """Return readings without conditions, beside the state of their sensor."""
    where = f"{within(rng, clause, observation(rng, 1))} {within(rng, clause, '?s :state ?x .')} {facts(rng, clause)}"
    return [name for name in ("?s", "?x", "?v1", "?room", "?house") if name in where], where


def aggregated(rng: random.Random, clause: Clause, number: int, output: str = "QUERY") -> Asked:
    _, where = singles(rng, clause) if rng.random() < 0.6 else pairs(rng, clause)
    own = "?v1" if "?v1" in where else "?o1"
    calls = ["COUNT(*)", f"COUNT({own})", "COUNT(DISTINCT ?o1)", f"SUM({own})", f"AVG({own})", f"MIN({own})"]
    calls += [f"MAX({own})", f"SUM(DISTINCT {own})", f"COUNT(DISTINCT {own})", f"SUM({own} * 2)", f"MAX({own} + 1)"]
    keys = [name for name in rng.choice([["?s"], ["?s"], ["?room"], []]) if name in where]
    chosen = rng.sample(calls, rng.randint(1, 3))
    head = " ".join([*keys, *(f"({call} AS ?x{at})" for at, call in enumerate(chosen))])
    if rng.random() < 0.15:
        where += " BIND(?v1 * 2 AS ?w) FILTER(?w > 110)" if "?v1" in where else ""
    tail = f"GROUP BY {' '.join(keys)}" if keys else ""
    if keys and rng.random() < 0.2:
        tail += " HAVING(COUNT(*) > 2)"
    return Asked(f"q{number}", clause, head, where, tail, output, is_computed=True)


def reduced(rng: random.Random, clause: Clause, number: int, output: str) -> Asked:
    """Return groups or distinct rows of one pattern over one window."""
    where = within(rng, clause, f"?s :{rng.choice(['p', 'k', 'f', 'state', 'state'])} ?v .")
    if rng.random() < 0.4:
        names = rng.choice(["?s", "?v", "?s ?v", "?v ?s"])
        return Asked(f"q{number}", clause, f"DISTINCT {names}", where, output=output)
    calls = ["COUNT(*)", "COUNT(*)", "COUNT(?v)", "SUM(?v)", "AVG(?v)", "MIN(?v)", "MAX(?v)", "COUNT(DISTINCT ?v)"]
    key = rng.choice(["?s", "?v", "", ""])
    made = " ".join(f"({call} AS ?x{at})" for at, call in enumerate(rng.sample(calls, rng.randint(1, 3))))
    tail = f"GROUP BY {key}" if key else ""
    if key and rng.random() < 0.2:
        tail += rng.choice([" HAVING(COUNT(*) > 2)", f" ORDER BY DESC(?x0) {key} LIMIT 4"])
    return Asked(f"q{number}", clause, f"{key} {made}", where, tail, output, is_computed=True)


def ranked(rng: random.Random, clause: Clause, number: int, output: str) -> Asked:
    """Return groups, or distinct rows, of which LIMIT leaves the first in an order of all variables."""
    variables, where = rng.choice([singles, states, pairs, layered])(rng, clause)
    if rng.random() < 0.5:
        names = rng.sample(variables, rng.randint(1, min(2, len(variables))))
        head, tail = f"DISTINCT {' '.join(names)}", ""
        if rng.random() < 0.2:
            head, where = f"{head} ?made", f"{where} BIND(STRLEN(STR({names[0]})) AS ?made)"
            names.append("?made")
    else:
        own = variables[-1]
        calls = ["COUNT(*)", f"COUNT(DISTINCT {own})", f"MIN({own})", f"MAX({own})", "COUNT(*) * 2"]
        names = rng.choice([["?s"], ["?s"], variables[:2]])
        made = [f"?x{at}" for at in range(rng.randint(1, 2))]
        made_of = " ".join(f"({rng.choice(calls)} AS {name})" for name in made)
        head, tail = f"{' '.join(names)} {made_of}", f"GROUP BY {' '.join(names)}"
        if rng.random() < 0.3:
            tail += rng.choice([" HAVING(COUNT(*) > 1)", f" HAVING(STRLEN(STR(MAX({own}))) > 5)"])
        names = [*names, *made]
    keys = [rng.choice(["?%s", "DESC(?%s)"]) % name[1:] for name in rng.sample(names, len(names))]
    cut = f"LIMIT {rng.choice([3, 10])}{rng.choice(['', ' OFFSET 2'])}"
    return Asked(f"q{number}", clause, head, where, f"{tail} ORDER BY {' '.join(keys)} {cut}", output, is_computed=True)


def beyond(rng: random.Random, clause: Clause) -> tuple[list[str], str]:
    """Return patterns with what only the executor evaluates above them."""
    variables, where = singles(rng, clause)
    other = within(rng, clause, "?s :state ?x .")
    more = rng.choice(
        [
            f"OPTIONAL {{ {other} }}",
            f"MINUS {{ {other} }}",
            f"FILTER NOT EXISTS {{ {within(rng, clause, '?s :state :on .')} }}",
            f"FILTER EXISTS {{ {other} }}",
            "BIND(STR(?s) AS ?x)",
            "BIND(STRLEN(STR(?s)) AS ?x) FILTER(?x > 11)",
        ]
    )
    if rng.random() < 0.15:  # rows without a variable, as many as there are
        sides = [within(rng, clause, f":s{rng.randrange(9)} :state :on .") for _ in range(rng.choice([2, 3]))]
        return variables, f"{' UNION '.join(f'{{ {side} }}' for side in sides)} {where}"
    if rng.random() < 0.25:
        where = f"{{ {where} }} UNION {{ {within(rng, clause, '?s :state ?x .')} }}"
        return [*variables, "?x"], where
    return [*variables, *(["?x"] if more.startswith(("OPTIONAL", "BIND")) else [])], f"{where} {more}"


def deciding(rng: random.Random, clause: Clause, name: str, *, is_small: bool) -> str:
    """Return an EXISTS about a sensor. name: of its own variables; is_small: of one pattern, since pyoxigraph looks at
    all solutions of a larger one for each row."""
    other = rng.choice([within(rng, clause, f"?s :state ?{name} ."), within(rng, clause, "?s :state :on .")])
    reading = within(rng, clause, f"?{name} :p ?s . ?{name} :r ?r{name} . ?r{name} :f ?f{name} .")
    bodies = [other, other, f"{reading} FILTER(?f{name} > ?v1)", f"{reading} FILTER(?{name} != ?o1 && ?f{name} > 70)"]
    if clause.reads_stored:
        bodies.append(f"?s :in ?{name} . ?{name} :part :house1 .")
    return f"{rng.choice(['EXISTS', 'NOT EXISTS'])} {{ {other if is_small else rng.choice(bodies)} }}"


def existing(rng: random.Random, clause: Clause, number: int, output: str) -> Asked:
    """Return a query with EXISTS in an expression: in BIND, a filter, SELECT, aggregates, HAVING or ORDER BY."""
    is_layered = rng.random() < 0.3
    variables, where = (layered if is_layered else singles)(rng, clause)
    one, other = (deciding(rng, clause, name, is_small=is_layered) for name in ("e1", "e2"))
    head, tail, kind = " ".join(variables), "", rng.randrange(7)
    if kind == 0:
        where, head = f"{where} BIND({one} AS ?e)", f"{head} ?e"
    elif kind == 1:
        where += rng.choice([f" FILTER({one} || ?v1 > 70)", f" FILTER(IF({one}, ?v1 > 60, {other}))"])
    elif kind == 2:
        head += f" (IF({one}, ?v1, {rng.choice(['0', other, '?none'])}) AS ?e)"
    elif kind == 3:
        head = f"?s (SUM(IF({one}, 1, 0)) AS ?n) (COUNT({other}) AS ?m) (MAX(IF({one}, ?v1, 0)) AS ?most)"
        tail = "GROUP BY ?s"
    elif kind == 4:
        head, tail = "?s (COUNT(*) AS ?n)", f"GROUP BY ?s HAVING({rng.choice([one, f'{one} || COUNT(*) > 2'])})"
    elif kind == 5:
        keys = " ".join(rng.sample(variables, len(variables)))
        tail = f"ORDER BY {rng.choice(['', 'DESC'])}({one}) {keys} LIMIT {rng.choice([3, 10])}"
    else:
        where, head = f"{where} BIND({one} AS ?e)", f"DISTINCT {variables[0]} ?e"
    return Asked(f"q{number}", clause, head, where, tail, output, is_computed=True)


def layered(rng: random.Random, clause: Clause) -> tuple[list[str], str]:
    """Return patterns with OPTIONAL, MINUS, UNION and subqueries above each other."""
    variables, where = singles(rng, clause)
    for number in range(rng.choice([1, 1, 2, 3])):
        state = within(rng, clause, f"?s :state ?x{number} .")
        reading = within(rng, clause, f"?p{number} :p ?s . ?p{number} :r ?r{number} .")
        device = within(rng, clause, f"?p{number} :p ?s .")
        more = rng.choice(
            [
                f"OPTIONAL {{ {state} }}",
                f"OPTIONAL {{ {state} FILTER(?x{number} = :on) }}",
                f"OPTIONAL {{ {reading} OPTIONAL {{ {state} }} }}",
                f"OPTIONAL {{ {{ {state} }} UNION {{ {reading} }} }}",
                f"MINUS {{ {state} }}",
                f"MINUS {{ {reading} {state} }}",
                f"FILTER NOT EXISTS {{ {state} }}",
                f"FILTER EXISTS {{ {device} FILTER(?p{number} != ?s) }}",
                f"FILTER NOT EXISTS {{ {device} FILTER(?p{number} != ?o1) }}",
                f"{{ SELECT ?s (COUNT(*) AS ?x{number}) WHERE {{ {reading} }} GROUP BY ?s }}",
                f"{{ SELECT DISTINCT ?s ?x{number} WHERE {{ {state} {reading} }} }}",
                f"{{ {state} }} UNION {{ {within(rng, clause, f'?s :state :on . ?x{number} :p ?s .')} }}",
            ]
        )
        where = f"{where} {more}"
        is_bound = f"?x{number}" in more and not more.startswith(("MINUS", "FILTER"))
        variables += [f"?x{number}"] if is_bound else []
    return variables, where


PATHS = (
    "?s (:in|:part)+ ?x{number} .",
    "?s :in/:part* ?x{number} .",
    "?s (:in|:part)* ?x{number} .",
    "?s :in?/:part ?x{number} .",
    "?x{number} ^:part/^:in ?s .",
    "?s :in+ :room1 . ?s :limit ?x{number} .",
    "?s :in/:part* ?x{number} . FILTER(?x{number} != :room1)",
)
"""Walks over stored graphs from a sensor that a window binds."""


def beside_stored(rng: random.Random, clause: Clause) -> tuple[list[str], str]:
    """Return patterns over windows beside parts over stored graphs alone. clause: its windows are named, or it has
    named graphs and windows without names."""
    variables = ["?o1", "?s", "?v1"]
    where = within(rng, clause, "?o1 :p ?s . ?o1 :r ?b1 . ?b1 :f ?v1 .")
    for number in range(rng.choice([1, 1, 2])):
        graph = rng.choice([f"GRAPH ?g{number} {{ %s }}", f"GRAPH <{rng.choice(GRAPHS)}> {{ %s }}"])
        stored = graph if clause.has_graphs else "%s"
        room = stored % f"?s :in ?x{number} ."
        house = stored % f"?s :in ?r{number} . ?r{number} :part ?x{number} ."
        limit = stored % f"?s :limit ?x{number} ."
        walk = stored % rng.choice(PATHS).format(number=number)
        part = rng.choice([room, house, limit, walk, walk, walk, walk, walk])
        asked = house if ")* ?x" in part else part  # from what EXISTS is given a path of no length leads to itself
        more = rng.choice(
            [
                f"OPTIONAL {{ {part} }}",
                f"OPTIONAL {{ {limit} FILTER(?v1 > ?x{number}) }}",
                f"OPTIONAL {{ {room} OPTIONAL {{ {stored % f'?x{number} :part ?h{number} .'} }} }}",
                f"MINUS {{ {part} }}",
                part,
                f"{room} FILTER(?s != ?x{number})",
                f"FILTER EXISTS {{ {asked} }}",
                f"FILTER NOT EXISTS {{ {asked} }}",
                f"FILTER(EXISTS {{ {asked} }} || ?v1 > 70)",
                f"BIND(EXISTS {{ {asked} }} AS ?x{number})",
                f"{{ {part} }} UNION {{ {within(rng, clause, f'?s :state ?x{number} .')} }}",
                f"{{ SELECT ?s (COUNT(*) AS ?x{number}) WHERE {{ {room} }} GROUP BY ?s }}",
                f"{{ SELECT DISTINCT ?s ?x{number} WHERE {{ {house} }} }}",
            ]
        )
        where = f"{where} {more}"
        variables += [f"?x{number}"] if not more.startswith(("MINUS", "FILTER")) else []
        if f"?g{number}" in more and more.startswith("OPTIONAL"):
            variables.append(f"?g{number}")
    return variables, where
