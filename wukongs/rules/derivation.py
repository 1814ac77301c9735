"""Derivation: why a triple is there, as a tree of rules and the triples that they rest on.

The search goes backwards from the triple, level by level: each inferred triple is expanded to all ways in which one
rule gives it. After each level it looks forward which of the triples met so far are proven by explicit ones; the other
ways to these are not followed. So a triple never rests on itself, the first proof found is one of the least depth, and
circles in the data cost nothing more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wukongs.csparql.algebra import TriplePattern
from wukongs.csparql.terms import Variable
from wukongs.errors import BudgetExceeded
from wukongs.query.binding_table import BindingTable
from wukongs.query.operators import operators
from wukongs.query.terms.shown_texts import shown
from wukongs.rules.changing_graph import Read
from wukongs.rules.reader import Reader
from wukongs.rules.rule_plans import RulePlan
from wukongs.store.dtypes import UNBOUND, BoolArray
from wukongs.store.quads import Quads, hidden

STEPS_MAX = 100_000
"""So many applications of rules are looked at for one answer."""
FRONT_MAX = 1024
"""Triples whose steps are looked for together."""
SHOWN_MAX = 12
"""So many parts of an aggregate are shown."""
Fact = tuple[int, int, int, int]
"""Graph, subject, predicate, object: ids."""
INDENT = "  "


@dataclass(frozen=True, slots=True, eq=False)
class Derivation:
    """triple: subject, predicate, object as N-Triples terms; graph: the IRI of its graph (None: the default graph);
    rule: the rule that gives it (None: it is explicit); parts: the triples that the rule was applied to, in the order
    of its body; more: how many others an aggregate has counted; sn: the snapshot that was read."""

    triple: tuple[str, str, str]
    graph: str | None
    rule: str | None
    parts: tuple[Derivation, ...] = field(repr=False)
    sn: int
    more: int = 0

    @property
    def is_explicit(self) -> bool:
        return self.rule is None

    def as_json(self) -> list[list[object]]:
        """Return a list of triples, each behind those that it rests on, which it names by their places."""
        places: dict[int, int] = {}
        made: list[list[object]] = []
        waiting = [self]
        while waiting:
            one = waiting[-1]
            missing = [part for part in one.parts if id(part) not in places]
            if missing:
                waiting += missing
                continue
            waiting.pop()
            if id(one) not in places:
                places[id(one)] = len(made)
                parts = [places[id(part)] for part in one.parts]
                made.append([*one.triple, one.graph, one.rule, parts, one.sn, one.more])
        return made

    @staticmethod
    def of_json(found: Sequence[Sequence[Any]]) -> Derivation:
        made: list[Derivation] = []
        for subject, predicate, object_, graph, rule, parts, sn, more in found:
            below = tuple(made[place] for place in parts)
            made.append(Derivation((subject, predicate, object_), graph, rule, below, sn, more))
        return made[-1]

    def __str__(self) -> str:
        lines, shown = list[str](), set[tuple[object, ...]]()
        waiting: list[tuple[int, Derivation | str]] = [(0, self)]
        while waiting:
            depth, one = waiting.pop()
            if isinstance(one, str):
                lines.append(INDENT * depth + one)
                continue
            key = (*one.triple, one.graph)
            is_again = key in shown and bool(one.parts)
            shown.add(key)
            where = "" if one.graph is None else f" in <{one.graph}>"
            why = "explicit" if one.rule is None else f"by rule {one.rule}"
            lines.append(f"{INDENT * depth}{' '.join(one.triple)}{where}   {why}{', as above' if is_again else ''}")
            if not is_again:
                waiting += [(depth + 1, f"and {one.more} more")] if one.more else []
                waiting += [(depth + 1, part) for part in reversed(one.parts)]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class _Step:
    """One application of a rule. parts: the triples of its body; more: those of an aggregate that are left out."""

    rule: str
    parts: tuple[Fact, ...]
    more: int = 0


@dataclass(slots=True)
class Explanation:
    """The search for one derivation over a read of the stored graph, at an SN."""

    plans: Sequence[RulePlan]
    read: Read
    reader: Reader
    sn: int
    _steps: dict[Fact, list[_Step]] = field(default_factory=dict)
    _proven: dict[Fact, _Step | None] = field(default_factory=dict)
    _new: list[Fact] = field(default_factory=list)
    """Triples that were proven last."""
    _waiting: dict[Fact, list[tuple[Fact, _Step]]] = field(default_factory=dict)
    """For a triple that is not proven, triples with a step that has it among its parts."""
    _ready: dict[Fact, None] = field(default_factory=dict)
    """Triples with a step whose parts are all proven."""
    _step_count: int = 0

    def of(self, fact: Fact) -> dict[Fact, _Step | None] | None:
        """Return for each triple of a derivation the step that gives it (None: explicit); None if the triple is not
        there, or nothing gives it. Raises BudgetExceeded, QueryTimeout."""
        if not self._held([fact])[0]:
            return None
        front = self._inferred([fact])
        while fact not in self._proven and front:
            level: dict[Fact, list[_Step]] = {}
            for start in range(0, len(front), FRONT_MAX):
                level |= self._ways_to(front[start : start + FRONT_MAX])
            self._steps |= level
            for one, steps in level.items():
                for step in steps:
                    self._wait(one, step)
            met = dict.fromkeys(part for steps in level.values() for step in steps for part in step.parts)
            left = set(self._inferred([one for one in met if one not in self._steps and one not in self._proven]))
            self._prove()
            open_steps = (step for one, steps in level.items() if one not in self._proven for step in steps)
            front = [*dict.fromkeys(part for step in open_steps for part in step.parts if part in left)]
        return self._proven if fact in self._proven else None

    def _wait(self, fact: Fact, step: _Step) -> None:
        """Have a triple wait for a part of one of its steps that is not proven yet."""
        part = next((part for part in step.parts if part not in self._proven), None)
        if part is None:
            self._ready[fact] = None
        else:
            self._waiting.setdefault(part, []).append((fact, step))

    def _prove(self) -> None:
        """Find all triples that the proven ones prove, each by the first of its steps of least depth.

        Cost: each step is looked at once for each of its parts."""
        while self._new or self._ready:
            for fact, step in [one for new in self._new for one in self._waiting.pop(new, ())]:
                self._wait(fact, step)
            found = {
                fact: next(step for step in self._steps[fact] if all(part in self._proven for part in step.parts))
                for fact in self._ready
                if fact not in self._proven
            }
            self._ready.clear()
            self._proven |= found
            self._new = list(found)

    def _inferred(self, facts: Sequence[Fact]) -> list[Fact]:
        """Return those of some triples that are not explicit; the others are proven."""
        if not facts:
            return []
        is_inferred = self.read.holds(hidden(_quads(facts)))
        explicit = {fact: None for fact, found in zip(facts, is_inferred, strict=True) if not found}
        self._proven |= explicit
        self._new += explicit
        return [fact for fact, found in zip(facts, is_inferred, strict=True) if found]

    def _held(self, facts: Sequence[Fact]) -> list[bool]:
        return list(self.read.holds(_quads(facts)))

    def _ways_to(self, facts: Sequence[Fact]) -> dict[Fact, list[_Step]]:
        """Return the steps that give each of some triples."""
        found: dict[Fact, list[_Step]] = {fact: [] for fact in facts}
        for plan in self.plans:
            if plan.rule.aggregation is None:
                seeds = plan.given_heads(_quads(facts))
                for table in self._solved(plan, seeds):
                    heads = _facts(plan.instances(plan.rule.head, table))
                    for head, parts in zip(heads, self._parts(plan, table), strict=True):
                        if head in found:
                            found[head].append(_Step(plan.rule.name, parts))
                continue
            for fact in facts:
                seeds = plan.given_heads(_quads([fact]))
                found[fact] += self._of_group(plan, fact, seeds) if seeds.length else []
        return found

    def _solved(self, plan: RulePlan, seeds: BindingTable) -> Iterator[BindingTable]:
        """Yield the solutions of a body that agree with some seeds. Raises BudgetExceeded."""
        if not seeds.length:
            return
        for table in self.reader.solve(plan.body, self.read, seeds):
            self._step_count += table.length
            if self._step_count > STEPS_MAX:
                raise BudgetExceeded(
                    f"more than {STEPS_MAX} applications of rules lead to this triple: ask for a part of it"
                )
            yield table

    @staticmethod
    def _parts(plan: RulePlan, table: BindingTable) -> Iterator[tuple[Fact, ...]]:
        """Yield the triples that the body has matched in each row."""
        columns = [_matches(plan, pattern, marker, table) for pattern, marker in plan.matched]
        for at in range(table.length):
            yield tuple(fact for column in columns if (fact := column[at]) is not None)

    def _of_group(self, plan: RulePlan, fact: Fact, seeds: BindingTable) -> list[_Step]:
        """Return the step of an aggregation that gives a triple."""
        group = self._group(plan, fact, seeds)
        if group is None:
            return []
        together, has_solutions = dict[Fact, None](), False
        for table in self._solved(plan, operators.project(group, plan.keys)):
            for parts in self._parts(plan, table.take(np.flatnonzero(_is_of(table, group)))):
                together.update(dict.fromkeys(parts))
                has_solutions = True
        shown_parts = tuple(together)[:SHOWN_MAX]
        return [_Step(plan.rule.name, shown_parts, len(together) - len(shown_parts))] if has_solutions else []

    def _group(self, plan: RulePlan, fact: Fact, seeds: BindingTable) -> BindingTable | None:
        """Return the keys of a group of an aggregation that gives a fact, as one row. One is enough: what it counts is
        there by strata before."""
        assert plan.rule.aggregation is not None
        found = None
        for table in self.reader.solve(plan.heads, self.read, seeds):
            rows = np.flatnonzero(_is_fact(plan, table, fact))
            if found is None and len(rows):
                found = operators.project(table.take(rows[:1]), plan.rule.aggregation.keys)
        return found


def told(proven: dict[Fact, _Step | None], fact: Fact, reader: Reader, default_graph: int, sn: int) -> Derivation:
    """Return the derivation of a triple as a tree. Equal parts of it are one object."""
    made: dict[Fact, Derivation] = {}
    waiting = [fact]
    while waiting:
        one = waiting[-1]
        step = proven[one]
        missing = [] if step is None else [part for part in step.parts if part not in made]
        if missing:
            waiting += missing
            continue
        waiting.pop()
        if one in made:
            continue
        graph, *triple = reader.terms().texts(np.array(one, np.int64))
        parts = () if step is None else tuple(made[part] for part in step.parts)
        made[one] = Derivation(
            (triple[0], triple[1], shown(triple[2])),
            None if one[0] == default_graph else graph[1:-1],
            None if step is None else step.rule,
            parts,
            sn,
            0 if step is None else step.more,
        )
    return made[fact]


def _quads(facts: Sequence[Fact]) -> Quads:
    graphs, subjects, predicates, objects = np.array(facts, np.int64).reshape(-1, 4).T
    return tuple(map(np.ascontiguousarray, (graphs, subjects, predicates, objects)))  # type: ignore[return-value]


def _facts(quads: Quads) -> list[Fact]:
    return list(zip(*(column.tolist() for column in quads), strict=True))


def _matches(
    plan: RulePlan, pattern: TriplePattern, marker: Variable | None, table: BindingTable
) -> list[Fact] | list[Fact | None]:
    """Return the triple that a pattern has matched in each row, None where the row does not bind the marker."""
    facts = _facts(plan.instances(pattern, table))
    if marker is None:
        return facts
    return [fact if id_ != UNBOUND else None for fact, id_ in zip(facts, table.column(marker).tolist(), strict=True)]


def _is_fact(plan: RulePlan, table: BindingTable, fact: Fact) -> BoolArray:
    """Mark the rows that give a fact. bool[n]"""
    is_fact = np.ones(table.length, np.bool_)
    head = plan.rule.head
    for part, wanted in zip((head.subject, head.predicate, head.object), fact[1:], strict=True):
        if isinstance(part, Variable) and part in table.variables:
            is_fact &= table.column(part) == wanted
    return is_fact


def _is_of(table: BindingTable, group: BindingTable) -> BoolArray:
    """Mark the rows that belong to a group. bool[n]"""
    is_of = np.ones(table.length, np.bool_)
    for key in group.variables:
        is_of &= table.column(key) == group.column(key)
    return is_of
