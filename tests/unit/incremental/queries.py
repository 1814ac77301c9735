"""Random changes and queries for views: few terms and predicates, so that patterns meet and changes matter."""

from __future__ import annotations

import random

NODES = tuple(f"<http://ex/n{at}>" for at in range(4))
PREDICATES = tuple(f"<http://ex/p{at}>" for at in range(2))
NUMBERS = ("1", "2", "5e-1", "2e0", '"a"', '"b"@en')
GRAPHS = ("", "<http://ex/g0>", "<http://ex/g1>")
"""The default graph, and named ones."""
VARIABLES = ("?a", "?b", "?c", "?d")
CLAUSES = ("", "", "", "", f"FROM {GRAPHS[1]} FROM NAMED {GRAPHS[2]}", f"FROM {GRAPHS[1]} FROM {GRAPHS[2]}")
_DEFAULT, _EXPLICIT, _INFERRED = (f"<urn:x-wukongs:{name}>" for name in ("default", "explicit", "inferred"))
CLAUSES_OF_GRAPHS = (
    *("", "", ""),
    f"FROM {GRAPHS[1]} FROM {GRAPHS[2]}",
    f"FROM {_DEFAULT} FROM {GRAPHS[1]} FROM NAMED {GRAPHS[2]}",
    f"FROM {_DEFAULT} FROM {GRAPHS[1]} FROM {GRAPHS[2]} FROM NAMED {GRAPHS[1]} FROM NAMED {GRAPHS[2]}",
    f"FROM NAMED {GRAPHS[1]} FROM NAMED <http://ex/none>",
    f"FROM {_EXPLICIT} FROM {GRAPHS[2]} FROM NAMED {GRAPHS[1]}",
    f"FROM {_INFERRED} FROM {GRAPHS[1]} FROM NAMED {_EXPLICIT} FROM NAMED {GRAPHS[2]} FROM NAMED {_INFERRED}",
)
RULE = "RULE made: CONSTRUCT { ?x <http://ex/p1> ?z } WHERE { ?x <http://ex/p0> ?y . ?y <http://ex/p0> ?z }"
"""It infers in the default graph, so that its two views differ."""
TRIPLE_TERMS = tuple(
    f"<<( {one} {PREDICATES[0]} {other} )>>" for one in NODES[:2] for other in (*NODES[:2], NUMBERS[0])
)
Triple = tuple[str, str, str]
Graphs = dict[str, set[Triple]]


def random_triples(rng: random.Random, count: int) -> list[Triple]:
    return [
        (
            rng.choice(NODES),
            rng.choice(PREDICATES),
            rng.choice(rng.choices((NODES, NUMBERS, TRIPLE_TERMS), (14, 5, 1))[0]),
        )
        for _ in range(count)
    ]


def quads_text(graph: str, triples: list[Triple]) -> str:
    inside = " ".join(f"{' '.join(triple)} ." for triple in triples)
    return f"GRAPH {graph} {{ {inside} }}" if graph else inside


def random_update(rng: random.Random, graphs: Graphs, *, of_graphs: bool = False) -> str:
    """Return an update: triples are inserted, deleted, deleted and inserted again, or a graph is cleared. graphs: what
    is stored, which is changed too. of_graphs: named graphs change as often as the default graph, and all are
    cleared more often."""
    graph = rng.choices(GRAPHS, (1, 1, 1) if of_graphs else (3, 1, 1))[0]
    held, kind = graphs[graph], rng.random()
    if kind < 0.45 or not held:
        new = random_triples(rng, rng.randint(1, 4))
        held.update(new)
        return f"INSERT DATA {{ {quads_text(graph, new)} }}"
    some = rng.sample(sorted(held), min(len(held), rng.randint(1, 4)))
    if kind < (0.75 if of_graphs else 0.85):
        held.difference_update(some)
        return f"DELETE DATA {{ {quads_text(graph, some)} }}"
    if kind < (0.8 if of_graphs else 0.95):
        text = quads_text(graph, some)
        return f"DELETE DATA {{ {text} }} ; INSERT DATA {{ {text} }}"
    held.clear()
    return f"CLEAR GRAPH {graph}" if graph else "CLEAR DEFAULT"


