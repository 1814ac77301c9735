"""Answering: how the firings of a registered query find their answers, and what they keep for the next ones."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import suppress
from typing import Protocol

from wukongs.csparql.algebra import Query
from wukongs.csparql.functions import depends_on_moment
from wukongs.csparql.terms import Variable
from wukongs.incremental.maintained import Known, Maintained
from wukongs.live.answer_cache import CachedAnswer, algebra_of, digest
from wukongs.live.arguments_input import ArgumentsInput
from wukongs.live.core import Core
from wukongs.live.firing import Firer, Firing, Picked
from wukongs.live.query_counts import QueryCounts
from wukongs.live.query_windows import QueryWindows, Reading
from wukongs.live.reading import terms_of
from wukongs.live.reporting import Reporter
from wukongs.live.stretch import Stretch
from wukongs.live.windows import firing_step
from wukongs.query.binding_table import BindingTable
from wukongs.query.execution.answer import Answer, answer, constructed, modified, within
from wukongs.query.execution.argument_rows import NUMBER, ArgumentRows
from wukongs.query.limits import Limits, limits_of, scheduled
from wukongs.query.mechanisms import Mechanism, Used
from wukongs.query.memory import Kind
from wukongs.query.paths.kept_paths import KeptPaths
from wukongs.query.plans.compiled import Columns, CompiledPatterns
from wukongs.query.plans.compiled_plans import CompiledPlans
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.programs.program import Program
from wukongs.query.terms.decoding import Utf8Reader
from wukongs.query.terms.query_terms import QueryTerms

ARGUMENTS_MAX = 1 << 10
"""Distinct rows of arguments for which a program answers a query: it explores from each of them. For more, the executor
may explore the windows alone, and look their rows up."""


class Asked(Protocol):
    """The rows of arguments for which a query is asked at once (QueryGroup)."""

    @property
    def arguments(self) -> ArgumentsInput: ...
    def found(self, answer: Answer, at_ms: int) -> Answer: ...


class Answering:
    """The answers of one text. group: the queries of a table, None for one query; is_joined: its rows are those of
    queries of one shape. Used by the thread that fires, but for what says otherwise."""

    def __init__(
        self,
        core: Core,
        name: str,
        query: Query,
        windows: QueryWindows,
        reporter: Reporter,
        counts: QueryCounts,
        group: Asked | None,
        *,
        is_joined: bool,
    ) -> None:
        self._core, self.name, self.query, self.windows, self.reporter = core, name, query, windows, reporter
        self._counts, self._group, self._is_joined = counts, group, is_joined
        self.plans = PlanMemo(is_patient=True)
        self.is_of_moment = depends_on_moment(query.pattern)
        """Whether its firings have other answers at other times, whatever they read."""
        self.compiled: CompiledPlans | None = None
        """Its plans over the engine's table of windows, if it needs no dataset; from the first firing on."""
        self.program: Program | None = None
        """Its program over that table; from the first firing on that kernels of patterns do not answer."""
        self.maintained: Maintained | None = None
        """Its rows that are changed from firing to firing."""
        self._paths: KeptPaths | None = None
        """Its paths that are kept from firing to firing, if some may be; from the first firing on."""
        self._step_ms = firing_step(query)
        self._company: Hashable = None
        self.algebra: object = None
        """It is equal for all queries that have the same answer when they read the same; None if there may be none.
        From the first firing on."""
        self._has_own_rows = query.form not in ("select", "ask") or reporter.is_compared
        """Whether rows are of this query alone: blank nodes that it makes, and what it compares. Then an answer without
        rows is all that it shares."""
        self._is_looked_at = False
        """Whether it was tried to compile it."""
        has_rows = group is None and query.form in ("select", "ask")
        self._is_own = has_rows and not (reporter.looks_at_contents or reporter.leaves_out)
        """Whether a firing is reported by itself, whatever others have found."""
        self._may_be_direct = self._is_own and not (self.is_of_moment or windows.is_filtered)
        self.is_direct = False
        """Whether the next firing can report the rows of its program as they are."""
        self.was_evaluated_whole = False
        """Whether the executor has evaluated the whole query for the last firing, or was about to, over the inputs of
        the firing alone."""
        self._used: Used = set()
        """The mechanisms that have taken part in the answer under way, but for those that its paths note."""

    def stats(self) -> dict[str, int]:
        """Return counts and sizes (bytes). From any thread."""
        return {
            "plans_made": self.plans.planned_count,
            **({} if self.maintained is None else self.maintained.stats()),
            **({} if self._paths is None else self._paths.stats()),
        }

    def lines(self) -> list[str]:
        """Return what is kept from firing to firing, for EXPLAIN. From any thread."""
        kept = [] if self.maintained is None else self.maintained.lines()
        return kept if self._paths is None else [*kept, *self._paths.told()]

    def company(self) -> Hashable:
        """Return what is equal for all queries that are run together when they are due at one time, None if this one
        runs alone. Called with the lock held."""
        if not self._is_looked_at:
            self._is_looked_at = True
            self.algebra = algebra_of(self.query)
            if self._group is not None and self.algebra is not None:
                self.algebra = self._group
            has_arguments = self._group is not None
            self.compiled = self.windows.compile(self.query, self.plans, has_arguments=has_arguments)
            if self.compiled is not None and not has_arguments:
                self.maintained = self.windows.maintained(self.query, self.compiled)
            if self._group is None and self.windows.may_keep_paths(self.query):
                self._paths = KeptPaths(self._core.windows.paths)
            if self.compiled is not None:
                self._company = digest(sorted(self.windows.states))  # they do not wait for the slices of other streams
        return self._company

    def forget(self) -> None:
        """Share no answer that was found before. Called with the engine's lock held."""
        if self.algebra is not None:
            self._core.answers.forget(self.algebra)

    def pick(self, query: Firer, at_ms: int, reading: Reading, picked: Picked, stretch: Stretch | None) -> Firing:
        """Return the firing of a query at a time, which is about to be run. Called with the engine's lock held.

        reading: what it reads; picked: with others of the moment; stretch: the firings that have its answer."""
        plans = self.compiled if reading.dataset is None and reading.error is None else None
        cached = None if reading.error is not None else self._cached(reading)
        is_repeated = cached is not None and self._is_repeated(cached)
        maintained = None if plans is None or is_repeated else self.maintained
        if maintained is not None:
            self.windows.stand(at_ms, maintained, is_partial=reading.partial, is_before=picked.is_before)
        elif is_repeated and self.maintained is not None:
            self.windows.keep_nothing(self.maintained)
        firing = Firing(query, at_ms, reading, picked.reader, plans, maintained, stretch)
        firing.cached, firing.is_repeated = cached, is_repeated
        if plans is not None and self._group is None:
            firing.program = self.program
        if self._paths is not None:
            is_known = not (is_repeated or reading.error is not None or reading.partial)
            firing.path_changes = self.windows.path_changes(at_ms, is_known and self._paths.is_wanted)
        return firing

    @property
    def may_be_offloaded(self) -> bool:
        """Whether firings depend on their inputs alone, and may run in the slow lane."""
        return self._is_own and self._paths is None

    def pick_offloaded(
        self, query: Firer, at_ms: int, reading: Reading, picked: Picked, stretch: Stretch | None
    ) -> Firing:
        """Return a firing for the slow lane: the executor evaluates it, and no rows are kept meanwhile.

        Called with the engine's lock held. Parameters are those of `pick`."""
        if self.maintained is not None:
            self.windows.keep_nothing(self.maintained)
        firing = Firing(query, at_ms, reading, picked.reader, None, None, stretch, is_offloaded=True)
        firing.cached = None if reading.error is not None else self._cached(reading)
        return firing

    def answer_offloaded(self, firing: Firing) -> tuple[tuple[Answer, Utf8Reader], Used]:
        """Return the answer of a firing in the slow lane, and the mechanisms as `answer` does. Called by its thread."""
        cached = firing.cached
        if cached is not None and cached.answered is not None:
            firing.is_repeated = True
            return cached.answered, {Mechanism.CACHED, Mechanism.SLOW_LANE}
        terms, limits = self._terms_of(firing), scheduled(self._limits())
        scope = self._scope(firing)
        found = answer(self.query, firing.dataset, terms, limits, self.plans, scope=scope, in_order=True)
        if cached is not None:
            self._keep(firing, cached, found, terms)
        self.plans.renew()
        return (found, terms), {Mechanism.EXECUTOR, Mechanism.SLOW_LANE}

    def pick_directly(self, versions: Hashable) -> tuple[CachedAnswer, Program | None]:
        """Return the answer of a direct firing, and the program that finds it; None as in QueryFirings.pick_directly.

        Called with the engine's lock held. versions: of the inputs that it reads."""
        cached = self._core.answers.get(self.algebra, versions)
        return cached, None if self._is_repeated(cached) else self.program

    def _cached(self, reading: Reading) -> CachedAnswer | None:
        """Return what is known of the answer over what a firing reads; None: it is of this firing alone."""
        versions = None if self.algebra is None else self.windows.versions(reading)
        if versions is None:
            return None
        return self._core.answers.get(
            self.algebra, versions if self._group is None else (versions, self._group.arguments.version)
        )

    def _is_repeated(self, cached: CachedAnswer) -> bool:
        """Return whether another firing has found an answer, or is about to. A query that keeps rows goes on from these
        instead, or the next firing would have to begin anew."""
        if cached.answered is None:
            is_another = cached.by not in (None, self.name)
            if not self._has_own_rows:
                cached.by = cached.by or self.name
                return is_another
            return False
        keeps_rows = self.maintained is not None and self.maintained.keeps_rows
        is_usable = not (self._has_own_rows and _has_rows(cached.answered[0]))
        return is_usable and not keeps_rows and not (self._paths is not None and self._paths.is_wanted)

    def answer(self, firing: Firing) -> tuple[tuple[Answer, Utf8Reader], Used]:
        """Return what a firing reports of its answer, and what reads its terms; and the mechanisms that have taken part
        in it. Raises what an execution raises."""
        used, paths = self._used, self._paths
        used.clear()
        if paths is None:
            return self._answer(firing), used
        paths.used.clear()
        return self._answer(firing), used | paths.used

    def _answer(self, firing: Firing) -> tuple[Answer, Utf8Reader]:
        """Return what the firing reports of its answer, and what reads its terms. Small windows take some microseconds,
        so nothing is looked at here that a firing by one kernel does not need."""
        self.is_direct = self.was_evaluated_whole = False
        if firing.is_repeated and (repeated := self._repeated(firing)) is not None:
            return repeated
        reporter, maintained = self.reporter, firing.maintained
        whole = None if firing.plans is None else firing.plans.whole
        is_compared, terms = reporter.is_compared, None
        if is_compared or (whole is None and firing.is_maintained):
            terms = self._terms_of(firing)
        kept: Sequence[Known] = ()
        if maintained is not None and firing.rows is not None:
            maintained.fall_behind()
        elif maintained is not None:
            goes_on = self._goes_on(firing)
            if terms is not None and whole is None:
                terms = maintained.renewed(terms)
            known_terms = None if whole is not None else terms
            kept = maintained.advance(known_terms, self._limits, wants_change=goes_on)
            if self._paths is not None and any(Mechanism.SEARCHED in one.used for one in kept):
                self._paths.rest()
            if goes_on and terms is not None and (found := self._changed(firing, maintained, kept, terms)):
                return found, terms
        found = None
        if not kept:
            found, terms = self._programmed(firing, terms)
        elif whole is not None:
            found = self._known(whole, kept[0])
        if found is not None and not is_compared:
            reader = firing.reader if terms is None else terms
            if firing.cached is not None:
                self._keep(firing, firing.cached, found, reader)
            return found, reader
        terms = terms or self._terms_of(firing)
        if found is None:
            found = self._evaluated(firing, terms, kept)
        if firing.cached is not None:
            self._keep(firing, firing.cached, found, terms)
        return self._compared(firing, found, terms), terms

    def _terms_of(self, firing: Firing) -> QueryTerms:
        return terms_of(self._core, firing.reader, firing.moment())

    def _program_of(self, firing: Firing, rows: ArgumentRows | None) -> Program | None:
        """Return the program that may answer a firing. rows: of its arguments."""
        if firing.plans is None:
            return None
        if rows is None:
            query, arguments = self.query, tuple[Variable, ...]()
        else:
            query, arguments = rows.bound.query, rows.bound.arguments
        if self.program is None or self.program.query is not query:
            self.program = self.windows.program(query, firing.plans, self.plans, arguments, self._paths)
        is_usable = self.program is not None and not self.program.is_refused
        return self.program if is_usable and (rows is None or len(rows.table) <= ARGUMENTS_MAX) else None

    def _programmed(self, firing: Firing, terms: QueryTerms | None) -> tuple[Answer | None, QueryTerms | None]:
        """Return the answer of a program, None if the executor has to evaluate the query; and the terms of the
        firing, if there are any."""
        rows = None if self._group is None else self._group.arguments.rows
        program, ran = firing.program, None
        if program is not None and firing.rows is not None:
            ran = program.result(firing.rows, lambda: terms or self._terms_of(firing))
            self._counts.explored_together += 1
            self._used.add(Mechanism.TOGETHER)
        elif (program := self._program_of(firing, rows)) is not None:
            table = None if rows is None else rows.table
            if self._paths is not None:
                self._paths.changes = firing.path_changes
            with suppress(MemoryError):  # the executor says it by name, if it meets it again
                ran = program.run(firing.reader, lambda: terms or self._terms_of(firing), self._limits, table)
        if program is None or ran is None:
            return None, terms
        self._used |= {Mechanism.PROGRAM, Mechanism.HOSTED} if program.has_hosted else {Mechanism.PROGRAM}
        if self.maintained is not None:
            self.maintained.estimate(program.estimated_rows)
        if rows is not None:
            self._used |= {Mechanism.JOINED} if self._is_joined else set()
            variables = NUMBER, *map(Variable, self.query.variables)
            return rows.expanded(BindingTable(variables, ran.columns, ran.count)), ran.terms or terms
        if self.query.form == "construct":
            terms = ran.terms or terms or self._terms_of(firing)
            return self._constructed(firing, BindingTable(program.variables, ran.columns, ran.count), terms), terms
        self.is_direct = program.ready_version >= 0 and self._can_be_direct(firing)
        return answer_of(self.query, ran.columns, ran.count), ran.terms or terms

    def _can_be_direct(self, firing: Firing) -> bool:
        """Return whether the firing after this one can be direct."""
        is_at_rest = self.maintained is None or self.maintained.is_at_rest
        return self._may_be_direct and self._paths is None and is_at_rest and firing.cached is not None

    def _scope(self, firing: Firing) -> str:
        """Return what names the blank nodes that a firing makes."""
        return self.name if self.reporter.is_compared else f"{self.name}@{firing.at_ms}"

    def _constructed(self, firing: Firing, table: BindingTable, terms: QueryTerms) -> Answer:
        with within(self._limits()):
            own, is_compared = self._scope(firing), self.reporter.is_compared
            return constructed(self.query.template, table, terms, own, in_order=True, by_solution=is_compared)

    def _compared(self, firing: Firing, found: Answer, terms: QueryTerms) -> Answer:
        """Return what the firing reports of its answer."""
        if self._group is not None and self.reporter.is_compared:
            found = self._group.found(found, firing.last_ms)
        with self._limits():
            return self.reporter.compare(firing.last_ms, firing.reading.extents, found, terms)

    def _repeated(self, firing: Firing) -> tuple[Answer, Utf8Reader] | None:
        """Return what a repeated firing reports; None if its answer is to be found even so."""
        cached = firing.cached
        if cached is None or cached.answered is None or not self._is_for_rows(cached):
            return None
        self._counts.explored_together += cached.by != self.name
        self._used.add(Mechanism.CACHED)
        if (cached.is_direct or cached.by == self.name) and self._can_be_direct(firing):
            self.is_direct = self._program_of(firing, None) is not None
        found, reader = cached.answered
        if not _has_rows(found):
            reader = firing.reader
        if self.reporter.is_compared:
            terms = self._terms_of(firing)
            return self._compared(firing, found, terms), terms
        return found, reader

    def _keep(self, firing: Firing, cached: CachedAnswer, found: Answer, reader: Utf8Reader) -> None:
        """Note the answer of a firing for others."""
        if (self._group is None or self._is_for_rows(cached)) and not (self._has_own_rows and _has_rows(found)):
            cached.by, cached.is_direct = self.name, self.is_direct
            self._core.answers.keep(cached, found, reader)

    def _is_for_rows(self, cached: CachedAnswer) -> bool:
        """Return whether an answer is for the rows of arguments as they are now."""
        if self._group is None:
            return True
        assert isinstance(cached.versions, tuple), self.name
        return bool(cached.versions[-1] == self._group.arguments.version)

    def _goes_on(self, firing: Firing) -> bool:
        """Tell whether the change since the firing before is all that ISTREAM or DSTREAM needs."""
        return self._step_ms is not None and self.reporter.follows(firing.at_ms - self._step_ms)

    def _changed(
        self, firing: Firing, maintained: Maintained, kept: Sequence[Known], terms: QueryTerms
    ) -> Answer | None:
        """Return what ISTREAM or DSTREAM reports by the change alone; None if the whole answer is needed."""
        with within(self._limits()):
            change = maintained.change(kept, terms)
            if change is None:
                return None
            names = tuple(map(Variable, self.query.variables))
            inserted, deleted = (Answer(rows.columns_of(names), rows.length) for rows in change)
            self._used |= {*kept[0].used, Mechanism.CHANGES}
            return self.reporter.go_on(firing.last_ms, firing.reading.extents, inserted, deleted, terms)

    def _known(self, whole: CompiledPatterns, kept: Known) -> Answer:
        """Return the answer of a query of patterns, all of whose rows are maintained. Raises as Limits.check."""
        assert self.compiled is not None, self.name
        columns = kept.table.columns_of(whole.variables)
        modifiers = self.compiled.modifiers[self.compiled.is_distinct :]
        self._used |= kept.used
        return modified(columns, modifiers, self._limits()) if modifiers else Answer(columns, len(columns[0]))

    def _limits(self) -> Limits:
        return limits_of(self._core.settings, None, kind=Kind.FIRING)

    def _evaluated(self, firing: Firing, terms: QueryTerms, kept: Sequence[Known]) -> Answer:
        """Evaluate the query by the executor. kept: the rows of parts that are maintained."""
        dataset = firing.dataset
        self._used.add(Mechanism.EXECUTOR)
        if self._group is not None:
            self._used |= {Mechanism.JOINED} if self._is_joined else set()
            return self._group.arguments.rows.answer(dataset, terms, self._limits(), self.plans, self._used)
        if self._paths is not None:
            self._paths.changes = firing.path_changes
        self._used |= set[Mechanism]().union(*(one.used for one in kept))
        self.was_evaluated_whole = not kept and self.may_be_offloaded
        found = answer(
            self.query,
            dataset,
            terms,
            self._limits(),
            self.plans,
            scope=self._scope(firing),
            in_order=True,
            by_solution=self.reporter.is_compared,
            explored=[(one.node, one.table) for one in kept if one.node is not None],
            paths=self._paths,
        )
        if self.maintained is not None and firing.plans is not None:
            self.maintained.estimate()
        return found


def answer_of(query: Query, columns: Columns, count: int) -> Answer:
    """Return the answer of a SELECT or ASK for which a program has found this number of rows."""
    return Answer((), 0, count > 0) if query.form == "ask" else Answer(columns, count)


def _has_rows(found: Answer) -> bool:
    return bool(found.length or found.boolean)
