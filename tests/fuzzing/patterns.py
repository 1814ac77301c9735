"""Random patterns: every element that a group may have, nested, well designed or not."""

from __future__ import annotations

import random

from tests.fuzzing.expressions import ExpressionMaker
from tests.fuzzing.graphs import BLANKS, EDGES, EX, GRAPHS, NODES, NUMBERS, OBJECTS, PREDICATES, STRINGS, Data
from tests.fuzzing.trees import Tree, tree

VARIABLES = ("?a", "?b", "?c", "?d")
PREDICATE_VARIABLES = ("?p", "?p", "?q", "?a")
VALUE_VARIABLES = ("?x", "?x", "?y", "?a", "?b")
NAMES = (*GRAPHS, *GRAPHS[:2], f"<{EX}none>")
_KINDS = {
    "triples": 4, "path": 2, "filter": 3, "optional": 3, "union": 2, "minus": 1.5, "graph": 2, "bind": 1.5,
    "values": 1, "subquery": 1.5, "group": 0.7,
}  # fmt: skip
_KINDS_OF_GRAPHS = _KINDS | {"graph": 10, "path": 0.5}
_KINDS_OF_PATHS = _KINDS | {"path": 12}


class PatternMaker:
    """Makes groups. budget: how many triple patterns and paths there may still be; bound: variables made so far;
    of_graphs: GRAPH blocks of all kinds are more frequent; of_paths: paths are.

    Two of three triple patterns are triples of the data with variables in the place of terms, one variable for one term
    all through a query: so there is something to be found more often than by chance.
    """

    def __init__(
        self, rng: random.Random, data: Data, budget: int = 6, *, of_graphs: bool = False, of_paths: bool = False
    ) -> None:
        self.rng = rng
        self.data = data
        self.of_graphs = of_graphs
        self.kinds = _KINDS_OF_GRAPHS if of_graphs else _KINDS_OF_PATHS if of_paths else _KINDS
        self.triples = data[""]
        self.names: dict[str, str] = {}
        self.budget = budget
        self.bound: list[str] = []
        self.labels = 0
        self.expressions = ExpressionMaker(rng, lambda depth: self.group(depth))

    def fresh(self, beginning: str = "?v") -> str:
        self.labels += 1
        return f"{beginning}{self.labels}"

    def variables(self) -> list[str]:
        """Variables for expressions: some that patterns bind, the usual ones, some that nothing does."""
        return [*self.bound[-6:], *self.bound[-6:], *VARIABLES[:2], "?x", "?x", "?y"]

    def group(self, depth: int) -> Tree:
        if (
            self.of_graphs and depth > 1 and self.rng.random() < 0.4
        ):  # few parts, so that there is something to be found
            blocks = [
                tree("element", "GRAPH ?g", "GRAPH ?g", self._graph_block(0)) for _ in range(self.rng.choice((1, 1, 2)))
            ]
            return tree("group", "", "{", [self._triples()] if self.rng.random() < 0.6 else [], blocks, "}")
        elements = [self._triples()] if self.rng.random() < 0.8 else []
        elements += [self.element(depth) for _ in range(self.rng.choice((0, 0, 1, 1, 1, 2, 2, 3)))]
        return tree("group", "", "{", elements, "}")

    def element(self, depth: int) -> Tree:
        kinds = ("triples", "filter", "values", "bind") if depth <= 0 else tuple(self.kinds)
        kind = self.rng.choices(kinds, [self.kinds[each] for each in kinds])[0]
        inner = depth - 1
        if kind == "triples":
            return self._triples()
        if kind == "path":
            return self._path_pattern()
        if kind == "filter":
            condition = self.expressions.condition(self.variables(), 2, depth)
            return tree("element", "FILTER", "FILTER (", condition, ")")
        if kind == "bind":
            value = self.expressions.value(self.variables(), 2)
            name = self.fresh()
            self.bound.append(name)
            return tree("element", "BIND", "BIND (", value, f"AS {name} )")
        if kind == "values":
            return tree("element", "VALUES", self.values())
        if kind == "union":
            more = [tree("more", "UNION", "UNION", self.group(inner)) for _ in range(self.rng.choice((1, 1, 2)))]
            return tree("element", "UNION", self.group(inner), more)
        if kind == "graph":
            fixed = NAMES[:2] if self.of_graphs else NAMES
            name = self.rng.choice((*fixed, "?g", "?g", "?g", self.rng.choice(VARIABLES)))
            word = "GRAPH ?g" if name.startswith("?") else "GRAPH"
            outer, named = self.triples, [each for each in self.data if each]
            self.triples = self.data.get(self.rng.choice(named) if named and word != "GRAPH" else name, outer)
            block = self._graph_block(inner) if self.of_graphs else self.group(inner)
            self.triples = outer
            return tree("element", word, f"GRAPH {name}", block)
        if kind == "subquery":
            from tests.fuzzing.queries import subquery

            return tree("element", "SUBQUERY", "{", subquery(self, inner), "}")
        word = {"optional": "OPTIONAL", "minus": "MINUS", "group": ""}[kind]
        return tree("element", word or "GROUP", word, self.group(inner))

    def _graph_block(self, depth: int) -> Tree:
        """Make the group of a GRAPH block: triples alone, nothing, one that counts the rows of each graph, or any."""
        kind = self.rng.choices(("triples", "nothing", "count", "any"), (5, 1, 2, 3))[0]
        if kind == "any":
            return self.group(depth)
        elements = {"triples": lambda: [self._triples()], "nothing": list[Tree], "count": lambda: [self._count(depth)]}
        return tree("group", "", "{", elements[kind](), "}")

    def _count(self, depth: int) -> Tree:
        group, name = self.group(depth - 1), self.fresh("?n")
        self.bound.append(name)
        return tree("element", "COUNT PER GRAPH", f"{{ SELECT ( COUNT( * ) AS {name} ) WHERE", group, "}")

    def values(self) -> Tree:
        names = self.rng.sample((*VARIABLES, *self.bound[-2:]), self.rng.choice((1, 1, 2)))
        names = list(dict.fromkeys(names))
        rows = []
        for _ in range(self.rng.randint(0, 3)):
            cells = [self.rng.choice((*NODES[:3], *NUMBERS[:3], STRINGS[0], "UNDEF", "UNDEF")) for _ in names]
            rows.append(tree("cell row", "UNDEF" if "UNDEF" in cells else "", f"( {' '.join(cells)} )"))
        return tree("values", "", f"VALUES ( {' '.join(names)} ) {{", rows, "}")

    # --- triples ------------------------------------------------------------------------------------------------------

    def _triples(self) -> Tree:
        count = min(self.rng.choice((1, 1, 1, 2, 2, 3)), max(self.budget, 0))
        patterns = [self._triple() for _ in range(count)]
        return tree("element", "BGP", [tree("more", "", pattern) for pattern in patterns])

    def _found_triple(self) -> str:
        """A triple of the data, next to one that was taken before if there is such a one."""
        near = [triple for triple in self.triples if self.names.keys() & {triple[0], triple[2]}]
        parts = self.rng.choice(near if near and self.rng.random() < 0.8 else self.triples)
        return " ".join(self._name(part, at) for at, part in enumerate(parts)) + " ."

    def _name(self, term: str, place: int) -> str:
        """The variable of a term, or the term itself."""
        stays = 0.9 if place == 1 else 0.08
        if not term.startswith("_:") and self.rng.random() < stays:
            return term
        if term not in self.names:
            pool = PREDICATE_VARIABLES if place == 1 else VALUE_VARIABLES if term.startswith('"') else VARIABLES
            free = [name for name in pool if name not in self.names.values()]
            self.names[term] = self.rng.choice(free) if free else self.fresh("?w")
        self.bound.append(self.names[term])
        return self.names[term]

    def _triple(self) -> str:
        self.budget -= 1
        if self.triples and self.rng.random() < 0.67:
            return self._found_triple()
        common = (*EDGES, *EDGES, *EDGES[:2], *OBJECTS)
        predicate = self.rng.choice(common) if self.rng.random() < 0.88 else self._variable(PREDICATE_VARIABLES)
        subject = self._variable() if self.rng.random() < 0.9 else self.rng.choice((*NODES, self.fresh("_:l")))
        if self.rng.random() < 0.88:
            pool = VALUE_VARIABLES if predicate in OBJECTS else VARIABLES
            return f"{subject} {predicate} {self._variable(pool)} ."
        objects = OBJECTS.get(predicate, (*NODES, "[]"))
        return f"{subject} {predicate} {self.rng.choice([each for each in objects if each not in BLANKS])} ."

    def _variable(self, pool: tuple[str, ...] = VARIABLES) -> str:
        name = self.rng.choice(pool)
        self.bound.append(name)
        return name

    def _path_pattern(self) -> Tree:
        self.budget -= 1
        ends = [
            self._variable() if self.rng.random() < 0.75 else self.rng.choice((*NODES, self.fresh("_:l")))
            for _ in range(2)
        ]
        return tree("element", "PATH", tree("more", "", ends[0], self.path(2), ends[1], "."))

    def _nullable_sequence(self) -> Tree:
        """Make a repeated path of two parts that both may have no length."""
        first, second = (tree("path", "", "(", self.path(0), f"){self.rng.choice('*?')}") for _ in range(2))
        return tree("path", "nullable sequence", "(", first, "/", second, f"){self.rng.choice('*+?')}")

    def path(self, depth: int) -> Tree:
        kind = self.rng.choice("//|^*+?!l" if depth > 0 else "ll!")
        if depth > 1 and self.rng.random() < 0.15:
            return self._nullable_sequence()
        if kind == "l":
            return tree("path", "", self.rng.choice(EDGES * 3 + PREDICATES))
        if kind == "!":
            members = [f"{self.rng.choice(('', '', '^'))}{self.rng.choice(PREDICATES)}" for _ in range(2)]
            return tree("path", "!()", f"!( {'|'.join(members[: self.rng.randint(1, 2)])} )")
        if kind in "/|":
            return tree("path", kind, "(", self.path(depth - 1), kind, self.path(depth - 1), ")")
        if kind == "^":
            return tree("path", "^", "^(", self.path(depth - 1), ")")
        return tree("path", f"path {kind}", "(", self.path(depth - 1), f"){kind}")