class QueryMaker:
    """Makes SELECT queries of all operators. of_graphs: mostly of GRAPH ?g, merged default graphs and their like;
    of_paths: mostly of paths."""

    def __init__(self, rng: random.Random, *, of_graphs: bool = False, of_paths: bool = False) -> None:
        self.rng = rng
        self._of_paths = of_paths
        self._of_graphs = of_graphs
        self._variables = (*VARIABLES, "?g") if of_graphs else VARIABLES
        self._made = 0

    def query(self) -> str:
        rng = self.rng
        clause = rng.choice(CLAUSES_OF_GRAPHS if self._of_graphs else CLAUSES)
        body, kind = self.group(2), rng.random()
        if kind < 0.45:
            shown = " ".join(rng.sample(self._variables, rng.randint(1, 3)))
            word = rng.choice(("", "", "DISTINCT"))
            return f"SELECT {word} {shown} {clause} WHERE {body}{self._order(shown)}"
        if kind < 0.75:
            return f"SELECT * {clause} WHERE {body}"
        return self._grouped(clause, body)

    def _order(self, shown: str) -> str:
        if self.rng.random() < 0.75:
            return ""
        first = shown.split()[0]
        if self.rng.random() < 0.2:
            first = f"{self.rng.choice(('', 'DESC'))}({self._decided(first)})"
        keys = "" if self.rng.random() < 0.3 else f" ORDER BY {first}"
        return f"{keys} LIMIT {self.rng.randint(0, 4)} OFFSET {self.rng.randint(0, 2)}"

    def _decided(self, variable: str) -> str:
        """Return an expression that an EXISTS decides."""
        negated = self.rng.choice(("", "NOT "))
        return f"IF({negated}EXISTS {{ {self._triples()} }}, {variable}, {self.rng.choice(('1', '?none'))})"

    def _grouped(self, clause: str, body: str) -> str:
        rng = self.rng
        keys = " ".join(rng.sample(self._variables, rng.randint(0, 2)))
        function = rng.choice(("COUNT", "SUM", "MIN", "MAX", "AVG", "SAMPLE", "GROUP_CONCAT"))
        argument = rng.choice(VARIABLES)
        argument = f"{rng.choice(('', 'DISTINCT '))}{self._decided(argument) if rng.random() < 0.15 else argument}"
        aggregate = rng.choice((f"COUNT({rng.choice(('*', argument))})", f"{function}({argument})"))
        by = f" GROUP BY {keys}" if keys else ""
        having = " HAVING (COUNT(*) > 1)" if rng.random() < 0.2 else ""
        return f"SELECT {keys} ({aggregate} AS ?n) {clause} WHERE {body}{by}{having}"

    def group(self, depth: int) -> str:
        if self._of_graphs and depth > 0 and self.rng.random() < 0.4:
            return f"{{ {' '.join(self._graph_part(0) for _ in range(self.rng.choice((1, 1, 2))))} }}"
        parts = [self._triples()] if self.rng.random() < 0.9 else []
        parts.extend(self._part(depth) for _ in range(self.rng.randint(0, 2) if depth else 0))
        return f"{{ {' '.join(parts)} }}"

    def _term(self, among: tuple[str, ...]) -> str:
        return self.rng.choice(VARIABLES) if self.rng.random() < 0.9 else self.rng.choice(among)

    def path(self, depth: int) -> str:
        """Return a path."""
        rng = self.rng
        match rng.randrange(10) if depth else 0:
            case 0 | 1:
                return rng.choice(PREDICATES)
            case 2:
                return f"({self.path(depth - 1)}/{self.path(depth - 1)})"
            case 3:
                return f"({self.path(depth - 1)}|{self.path(depth - 1)})"
            case 4:
                return f"^({self.path(depth - 1)})"
            case 5:
                return f"({self.path(depth - 1)}){{{rng.choice(('1,2', '0,2', '2,3', '2,', '0,1', '0', '1,70'))}}}"
            case 6:
                return f"!({rng.choice(PREDICATES)}|^{rng.choice(PREDICATES)})"
            case _:
                return f"({self.path(depth - 1)}){rng.choice('+*?')}"

    def _triples(self) -> str:
        rng = self.rng
        if self._of_paths and rng.random() < 0.4:
            path = f"({self.path(2)}){rng.choice('++**?')}" if rng.random() < 0.8 else self.path(2)
            if rng.random() < 0.2:
                path = f"(({self.path(1)}){rng.choice('+*?')} AS {rng.choice(('?d', '?l'))})"
            ends = [rng.choice(NODES) if rng.random() < 0.15 else self._term(NODES) for _ in range(2)]
            text = f"{ends[0]} {path} {ends[1]} ."
            return text if rng.random() < 0.7 else f"GRAPH {rng.choice((GRAPHS[1], '?g'))} {{ {text} }}"
        made = []
        for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
            predicate = rng.choice(VARIABLES) if rng.random() < 0.08 else rng.choice(PREDICATES)
            made.append(f"{self._term(NODES)} {predicate} {self._term(NODES)} .")
        text = " ".join(made)
        if rng.random() < (0.5 if self._of_graphs else 0.2):
            outside = rng.randint(0, len(made) - 1) if self._of_graphs else 0  # one basic graph pattern all the same
            inside = " ".join(made[outside:])
            return f"{' '.join(made[:outside])} GRAPH {rng.choice((*GRAPHS[1:], '?g'))} {{ {inside} }}"
        return text

    def _part(self, depth: int) -> str:
        rng, inner = self.rng, depth - 1
        if self._of_graphs and rng.random() < 0.35:
            return self._graph_part(inner)
        one, other = rng.sample(VARIABLES, 2)
        if self._of_paths and rng.random() < 0.15:
            return f"FILTER {rng.choice(('', 'NOT '))}EXISTS {{ {self._triples()} }}"
        match rng.randrange(14):
            case 12:
                return f"OPTIONAL {{ {self._triples()} FILTER({self._decided(one)} = {other}) }}"
            case 13:
                third = rng.choice((*VARIABLES, *NODES[:2]))
                return f"{one} {rng.choice(PREDICATES)} <<( {third} {PREDICATES[0]} {other} )>> ."
            case 0 | 1:
                return f"OPTIONAL {self.group(inner)}"
            case 2:
                return f"OPTIONAL {{ {self._triples()} FILTER({one} != {other}) }}"
            case 3:
                return f"{self.group(inner)} UNION {self.group(inner)}"
            case 4 | 5:
                return f"MINUS {self.group(inner)}"
            case 6:
                return f"FILTER {rng.choice(('', 'NOT '))}EXISTS {self.group(inner)}"
            case 7:
                return f"FILTER({one} {rng.choice(('=', '!=', '<'))} {other})"
            case 8:
                self._made += 1
                value = rng.choice((f"STR({one})", f"{one} + 1", f"CONCAT(STR({one}), STR({other}))", one))
                return f"BIND({value} AS ?x{self._made})"
            case 9:
                cells = " ".join(f"({rng.choice((*NODES, 'UNDEF'))} {rng.choice((*NODES, 'UNDEF'))})" for _ in range(2))
                return f"VALUES ({one} {other}) {{ {cells} }}"
            case 10:
                path = rng.choice(
                    (f"{PREDICATES[0]}+", f"{PREDICATES[0]}/{PREDICATES[1]}", f"({PREDICATES[0]}|{PREDICATES[1]})*")
                )
                return f"{self._term(NODES)} {path} {self._term(NODES)} ."
            case _:
                self._made += 1
                return f"{{ SELECT {one} (COUNT(*) AS ?x{self._made}) WHERE {self.group(inner)} GROUP BY {one} }}"

    def _graph_part(self, depth: int) -> str:
        """Return a GRAPH block of a kind that triples alone do not make."""
        rng = self.rng
        name = rng.choice(("?g", "?g", "?h", rng.choice(VARIABLES)))
        one, other = rng.sample(VARIABLES, 2)
        self._made += 1
        match rng.randrange(8):
            case 7:
                other = f"GRAPH {rng.choice(('?h', *GRAPHS[1:]))} {{ {self._triples()} }}"
                other = rng.choice((other, f"FILTER NOT EXISTS {{ {other} }}", f"OPTIONAL {{ {other} }}"))
                return f"GRAPH {name} {{ SELECT (COUNT(*) AS ?x{self._made}) WHERE {{ {self._triples()} {other} }} }}"
            case 0:
                return f"GRAPH {rng.choice((name, *GRAPHS[1:], _EXPLICIT, _INFERRED, _DEFAULT))} {{ }}"
            case 1:
                return f"GRAPH {name} {{ SELECT (COUNT(*) AS ?x{self._made}) WHERE {self.group(0)} }}"
            case 2:
                return f"GRAPH {name} {{ SELECT {one} {other} WHERE {self.group(0)} ORDER BY {one} {other} LIMIT 2 }}"
            case 3:
                return f"FILTER {rng.choice(('', 'NOT '))}EXISTS {{ GRAPH {name} {self.group(0)} }}"
            case 4:
                return f"GRAPH {name} {self.group(max(depth, 0))}"
            case 5:  # the names are joined with triples that are inserted with the graph
                return f"GRAPH {name} {{ }} GRAPH {name} {self.group(0)}"
            case _:
                return f"OPTIONAL {{ GRAPH {name} {{ {one} {rng.choice((*PREDICATES, '?p'))} {other} }} }}"
