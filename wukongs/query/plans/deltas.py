"""Deltas: the matches of a registered query, kept from firing to firing (docs/decisions/0043-deltas.md).

A window that moves on by a step keeps most of what it holds. So the matches of a query's triple patterns are held, and
a firing only looks for new ones: for each pattern over a window, a plan explores from the tuples that have come since
the firing before, with all other patterns as they stand. A match that a plan finds is new unless all its tuples were
there before, or the plan of an earlier pattern finds it, too. It ends when a window leaves the last tuple behind that
one of its patterns needs; Membership tells when that is. If the tuple has come again by then, the match is kept.

A pattern may be matched in stored graphs, too, or in these alone. All that has come there since the firing before
is one more place to explore from, and a tuple that is stored never ends.

The query is evaluated anew when that does not suffice: at the first firing, after one that was left out or has failed,
when triples that a pattern may match were deleted from the stored graph, when a window has lost slices. Then the
matches are held from there on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from wukongs.csparql.algebra import DatasetClause, GraphRef, StreamWindow, TriplePattern
from wukongs.csparql.plan import FilteredBgp
from wukongs.csparql.terms import Term, Variable, iri
from wukongs.query.limits import Limits
from wukongs.query.mechanisms import Mechanism
from wukongs.query.plans import plan_layout as layout
from wukongs.query.plans.compiled import OUT_CELLS, Columns, CompiledPatterns, Windows, Workspace
from wukongs.query.plans.dataset import Dataset, Resolve
from wukongs.query.plans.delta_kernels import NO_PLAN, drop_ended, go_on, keep
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.plans.window_changes import Derive, Moves, WindowChanges
from wukongs.store.batch_set import EMPTY
from wukongs.store.dtypes import WINDOW_GRAPH, Int64Array
from wukongs.store.membership import Membership

Kind = tuple[int | None, int]
"""The id of a predicate, None: any, and that of a graph."""
ROWS_MIN = 1000.0
"""A query is evaluated anew if its plan is estimated to make fewer rows, all steps together."""
HELD_MIN = 64


@dataclass(frozen=True, slots=True)
class Member:
    """A pattern in one of the places in which it is matched. number: of the pattern; predicate: the id of its
    predicate; window: None in a stored graph; graph: that; is_sure: the pattern is matched nowhere else."""

    number: int
    pattern: TriplePattern
    predicate: int
    window: StreamWindow | None
    graph: int
    is_sure: bool


@dataclass(frozen=True, slots=True)
class DeltaClause:
    """The way in which deltas go over a query's windows. members: by the numbers of their patterns; plans: for each
    pattern, its number and the patterns with this one over what is new; clause: the query's, and `new`, the windows of
    what is new; since: what is new in stored graphs, as windows, and the graph of each; stored: the ids of the
    predicates (None: any) and graphs that are read of the stored graph."""

    members: tuple[Member, ...]
    plans: tuple[tuple[int, FilteredBgp], ...]
    clause: DatasetClause
    new: tuple[StreamWindow, ...]
    since: dict[StreamWindow, int]
    stored: tuple[Kind, ...]

    @staticmethod
    def of(clause: DatasetClause, wanted: FilteredBgp, step_ms: int, resolve: Resolve) -> DeltaClause | None:
        """None: the query is evaluated anew at each firing. step_ms: how often it fires."""
        if any(window.is_counted or step_ms % window.step_ms for window in clause.windows):
            return None
        if max(window.range_ms for window in clause.windows) < 2 * step_ms:
            return None
        sets = {window: replace(EMPTY) for window in clause.windows}  # so that parts tell of which window they are
        dataset = Dataset(clause, replace(EMPTY), sets, resolve)
        members, plans, stored = list[Member](), list[tuple[int, FilteredBgp]](), list[Kind]()
        names: dict[GraphRef, str] = {}
        new: dict[GraphRef, tuple[StreamWindow, ...]] = {}
        since: dict[StreamWindow, int] = {}
        patterns = wanted.bgp.patterns
        for number, pattern in enumerate(patterns):
            graph, predicate = pattern.graph, None
            if isinstance(graph, Variable):
                return None
            if isinstance(pattern.predicate, Term):
                predicate = resolve(pattern.predicate)
            parts = dataset.source(graph).parts
            windows = [window for window, batches in sets.items() if any(part.batches is batches for part in parts)]
            graphs = [part.graph for part in parts if part.batches is dataset.stored]
            stored += [(predicate, one) for one in graphs]
            if predicate is None:
                if windows:
                    return None
                continue
            places = [*((window, WINDOW_GRAPH) for window in windows), *((None, one) for one in graphs)]
            members += [Member(number, pattern, predicate, *place, len(parts) == 1) for place in places]
            name = names.setdefault(graph, f"new {len(names)}")  # no IRI has a space
            if graph not in new:
                new[graph] = tuple(_new_of(window, step_ms, name) for window in windows)
                since |= {
                    StreamWindow(f"{name} in {one}", step_ms, step_ms, True, own_name=name): one for one in graphs
                }
            changed = replace(pattern, graph=iri(name))
            over_new = (*patterns[:number], changed, *patterns[number + 1 :])
            plans.append((number, replace(wanted, bgp=replace(wanted.bgp, patterns=over_new))))
        if all(member.window is None for member in members):
            return None
        all_new = tuple(window for found in new.values() for window in found)
        clause = replace(clause, windows=(*clause.windows, *all_new, *since))
        return DeltaClause(tuple(members), tuple(plans), clause, all_new, since, tuple(stored))

    @property
    def over_stored(self) -> list[int]:
        """The numbers of the patterns that are matched in stored graphs alone."""
        in_windows = {member.number for member in self.members if member.window is not None}
        return [number for number, _ in self.plans if number not in in_windows]


def _new_of(window: StreamWindow, step_ms: int, name: str) -> StreamWindow:
    """Return the window of what has come into a window with a step."""
    range_ms = min(step_ms, window.range_ms)
    return replace(window, range_ms=range_ms, step_ms=step_ms, named=True, own_name=name)


def is_worth_it(estimated_rows: float) -> bool:
    """Tell whether evaluating patterns anew takes long. estimated_rows: of all steps of their plan."""
    return estimated_rows >= ROWS_MIN


class Deltas(WindowChanges):
    """whole: the query, evaluated anew."""

    mechanism = Mechanism.BINDINGS

    def __init__(
        self,
        found: DeltaClause,
        whole: CompiledPatterns,
        windows: Windows,
        tables: Mapping[Member, Membership],
        batch_ms: Mapping[str, int],
        step_ms: int,
        workspace: Workspace,
        derived: int = 0,
    ) -> None:
        """windows: those of the clause of `found`; tables: what knows the tuples of each member; batch_ms: of each
        stream; step_ms: how often the query fires; derived: how many columns are held beside those of the patterns'
        variables."""
        known = [(tables[one], batch_ms[one.window.stream]) for one in found.members if one.window is not None]
        super().__init__(whole, known, step_ms, derived)
        variables = self.variables
        self._plans = [
            (number, self._compiled(found.clause, wanted, windows, workspace)) for number, wanted in found.plans
        ]
        self._anew = whole
        """The query that finds all matches."""
        if whole.wanted.filters:
            self._anew = self._compiled(whole.clause, whole.wanted, whole.windows, workspace)
        rows = [_row(member, variables, whole.resolve) for member in found.members]
        self._members: Int64Array = np.array(rows, np.int64).reshape(-1, layout.MEMBER_WIDTH)
        since = next((windows.numbers[window] for window in found.since), -1)
        for row, member in zip(self._members, found.members, strict=True):
            if member.window is not None:
                row[layout.MEMBER_HEAD], row[layout.MEMBER_RANGE_MS] = tables[member].address, member.window.range_ms
                row[layout.MEMBER_BATCH_MS] = batch_ms[member.window.stream]
            else:
                row[layout.MEMBER_WINDOWS] = windows.table.address
                row[layout.MEMBER_STORED], row[layout.MEMBER_SINCE] = windows.stored, since
        self._numbers: Int64Array = np.array([number for number, _ in self._plans], np.int64)
        self._calls: Int64Array = np.zeros((len(self._plans), layout.CALL_WIDTH), np.int64)
        self._columns_of: Int64Array = np.zeros((len(self._plans), len(variables)), np.int64)
        self._as_they_are: Int64Array = np.arange(self._width)
        self._version = -1
        """That of the table of windows for which the calls are."""
        self._held: Int64Array = np.empty((HELD_MIN, self._width), np.int64)
        self._ends: Int64Array = np.empty(HELD_MIN, np.int64)
        self._over_stored = frozenset(found.over_stored)
        self._comes = False
        """Whether something has come that the query reads of the stored graph."""

    @property
    def kept_count(self) -> int:
        return self.count

    @property
    def kept_bytes(self) -> int:
        return self._held.nbytes + self._ends.nbytes

    def stand(self, at_ms: int, *, is_known: bool, goes_on: bool, comes: bool) -> None:
        super().stand(at_ms, is_known=is_known, goes_on=goes_on, comes=comes)
        self._members[:, layout.MEMBER_COMES], self._members[:, layout.MEMBER_AT_MS] = comes, at_ms
        if comes != self._comes:
            self._comes, self._version = comes, -1

    def forget(self) -> None:
        super().forget()
        self._make_room(0)

    def columns(self, places: Sequence[int]) -> Columns:
        return tuple([self._held[: self.count, column].copy() for column in places])

    def all_rows(self) -> Moves:
        return Moves(self._held[: self.count], self._held[:0], is_anew=True, number=self._move_count)

    def _begin(self, limits: Callable[[], Limits], derive: Derive | None) -> Moves | None:
        found = self._anew.bindings(self.variables, limits)
        if found is None:
            return None
        self.count = 0
        if len(found[0]):
            rows = np.stack(found, axis=1)
            self._keep(rows if derive is None else derive(rows), NO_PLAN, 0)
        return self.all_rows()

    def _go_on(self, limits: Callable[[], Limits], before_ms: int, derive: Derive | None) -> Moves | None:
        before = self.count
        if not self._find(limits, before_ms):
            return None
        if derive is not None:
            self._derive(before, derive)
        inserted, held = self._held[before : self.count].copy(), self.count
        self.count = drop_ended(self._members, self._held, self._ends, held, self._at_ms)
        return Moves(inserted, self._held[self.count : held], is_anew=False, number=self._move_count)

    def _find(self, limits: Callable[[], Limits], before_ms: int) -> bool:
        """Keep what the delta plans find, by as few calls as can be; tell whether kernels could."""
        if self._version != self._whole.windows.table.version and not self._renew():
            return False
        calls, done = self._calls, 0
        while done < len(calls):
            done, self.count = go_on(
                *(calls, self._numbers, self._columns_of, done, self._members, before_ms),
                *(self._held, self._ends, self.count),
            )
            if done < len(calls):  # it has found very much, or there is no room
                number, plan = self._plans[done]
                found = plan.bindings(plan.variables, limits)
                if found is None:
                    return False
                if len(found[0]):
                    self._keep(np.stack(found, axis=1), number, before_ms)
                done += 1
        return True

    def _derive(self, first: int, derive: Derive) -> None:
        """Hold what is derived of the matches from `first` on in their place."""
        if first != self.count:
            matches, self.count = self._held[first : self.count, : len(self.variables)].copy(), first
            self._keep(derive(matches), NO_PLAN, 0)

    def _compiled(
        self, clause: DatasetClause, wanted: FilteredBgp, windows: Windows, workspace: Workspace
    ) -> CompiledPatterns:
        """Return a plan for all variables. A filter between its steps would cut it in two, and kernels could not run
        it."""
        resolve, memo = self._whole.resolve, PlanMemo()
        return CompiledPatterns(clause, self.variables, wanted, windows, resolve, memo, workspace, filters_last=True)

    def _renew(self) -> bool:
        """Write down the calls of the delta plans for the sizes of now. Return whether kernels can run all of them.

        A call of zeros finds nothing. It is right only for a plan that has no match, so the calls count for this
        version of the table only if all of them are right."""
        self._version = -1
        are_current = [plan.is_current() for _, plan in self._plans]
        if not all(plan.steps is not None or plan.is_void for _, plan in self._plans):
            return False
        for call, columns, (number, plan) in zip(self._calls, self._columns_of, self._plans, strict=True):
            call[:] = 0
            if plan.steps is not None and (self._comes or number not in self._over_stored):
                call[:], columns[:] = plan.steps.call, list(map(plan.steps.plan.variables.index, plan.variables))
                call[layout.CALL_ROOM] = OUT_CELLS // plan.steps.width
        if all(are_current):
            self._version = self._whole.windows.table.version
        return True

    def _keep(self, rows: Int64Array, plan: int, before_ms: int) -> None:
        self._make_room(len(rows))
        columns = self._as_they_are[: rows.shape[1]]
        self.count = keep(self._members, rows, columns, plan, before_ms, self._held, self._ends, self.count)

    def _make_room(self, count: int) -> None:
        """Have room for so many more matches, and not for very many more."""
        wanted = max(HELD_MIN, self.count + count + 1)
        if wanted > len(self._held) or 8 * wanted < len(self._held):
            room = 1 << (wanted - 1).bit_length()
            held, ends = np.empty((room, self._held.shape[1]), np.int64), np.empty(room, np.int64)
            held[: self.count], ends[: self.count] = self._held[: self.count], self._ends[: self.count]
            self._held, self._ends = held, ends


def _row(member: Member, variables: Sequence[Variable], resolve: Resolve) -> Int64Array:
    row: Int64Array = np.zeros(layout.MEMBER_WIDTH, np.int64)
    row[layout.MEMBER_PATTERN] = member.number
    ends = (
        (member.pattern.subject, layout.MEMBER_SUBJECT_COLUMN, layout.MEMBER_SUBJECT),
        (member.pattern.object, layout.MEMBER_OBJECT_COLUMN, layout.MEMBER_OBJECT),
    )
    for end, column, constant in ends:
        if isinstance(end, Variable):
            row[column] = variables.index(end)
        else:
            row[column], row[constant] = -1, resolve(end)
    row[layout.MEMBER_PREDICATE], row[layout.MEMBER_GRAPH] = member.predicate, member.graph
    row[layout.MEMBER_IS_SURE] = member.is_sure
    return row
