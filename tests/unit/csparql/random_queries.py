"""Random query texts over three IRIs, three predicates and two named graphs: small enough that everything meets."""

from __future__ import annotations

import random

Triple = tuple[str, str, str]
VERTICES = ("<http://e/1>", "<http://e/2>", "<http://e/3>")
PREDICATES = ("<http://e/p>", "<http://e/q>", "<http://e/r>")
GRAPHS = ("<http://e/1>", "<http://e/g>")
VARIABLES = ("?a", "?b", "?c", "?d")


def random_dataset(rng: random.Random) -> dict[str, set[Triple]]:
    """Return a default graph (under "") and two named ones, each with a few triples."""
    return {name: {_triple(rng) for _ in range(rng.randint(2, 5))} for name in ("", *GRAPHS)}


def random_query(rng: random.Random) -> str:
    return f"SELECT {rng.choice(('', '', 'DISTINCT '))}* {_group(rng, 3)}"


def _triple(rng: random.Random) -> Triple:
    return rng.choice(VERTICES), rng.choice(PREDICATES), rng.choice(VERTICES)


def _pattern(rng: random.Random) -> str:
    predicate = rng.choice(PREDICATES) if rng.random() < 0.9 else rng.choice(VARIABLES)
    ends = (rng.choice(VARIABLES) if rng.random() < 0.85 else rng.choice(VERTICES) for _ in range(2))
    return f"{next(ends)} {predicate} {next(ends)} . "


def _group(rng: random.Random, depth: int) -> str:
    parts = [_part(rng, depth) for _ in range(rng.randint(1, 3))]
    if rng.random() < 0.6:
        parts.insert(0, _pattern(rng))
    return "{ " + "".join(parts) + "} "


def _part(rng: random.Random, depth: int) -> str:
    kind = rng.choice(("pattern", "pattern", "filter") if depth == 0 else KINDS)
    if kind == "pattern":
        return _pattern(rng)
    if kind == "filter":
        return f"FILTER({_condition(rng, 2)}) "
    if kind == "optional":
        return "OPTIONAL " + _group(rng, depth - 1)
    if kind == "union":
        return _group(rng, depth - 1) + "UNION " + _group(rng, depth - 1)
    if kind == "graph":
        name = rng.choice(("?g", "?g", "?h", "<http://e/g>", "<http://e/none>"))
        return f"GRAPH {name} " + _group(rng, depth - 1)
    return _group(rng, depth - 1)


KINDS = ("pattern", "pattern", "filter", "optional", "optional", "union", "graph", "group")


def _condition(rng: random.Random, depth: int) -> str:
    kind = rng.choice(("=", "!=", "bound", "&&", "||", "!") if depth else ("=", "!=", "bound"))
    if kind == "bound":
        return f"BOUND({rng.choice(VARIABLES)})"
    if kind == "!":
        return f"!({_condition(rng, depth - 1)})"
    if kind in ("&&", "||"):
        return f"({_condition(rng, depth - 1)}) {kind} ({_condition(rng, depth - 1)})"
    return f"{rng.choice(VARIABLES)} {kind} {rng.choice((*VARIABLES, *VERTICES))}"
