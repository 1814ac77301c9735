"""Random datasets: a default graph and named ones, small enough that everything meets everything.

Terms are N-Triples. `plain` datasets hold literals whose lexical forms pyoxigraph keeps; in the others equal values
stand in several lexical forms and derived types, and some forms are ill-typed, which pyoxigraph forgets.
"""

from __future__ import annotations

import random

Triple = tuple[str, str, str]
Data = dict[str, list[Triple]]
"""Triples by the name of their graph; the default graph is under ''."""

EX = "http://e/"
XSD = "http://www.w3.org/2001/XMLSchema#"
NODES = tuple(f"<{EX}{name}>" for name in "abcd")
EDGES = tuple(f"<{EX}{name}>" for name in "pqr")
GRAPHS = (f"<{EX}g1>", f"<{EX}g2>", f"<{EX}a>")
BLANKS = ("_:x", "_:y")


def typed(lexical: str, name: str) -> str:
    return f'"{lexical}"^^<{XSD}{name}>'


NUMBERS = (
    *(typed(n, "integer") for n in ("0", "1", "2", "3", "-1", "10")),
    *(typed(n, "decimal") for n in ("1", "2.5", "-0.5", "0.1")),
    *(typed(n, "double") for n in ("1", "2.5", "0.1")),
)
STRINGS = ('"a"', '"b"', '"ab"', '""', '"1"', '"a"@en', '"ab"@en-us', '"b"@de', '"été"', '"A b"')
TIMES = (
    *(typed(t, "dateTime") for t in ("2020-01-01T00:00:00Z", "2020-01-01T01:00:00+01:00", "2021-06-30T12:30:15.5Z")),
    typed("2019-12-31T23:59:59", "dateTime"),
    *(typed(t, "date") for t in ("2020-01-01", "2020-01-02Z")),
)
DURATIONS = (  # in the canonical forms that pyoxigraph keeps
    *(typed(d, "dayTimeDuration") for d in ("PT0S", "PT1H", "P1D", "-P1D", "P366D", "PT0.5S")),
    *(typed(d, "yearMonthDuration") for d in ("P1M", "P1Y", "-P2M")),
    typed("P1M1D", "duration"),
)
OTHERS = (typed("true", "boolean"), typed("false", "boolean"), typed("x", "integer"), f'"x"^^<{EX}type>')
FORMS = (
    *(typed(n, "integer") for n in ("01", "+1", "-0", "1 ")),
    *(typed(n, "decimal") for n in ("1.0", "1.00", "01.5", ".5")),
    *(typed(n, "double") for n in ("1.0E0", "1e0", "10e-1", "INF", "NaN", "-0.0E0")),
    *(typed("1", name) for name in ("int", "byte", "float", "boolean", "nonNegativeInteger", "positiveInteger")),
    *(typed("0", "boolean"), typed("yes", "boolean"), typed("300", "byte"), typed("2020-13-01", "date")),
    *(typed("2020-01-01T00:00:00.0Z", "dateTime"), typed("2020-01-01T24:00:00Z", "dateTime")),
    *(typed("PT60M", "dayTimeDuration"), typed("PT24H", "duration"), typed("P12M", "yearMonthDuration")),
    *('"a"@EN', '"a"@de', '"\\u00e9"', '"e\\u0301"', '"\\t\\"q\\"\\\\"'),
)
OBJECTS = {  # what stands behind a predicate beside the edges
    f"<{EX}n>": NUMBERS,
    f"<{EX}s>": STRINGS,
    f"<{EX}t>": TIMES,
    f"<{EX}d>": DURATIONS,
    f"<{EX}v>": (*NUMBERS, *STRINGS, *TIMES, *DURATIONS, *OTHERS, *NODES, *BLANKS),
}
PREDICATES = (*EDGES, *OBJECTS)


def random_data(rng: random.Random, plain: bool = True, blank: bool = True) -> Data:
    """Make a dataset: 10 to 26 triples in the default graph, up to 10 in each of up to three named graphs."""
    data = {"": _triples(rng, rng.randint(10, 26), plain, blank)}
    for name in GRAPHS:
        if rng.random() < 0.7:
            data[name] = _triples(rng, rng.randint(1, 10), plain, blank)
    if rng.random() < 0.5 and GRAPHS[0] in data:  # graphs that share triples
        data[GRAPHS[0]] = list(dict.fromkeys([*data[GRAPHS[0]], *data[""][:3]]))
    return data


def _triples(rng: random.Random, count: int, plain: bool, blank: bool) -> list[Triple]:
    nodes = (*NODES, *NODES, *BLANKS) if blank else NODES
    found = []
    for _ in range(count):
        predicate = rng.choice((*EDGES, *EDGES, *OBJECTS, *EDGES[:2]))
        objects = OBJECTS.get(predicate, nodes)
        if not plain and predicate in OBJECTS and rng.random() < 0.6:
            objects = FORMS
        value = rng.choice([each for each in objects if blank or not each.startswith("_:")])
        found.append((rng.choice(nodes), predicate, value))
    return list(dict.fromkeys(found))


def nquads(data: Data) -> bytes:
    lines = (f"{' '.join(triple)} {graph} .\n" for graph, triples in data.items() for triple in triples)
    return "".join(lines).encode()
