"""Inference: the rules of one engine, and what follows by them from each change of its stored graph.

A rule that needs more time, rows or bytes than one propagation may take is paused, by name. Its conclusions go, as if
it had been dropped, and the change is sealed with what follows by the others.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from wukongs.csparql.parser_rules import RULE_STREAM, ParsedRule, parse_rules
from wukongs.csparql.terms import Term
from wukongs.errors import BudgetExceeded, QueryTimeout, RuleError
from wukongs.query.execution.answer import within
from wukongs.query.limits import Limits
from wukongs.query.memory import Kind, budget_of
from wukongs.query.terms.query_terms import QueryTerms, TermKeeper
from wukongs.rules.changing_graph import NOTHING, Read
from wukongs.rules.derivation import Derivation, Explanation, told
from wukongs.rules.program import Program, Rule, rules_of
from wukongs.rules.propagation import Propagation, StratumPlan, stratum_plans
from wukongs.rules.ranks import Ranks
from wukongs.rules.reader import Reader
from wukongs.rules.rule_plans import RulePlan
from wukongs.settings import Settings
from wukongs.store.batch_set import BatchSet
from wukongs.store.quads import NO_QUADS, Quads
from wukongs.store.tombstones import Difference

log = logging.getLogger("wukongs")


@dataclass(frozen=True, slots=True)
class InstalledRule:
    """A rule of an engine.

    text: a rule file of this rule alone.
    into: the IRI of the graph that it concludes into (None: the default graph).
    error: why it is paused (None: it is not).
    reads: the IRI of the graph that it reads where it names none (None: that of `into`)."""

    name: str
    text: str
    into: str | None = None
    error: str | None = None
    reads: str | None = None

    @property
    def is_paused(self) -> bool:
        return self.error is not None

    @property
    def says(self) -> tuple[str, str | None, str | None]:
        """Its text and its graphs: what it concludes, paused or not."""
        return self.text, self.into, self.reads

    def as_json(self) -> dict[str, Any]:
        found = {"name": self.name, "text": self.text, "into": self.into, "error": self.error}
        return found if self.reads is None else found | {"reads": self.reads}

    @staticmethod
    def of_json(found: Mapping[str, Any]) -> InstalledRule:
        return InstalledRule(found["name"], found["text"], found["into"], found["error"], found.get("reads"))


@dataclass(frozen=True, slots=True)
class Ruleset:
    """Rules, and the strata of those that are not paused."""

    rules: Mapping[str, InstalledRule]
    program: Program

    @staticmethod
    def of(rules: Iterable[InstalledRule]) -> Ruleset:
        """Raises RuleError, also for a circle through what has to be complete."""
        by_name = {rule.name: rule for rule in rules}
        running = [one for rule in by_name.values() if not rule.is_paused for one in _plain(rule)]
        return Ruleset(by_name, Program.of(running))

    @staticmethod
    def of_json(found: Iterable[Mapping[str, Any]]) -> Ruleset:
        return Ruleset.of(map(InstalledRule.of_json, found))

    def as_json(self) -> list[dict[str, Any]]:
        return [rule.as_json() for rule in self.rules.values()]

    def as_record(self, sn: int) -> dict[str, Any]:
        """Return the record of the log by which these are the rules from an SN on."""
        return {"op": "rules", "sn": sn, "rules": self.as_json()}

    def with_rules(self, come: Iterable[ParsedRule], into: str | None = None, reads: str | None = None) -> Ruleset:
        """Return these rules and more. into, reads: as in InstalledRule. Raises RuleError (a name that is taken)."""
        found = list(self.rules.values())
        for parsed in come:
            if parsed.name in self.rules:
                known = f"rule {parsed.name}, which is there already"
                raise parsed.error("a name that no other rule has", known, "drop that one first")
            found.append(InstalledRule(parsed.name, text_of(parsed), into, reads=reads))
        return Ruleset.of(found)

    def with_missing(self, wanted: Iterable[ParsedRule]) -> Ruleset:
        """Return these rules and those of some that are not among them. Raises RuleError (one of the same name says
        something else)."""
        missing = []
        for parsed in wanted:
            known = self.rules.get(parsed.name)
            if known is None:
                missing.append(parsed)
            elif known.text != text_of(parsed):
                raise parsed.error(
                    f"rule {parsed.name} as the data folder has it", "another text", "drop that one first"
                )
        return self.with_rules(missing) if missing else self

    def alters(self, before: Ruleset) -> bool:
        """Tell whether a rule of some rules before says something else here, under the same name."""
        return any(name in before.rules and before.rules[name].says != rule.says for name, rule in self.rules.items())

    def without(self, names: Iterable[str]) -> Ruleset:
        """Raises RuleError (no such rule)."""
        gone = set(self._known(names))
        return Ruleset.of(rule for rule in self.rules.values() if rule.name not in gone)

    def resumed(self, names: Iterable[str]) -> Ruleset:
        """Return the rules with some of them no longer paused. Raises RuleError (no such rule)."""
        wanted = set(self._known(names))
        return Ruleset.of(replace(rule, error=None) if rule.name in wanted else rule for rule in self.rules.values())

    def paused(self, name: str, why: str) -> Ruleset:
        rules = self.rules | {name: replace(self.rules[name], error=why)}  # type: ignore[operator]
        return Ruleset.of(rules.values())

    def _known(self, names: Iterable[str]) -> list[str]:
        found = list(names)
        for name in found:
            if name not in self.rules:
                near = next(iter(get_close_matches(str(name), self.rules, 1)), "")
                hint = f"did you mean {near}?" if near else "Engine.rules() names those that there are"
                raise RuleError("the name of a rule of this engine", str(name), suggestion=hint)
        return found


def text_of(parsed: ParsedRule) -> str:
    """Return a rule file of one rule."""
    return parsed.prologue + parsed.text


def standing_rule(name: str, text: str) -> InstalledRule:
    """Return the rule over windows that a registered query is. text: that of the query."""
    return InstalledRule(name, text.replace(f"REGISTER STREAM <{RULE_STREAM}{name}> AS ", f"RULE {name}: ", 1))


def _plain(rule: InstalledRule) -> Sequence[Rule]:
    into, reads = (None if name is None else Term(f"<{name}>") for name in (rule.into, rule.reads))
    return [one for parsed in parse_rules(rule.text) for one in rules_of(parsed, into, reads)]


class Inference:
    """store.arrangement.Follower of an engine with rules. Used with the engine's lock held, or for one change of a
    cluster by one thread. keeper, terms: as in Reader; has_ranks: whether all changes of the graph are followed here,
    each once, so that ranks stay true."""

    def __init__(
        self,
        keeper: TermKeeper,
        terms: Callable[[], QueryTerms],
        default_graph: int,
        settings: Settings,
        has_ranks: bool = True,
    ) -> None:
        self._keeper = keeper
        self._terms = terms
        self._default_graph = default_graph
        self._settings = settings
        self._strata: tuple[StratumPlan, ...] = ()
        self._ranks: dict[int, Ranks] = {}
        self._has_ranks = has_ranks
        self._graphs: tuple[int, ...] = ()
        """Into which the rules conclude, or those before them."""
        self.ruleset = Ruleset({}, Program(()))
        self._is_behind = False
        """Whether the graph may lack what follows: a change that was derived was not sealed."""
        self.is_changed = False
        """Whether a rule was paused that the log does not know of as paused."""

    @property
    def is_active(self) -> bool:
        return bool(self._strata) or self._is_behind

    def note_sealed(self, is_sealed: bool) -> None:
        self._is_behind = not is_sealed
        if not is_sealed:
            self._forget()

    def _forget(self) -> None:
        """Keep nothing from one change to the next."""
        self._ranks.clear()
        for plan in self.plans():
            plan.forget()

    def take(self, ruleset: Ruleset) -> None:
        """Follow other rules from now on; derive() then changes what is inferred."""
        names = {rule.into for rules in (self.ruleset, ruleset) for rule in rules.rules.values()}
        behind = self._graphs if self._is_behind else ()
        self._graphs = tuple(dict.fromkeys((*behind, *map(self._graph, names))))
        self.ruleset = ruleset
        self.is_changed = False
        self._ranks.clear()
        self._strata = stratum_plans(ruleset.program, lambda rule: RulePlan(rule, self._keeper, self._default_graph))

    def _graph(self, name: str | None) -> int:
        return self._default_graph if name is None else self._keeper.keep(f"<{name}>")

    def follow(self, before: BatchSet, change: Difference, asserted: Quads) -> Difference:
        return self.follow_over(Read(before), change, asserted)

    def follow_over(self, before: Read, change: Difference, asserted: Quads) -> Difference:
        """Do the same as follow, over a graph that may be divided. Raises as derive, but for RuleError."""
        if self._is_behind:
            return self.derive_or_pause(before, change, asserted)
        propagation, stored = self._propagation(before), self.plans()
        try:
            with self._deriving(propagation):
                return propagation.follow(change, asserted)
        except (QueryTimeout, BudgetExceeded) as error:
            self._pause(propagation, error)
        return self.derive_or_pause(before, change, asserted, stored)

    @contextmanager
    def _deriving(self, propagation: Propagation) -> Iterator[None]:
        """Derive within limits. After an error, what is kept may be of a graph that there is not."""
        try:
            with within(propagation.limits):
                yield
        except BaseException:
            self._forget()
            raise

    def derive(self, before: Read, stored: Sequence[RulePlan] | None = None) -> Difference:
        """Return the change of all that is inferred to what follows by the rules as they are now. stored: the plans of
        the rules by which the graph was inferred; None: nobody knows, and all is derived anew. Raises RuleError, which
        names the rule that takes too much; over a divided graph NodeUnavailable, CompactedError."""
        propagation = self._propagation(before)
        try:
            with self._deriving(propagation):
                return self._derived(propagation, NOTHING, NO_QUADS, before, stored)
        except (QueryTimeout, BudgetExceeded) as error:
            raise RuleError("a rule that ends within its bounds", _told(propagation, error)) from error

    def derive_or_pause(
        self,
        before: Read,
        change: Difference = NOTHING,
        asserted: Quads = NO_QUADS,
        stored: Sequence[RulePlan] | None = None,
    ) -> Difference:
        """Return a change of explicit triples with the change of all that is inferred to what follows by the rules as
        they are now; those that take too much are paused. stored: as in derive."""
        while True:
            propagation = self._propagation(before)
            try:
                with self._deriving(propagation):
                    return self._derived(propagation, change, asserted, before, stored)
            except (QueryTimeout, BudgetExceeded) as error:
                self._pause(propagation, error)

    def _derived(
        self,
        propagation: Propagation,
        change: Difference,
        asserted: Quads,
        before: Read,
        stored: Sequence[RulePlan] | None,
    ) -> Difference:
        stored = None if self._is_behind else stored
        running = {plan.rule.name for plan in self.plans()}
        added = running - {plan.rule.name for plan in stored or ()}
        if stored is None or added == running or before.divided is not None:
            return propagation.derive_anew(change, asserted)
        return propagation.follow_rules(change, asserted, [p for p in stored if p.rule.name not in running], added)

    def plans(self) -> list[RulePlan]:
        """Return the plans of the rules that are followed now."""
        return [plan for stratum in self._strata for plan in stratum.plans]

    def why(
        self,
        plans: Sequence[RulePlan],
        read: Read,
        sn: int,
        triple: Sequence[str],
        into: str | None,
        limits: Limits,
    ) -> Derivation | None:
        """Return why a triple (canonical terms) is there as of a read; None if it is not there. plans: of the rules
        then. Called without the lock. Raises QueryTimeout, BudgetExceeded."""
        graph = self._default_graph if into is None else self._keeper.known(f"<{into}>")
        subject, predicate, object_ = self._keeper.known_all(triple).tolist()
        fact = graph, subject, predicate, object_
        reader = self._reader(read, limits)
        with limits:
            proven = Explanation(plans, read, reader, sn).of(fact)
            return None if proven is None else told(proven, fact, reader, self._default_graph, sn)

    def _propagation(self, before: Read) -> Propagation:
        settings = self._settings
        budget = budget_of(settings.memory_bytes_max)
        limits = Limits(settings.rows_max, bytes_max=settings.query_bytes_max, budget=budget, kind=Kind.RULES)
        if settings.rules_timeout_s:
            limits.timeout_s = settings.rules_timeout_s
            limits.deadline_s = time.monotonic() + limits.timeout_s
        if not self._has_ranks:  # what is kept may be of another graph
            for plan in self.plans():
                plan.forget()
        reader = self._reader(before, limits)
        ranks = self._ranks if self._has_ranks else None
        return Propagation(self._strata, before, reader, settings.rules_rows_max, ranks, self._graphs)

    def _reader(self, read: Read, limits: Limits) -> Reader:
        is_divided = read.divided is not None
        return Reader(self._keeper, self._terms, self._default_graph, limits, is_divided=is_divided)

    def _pause(self, propagation: Propagation, error: Exception) -> None:
        rule = propagation.at_work
        assert rule is not None, error
        log.warning("%s: it is paused, and what it has concluded goes", _told(propagation, error))
        self.take(self.ruleset.paused(rule.name, _reason(propagation, error)))
        self.is_changed = True


def _told(propagation: Propagation, error: Exception) -> str:
    rule = propagation.at_work
    return f"rule {rule.name if rule is not None else '?'}: {_reason(propagation, error)}"


def _reason(propagation: Propagation, error: Exception) -> str:
    if not isinstance(error, QueryTimeout):
        return str(error)
    return f"what follows from one change took longer than rules_timeout_s = {propagation.limits.timeout_s:g} in all"
