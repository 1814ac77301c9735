"""Random queries of all forms over random patterns, and subqueries."""

from __future__ import annotations

import random

from tests.fuzzing.graphs import EDGES, EX, GRAPHS, NODES, XSD, Data
from tests.fuzzing.patterns import VARIABLES, PatternMaker
from tests.fuzzing.trees import Tree, tree

PREFIXES = f"PREFIX : <{EX}> PREFIX xsd: <{XSD}> "
AGGREGATES = ("COUNT", "COUNT", "SUM", "AVG", "MIN", "MAX", "SAMPLE", "GROUP_CONCAT")


def random_query(rng: random.Random, data: Data, *, of_graphs: bool = False, of_paths: bool = False) -> Tree:
    """Make a query: SELECT mostly, ASK, CONSTRUCT; some with a dataset clause. of_graphs: most with GRAPH or such a
    clause; of_paths: most with paths."""
    maker = PatternMaker(rng, data, of_graphs=of_graphs, of_paths=of_paths)
    form = rng.random()
    clauses = _dataset(rng, of_graphs) if rng.random() < (0.5 if of_graphs else 0.15) else []
    if form < 0.1:
        return tree("query", "ASK", "ASK", clauses, "WHERE", maker.group(2))
    if form < 0.2:
        group = maker.group(2)
        return tree("query", "CONSTRUCT", "CONSTRUCT {", _template(maker), "}", clauses, "WHERE", group)
    return _select(maker, 2, clauses, top=True)


def subquery(maker: PatternMaker, depth: int) -> Tree:
    outer = maker.bound
    maker.bound = []
    made = _select(maker, depth, [], top=False)
    maker.bound = [*outer, *maker.bound]
    return made


def _dataset(rng: random.Random, of_graphs: bool) -> list[Tree]:
    more = [list(GRAPHS[1:]), list(GRAPHS), list(GRAPHS)] if of_graphs else []
    chosen = rng.choice(([GRAPHS[0]], [GRAPHS[1]], list(GRAPHS[:2]), [], *more))
    clauses = [tree("dataset", "FROM", f"FROM {name}") for name in chosen]
    named = rng.choice(([], [GRAPHS[0]], list(GRAPHS[1:]), [GRAPHS[0], f"<{EX}none>"], *more[:2]))
    return clauses + [tree("dataset", "FROM NAMED", f"FROM NAMED {name}") for name in named]


def _select(maker: PatternMaker, depth: int, clauses: list[Tree], top: bool) -> Tree:
    rng = maker.rng
    group = maker.group(depth)
    if rng.random() < 0.3:
        return _grouped(maker, group, clauses, top)
    word = rng.choices(("", "DISTINCT", "REDUCED"), (7, 2, 0.5 if top else 0))[0]
    seen = list(dict.fromkeys(maker.bound)) or list(VARIABLES[:2])
    operator = f"SELECT {word}".strip()
    having = []
    if rng.random() < 0.06:
        condition = maker.expressions.condition(maker.variables(), 1)
        having.append(tree("modifier", "HAVING ALONE", "HAVING (", condition, ")"))
    if rng.random() < 0.3:
        modifiers = having + _values(maker, 0.06)
        return tree("query", operator, "SELECT", word, "*", clauses, "WHERE", group, modifiers)
    shown = rng.sample(seen, min(len(seen), rng.randint(1, 3)))
    columns = [tree("column", "", name) for name in shown]
    if rng.random() < 0.25:
        name = maker.fresh("?e")
        columns.append(tree("column", "SELECT AS", "(", maker.expressions.value(maker.variables(), 2), f"AS {name} )"))
        shown.append(name)
    order = [] if word == "REDUCED" else _order(maker, shown, not word)  # how many rows LIMIT cuts is open then
    modifiers = having + order + _values(maker, 0.06)
    if not top:
        maker.bound = shown
    return tree("query", operator, "SELECT", word, columns, clauses, "WHERE", group, modifiers)


