"""Random query texts over three IRIs, three predicates and two named graphs: small enough that everything meets."""

from __future__ import annotations

import random
from collections.abc import Sequence

Triple = tuple[str, str, str]
VERTICES = ("<http://e/1>", "<http://e/2>", "<http://e/3>")
PREDICATES = ("<http://e/p>", "<http://e/q>", "<http://e/r>")
KINDS = ("pattern", "pattern", "filter", "optional", "optional", "union", "graph", "group")
ALL_KINDS = (*KINDS, "exists", "exists", "minus", "minus", "values", "bind", "subquery", "subquery")
GRAPHS = ("<http://e/1>", "<http://e/g>")
VARIABLES = ("?a", "?b", "?c", "?d")


def random_dataset(rng: random.Random) -> dict[str, set[Triple]]:
    """Return a default graph (under "") and two named ones, each with a few triples."""
    return {name: {_triple(rng) for _ in range(rng.randint(2, 5))} for name in ("", *GRAPHS)}


def random_query(rng: random.Random, kinds: Sequence[str] = KINDS) -> str:
    """Return a query over these kinds of parts; with "exists" among them, also in conditions."""
    return f"SELECT {rng.choice(('', '', 'DISTINCT '))}* {_group(rng, 3, kinds)}"


def _triple(rng: random.Random) -> Triple:
    return rng.choice(VERTICES), rng.choice(PREDICATES), rng.choice(VERTICES)


def _pattern(rng: random.Random) -> str:
    predicate = rng.choice(PREDICATES) if rng.random() < 0.9 else rng.choice(VARIABLES)
    ends = (rng.choice(VARIABLES) if rng.random() < 0.85 else rng.choice(VERTICES) for _ in range(2))
    return f"{next(ends)} {predicate} {next(ends)} . "


def _group(rng: random.Random, depth: int, kinds: Sequence[str]) -> str:
    parts = [_part(rng, depth, kinds) for _ in range(rng.randint(1, 3))]
    if rng.random() < 0.6:
        parts.insert(0, _pattern(rng))
    return "{ " + "".join(parts) + "} "


def _part(rng: random.Random, depth: int, kinds: Sequence[str]) -> str:
    kind = rng.choice(("pattern", "pattern", "filter") if depth == 0 else kinds)
    if kind == "pattern":
        return _pattern(rng)
    if kind == "filter":
        return f"FILTER({_condition(rng, 2)}) "
    if kind == "exists":
        exists = f"{rng.choice(('', 'NOT '))}EXISTS {_group(rng, depth - 1, kinds)}"
        return f"FILTER {exists}" if rng.random() < 0.7 else f"FILTER({exists} || {_condition(rng, 1)}) "
    if kind == "minus":
        return "MINUS " + _group(rng, depth - 1, kinds)
    if kind == "values":
        return _values(rng)
    if kind == "bind":
        return f"BIND({rng.choice((*VARIABLES, *VERTICES))} AS {_fresh(rng)}) "
    if kind == "subquery":
        return _subquery(rng, depth, kinds)
    if kind == "optional":
        return "OPTIONAL " + _group(rng, depth - 1, kinds)
    if kind == "union":
        return _group(rng, depth - 1, kinds) + "UNION " + _group(rng, depth - 1, kinds)
    if kind == "graph":
        name = rng.choice(("?g", "?g", "?h", "<http://e/g>", "<http://e/none>"))
        return f"GRAPH {name} " + _group(rng, depth - 1, kinds)
    return _group(rng, depth - 1, kinds)


def _fresh(rng: random.Random) -> str:
    return f"?n{rng.randrange(10**6)}"


def _values(rng: random.Random) -> str:
    names = rng.sample(VARIABLES, rng.randint(1, 2))
    rows = [[rng.choice((*VERTICES, "UNDEF")) for _ in names] for _ in range(rng.randint(0, 3))]
    return f"VALUES ({' '.join(names)}) {{ {' '.join('(' + ' '.join(row) + ')' for row in rows)} }} "


def _subquery(rng: random.Random, depth: int, kinds: Sequence[str]) -> str:
    inside = _group(rng, depth - 1, kinds)
    names = " ".join(rng.sample(VARIABLES, rng.randint(1, 2)))
    count = f"(COUNT({rng.choice(('*', 'DISTINCT *', '?a', 'DISTINCT ?b'))}) AS {_fresh(rng)})"
    clause, after = rng.choice(
        (("*", ""), (names, ""), (names, ""), (f"DISTINCT {names}", ""), (f"{names} {count}", names), (count, ""))
    )
    return f"{{ SELECT {clause} {inside} {'GROUP BY ' + after if after else ''} }} "


def _condition(rng: random.Random, depth: int) -> str:
    kind = rng.choice(("=", "!=", "bound", "&&", "||", "!") if depth else ("=", "!=", "bound"))
    if kind == "bound":
        return f"BOUND({rng.choice(VARIABLES)})"
    if kind == "!":
        return f"!({_condition(rng, depth - 1)})"
    if kind in ("&&", "||"):
        return f"({_condition(rng, depth - 1)}) {kind} ({_condition(rng, depth - 1)})"
    return f"{rng.choice(VARIABLES)} {kind} {rng.choice((*VARIABLES, *VERTICES))}"