def _order(maker: PatternMaker, shown: list[str], is_of_rows: bool = False) -> list[Tree]:
    """ORDER BY what is shown. Where LIMIT and OFFSET cut, equal values in other forms are told apart, too. is_of_rows:
    some order by a condition first, which may have EXISTS."""
    rng = maker.rng
    if rng.random() < 0.75:
        return []
    keys = [rng.choice((name, f"DESC( {name} )")) for name in rng.sample(shown, len(shown))]
    cuts = []
    if rng.random() < 0.6:
        cuts.append(tree("modifier", "LIMIT", f"LIMIT {rng.randint(0, 4)}"))
    if rng.random() < 0.3:
        cuts.append(tree("modifier", "OFFSET", f"OFFSET {rng.randint(0, 3)}"))
    if cuts:
        keys += [f"{function}( {name} )" for name in shown for function in ("STR", "DATATYPE", "LANG")]
    first = list[Tree]()
    if is_of_rows and rng.random() < 0.3:
        condition = maker.expressions.condition(maker.variables(), 1, exists_depth=1)
        first.append(tree("more", "ORDER BY CONDITION", "(", condition, ")"))
    return [tree("order", "ORDER BY", "ORDER BY", first, " ".join(keys)), *cuts]


def _values(maker: PatternMaker, chance: float) -> list[Tree]:
    if maker.rng.random() >= chance:
        return []
    return [tree("modifier", "TRAILING VALUES", maker.values())]


def _grouped(maker: PatternMaker, group: Tree, clauses: list[Tree], top: bool) -> Tree:
    rng = maker.rng
    seen = list(dict.fromkeys(maker.bound)) or list(VARIABLES[:2])
    keys = rng.sample(seen, min(len(seen), rng.choice((0, 1, 1, 2))))
    by = [tree("more", "", name) for name in keys]
    if keys and rng.random() < 0.2:
        name = maker.fresh("?k")
        by.append(tree("more", "GROUP BY AS", "(", maker.expressions.value(maker.variables(), 1), f"AS {name} )"))
        keys.append(name)
    columns = [tree("column", "", name) for name in keys]
    shown = list(keys)
    for _ in range(rng.randint(1, 2)):
        aggregate, name = _aggregate(maker, seen, keys)
        columns.append(tree("column", "", "(", aggregate, f"AS {name} )"))
        if not name.startswith("?j"):
            shown.append(name)
    modifiers = [tree("modifier", "GROUP BY", "GROUP BY", by)] if by else []
    if rng.random() < 0.25:
        having, _ = _aggregate(maker, seen, keys, joined=False)
        modifiers.append(tree("modifier", "HAVING", "HAVING (", having, f"{rng.choice(('<', '>', '!='))} 1 )"))
    modifiers += _order(maker, shown) if shown else []
    modifiers += _values(maker, 0.05)
    if not top:
        maker.bound = shown
    return tree("query", "GROUPED", "SELECT", columns, clauses, "WHERE", group, modifiers)


def _aggregate(maker: PatternMaker, seen: list[str], keys: list[str], joined: bool = True) -> tuple[Tree, str]:
    """Make an aggregate and a name for it; SAMPLE only of a key, since it may take any; ?j for a joined text."""
    rng = maker.rng
    name = rng.choice(AGGREGATES if joined else AGGREGATES[:6])
    word = rng.choice(("", "", "DISTINCT"))
    operator = f"{name} {word}".strip()
    variable = rng.choice(seen)
    if name == "COUNT" and rng.random() < 0.4:
        return tree("expression", f"{operator} *", "COUNT(", word, "* )"), maker.fresh("?n")
    if name == "SAMPLE":
        if not keys:
            return tree("expression", "COUNT *", "COUNT( * )"), maker.fresh("?n")
        return tree("expression", operator, f"SAMPLE( {rng.choice(keys)} )"), maker.fresh("?n")
    if name == "GROUP_CONCAT":
        text = f'GROUP_CONCAT( {word} STR( {variable} ) ; SEPARATOR = "|" )'
        return tree("expression", operator, text), maker.fresh("?j")
    argument = tree("expression", "", variable)
    if rng.random() < 0.3:
        make = maker.expressions.number if name in ("SUM", "AVG") else maker.expressions.value
        argument = make([variable, *seen[:2]], 1)
    return tree("expression", operator, f"{name}(", word, argument, ")"), maker.fresh("?n")


def _template(maker: PatternMaker) -> list[Tree]:
    rng = maker.rng
    seen = [*maker.bound, *VARIABLES[:2]]
    triples = []
    for _ in range(rng.randint(1, 3)):
        subject, object_ = (rng.choice((*seen, *seen, *NODES, "_:t")) for _ in range(2))
        triples.append(tree("more", "", f"{subject} {rng.choice((*EDGES, rng.choice(seen)))} {object_} ."))
    return triples


def text_of(query: Tree, clause: str = "") -> str:
    """Return a query's text; clause: a dataset clause to put before WHERE."""
    text = str(query)
    if clause:
        head, _, rest = text.partition(" WHERE ")
        text = f"{head} {clause} WHERE {rest}"
    return PREFIXES + text
