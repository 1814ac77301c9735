"""StoredReads answers one-shot queries by programs, over the stored graph as it is now.

The stored graph is the only window of a table of its own (EngineWindows.now), which is written once for each snapshot.
So such a query makes no dataset, opens no handle and runs no executor: it resolves the given terms, runs its program
(query/programs) and decodes what comes out.

All of it is done with the engine's lock held, so only short programs are run here. Longer ones, and queries without a
program, go the usual way (reading.py: ask, prepared_query.py: ask_rows).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from wukongs.csparql.algebra import Query
from wukongs.csparql.terms import Term, Variable
from wukongs.live.core import Core
from wukongs.live.prepared_query import encoded_rows
from wukongs.live.reading import terms_of
from wukongs.query.binding_table import BindingTable
from wukongs.query.execution.answer import constructed, within
from wukongs.query.execution.argument_rows import NUMBER, ArgumentRows
from wukongs.query.execution.prepared import BoundPlans
from wukongs.query.limits import Limits
from wukongs.query.output.results import Result
from wukongs.query.plans.compiled import Workspace
from wukongs.query.plans.compiled_plans import CompiledPlans
from wukongs.query.programs.arena import Arena
from wukongs.query.programs.program import SHORT, Program, ProgramResult
from wukongs.query.spill_files import bytes_in_memory
from wukongs.store.dtypes import NO_MATCH, Int64Array
from wukongs.store.encoded import Encoded
from wukongs.store.term_registry import TermReader

if TYPE_CHECKING:
    import pyarrow

ARENA_CELLS = 1 << 15
"""A program whose tables have more cells, by its estimates or in truth, is not run with the lock held."""
ROWS_MAX = 1 << 8
"""Rows of terms for which a program answers: it explores from each of them. The executor does more rows quicker."""
PLANNED_FACTOR = 8
"""A program is made anew for so many times as many rows as it was made for; it does for fewer."""


class StoredReads:
    """Called with the core's lock held but for `answer_many`, of a core that holds the graph whole."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._workspace, self._arena = Workspace(), Arena(ARENA_CELLS)
        settings = core.settings
        self._is_bounded = settings.query_bytes_max < 8 * ARENA_CELLS or settings.rows_max < ARENA_CELLS
        """Limits are below what a program may take, since it does not check them."""

    def answer(self, plans: BoundPlans, texts: Sequence[str], text: str, limits: Callable[[], Limits]) -> Result | None:
        """Answer a query for one row of terms, None if it has to go the usual way: also when a query without terms is
        asked for the first time, since it may never be asked again. texts: canonical; text: of the query; limits: of
        this call, made when they are needed.

        Raises WukongsError (the engine is closed, or has failed), QueryTimeout."""
        core, read = self._core, plans.compiled
        if not (plans.is_asked or texts):
            plans.is_asked = True
            return None
        if not isinstance(read, _Read):
            read = plans.compiled = self._read(plans)
        if not self._is_ready(read):
            return None
        ids = [core.registry.resolve(text) for text in texts]
        # To the kernel this is no term but a free place. The usual way gives such a term an id of its own.
        reader = core.registry.snapshot_reader()
        ran = None if NO_MATCH in ids else read.run(core, reader, texts, ids, limits)
        if ran is None:
            return None
        core.query_count += 1  # it names blank nodes
        query, boolean = plans.bound.query, None
        if query.form == "ask":
            boolean, ran = ran.count > 0, ProgramResult((), 0, ran.terms)
        elif query.form == "construct":
            assert read.program is not None, text
            ran = self._constructed(query, read.program, ran, reader, limits())
        return Result(
            query.form, query.variables, ran.columns, ran.terms or reader, core.sn, boolean, ran.count, text=text
        )

    def answer_many(self, plans: BoundPlans, table: pyarrow.Table, limits: Callable[[], Limits]) -> Result | None:
        """Answer a SELECT for each row of a table of terms: the number of the row, then the columns of the query; None
        if it has to go the usual way. Called without the lock. Raises as answer, and BudgetExceeded."""
        core, read = self._core, plans.compiled_many
        if isinstance(read, _Read) and (read.program is None or read.program.is_refused):
            return None
        columns = encoded_rows(table, core.registry.hash_bits)
        if columns is None:
            return None
        with core.lock:
            found = self._find_many(plans, columns, limits)
        return None if found is None else found.result(limits())

    def _find_many(
        self, plans: BoundPlans, columns: Sequence[Encoded], limits: Callable[[], Limits]
    ) -> _ManyAnswers | None:
        """Return the answers for the distinct rows. columns: the terms of each variable, as objects."""
        core, read, count = self._core, plans.compiled_many, len(columns[0].objects)
        if not isinstance(read, _Read):
            read = plans.compiled_many = self._read(plans)
        if not self._is_ready(read):
            return None
        reader = core.registry.snapshot_reader()
        if any(len(one.clashes) or not reader.has(one.terms).all() for one in columns):
            return None  # a term that no triple has
        rows = ArgumentRows(plans.bound, [one.objects for one in columns], count)
        ran = read.run_rows(core, reader, rows.table, limits)
        if ran is None:
            return None
        core.query_count += 1
        return _ManyAnswers(rows, ran, reader, core.sn)

    def _is_ready(self, read: _Read) -> bool:
        """Have the stored graph written as it is now; return whether there is a program that may run over it."""
        if read.program is None or read.program.is_refused:
            return False
        self._core.check_is_open()
        self._core.finish_tick()
        self._core.windows.write_now()
        return True

    def _constructed(
        self, query: Query, program: Program, ran: ProgramResult, reader: TermReader, limits: Limits
    ) -> ProgramResult:
        """Return the triples of a CONSTRUCT."""
        terms, variables = ran.terms or terms_of(self._core, reader), program.variables
        if program.arguments:
            variables = variables[1:]
        table = BindingTable(variables, ran.columns, ran.count)
        with within(limits):
            found = constructed(query.template, table, terms, f"query {self._core.query_count}")
        return ProgramResult(found.columns, found.length, terms)

    def _read(self, plans: BoundPlans) -> _Read:
        core, query, clause = self._core, plans.bound.query, plans.bound.query.dataset
        read = _Read()
        is_named = bool(clause.named_graphs) or clause.only is not None
        if not (self._is_bounded or is_named) and CompiledPlans.is_for(query):

            def resolve(term: Term) -> int:
                reserved = core.reserved.get(term)
                if reserved is not None:
                    return reserved
                found = core.registry.resolve(term.text)
                if core.registry.settled(term.text) is None:
                    read.unsettled[term.text] = found
                return found

            memory, arguments = (self._workspace, self._arena), plans.bound.arguments
            given = query, core.windows.now, resolve, plans.memo
            read.program = Program(*given, *memory, core.registry, arguments, SHORT)
            read.row = np.zeros((1, len(arguments)), np.int64)
        return read


@dataclass(frozen=True, slots=True)
class _ManyAnswers:
    """The answers of a program for the distinct ones of many rows of terms. sn: the snapshot that it has read."""

    rows: ArgumentRows
    ran: ProgramResult
    reader: TermReader
    sn: int

    def result(self, limits: Limits) -> Result:
        """Return the answers for all rows: the number of the row, then the columns of the query. Called without the
        lock. Raises BudgetExceeded."""
        with limits:
            variables = NUMBER, *map(Variable, self.rows.bound.query.variables)
            table = BindingTable(variables, self.ran.columns, self.ran.count)
            limits.hold(self.rows.count_expanded(table) * 8 * (2 + len(variables)))
            found = self.rows.expanded(table)
            terms = self.ran.terms or self.reader
            result = Result("select", self.rows.variables, found.columns, terms, self.sn, None, found.length)
            result.reservation = limits.hand_over(lambda: bytes_in_memory(found.columns))
        return result


@dataclass(slots=True)
class _Read:
    """A query for rows of terms. program: None if it has none; unsettled: constants with the ids for which the program
    is, which may get others; planned: the rows for which it is, if there may be many."""

    program: Program | None = None
    unsettled: dict[str, int] = field(default_factory=dict)
    row: Int64Array = field(default_factory=lambda: np.zeros((1, 0), np.int64))
    """int64[1, 1 + terms]: 0, and the terms of the call."""
    planned: int = 0

    def run_rows(
        self,
        core: Core,
        reader: TermReader,
        rows: Int64Array | None,
        limits: Callable[[], Limits],
        *,
        may_evaluate: bool = True,
    ) -> ProgramResult | None:
        """Return the rows for some rows of terms; None if they have to be found in another way. Parameters are those of
        Program.run."""
        program, registry = self.program, core.registry
        assert program is not None
        if self.unsettled and any(registry.resolve(text) != known for text, known in self.unsettled.items()):
            self.unsettled.clear()
            program.forget()
        if rows is not None and len(rows) > PLANNED_FACTOR * self.planned:
            self.planned = len(rows)
            program.forget()
        return program.run(reader, lambda: terms_of(core, reader), limits, rows, may_evaluate=may_evaluate)

    def run(
        self, core: Core, reader: TermReader, texts: Sequence[str], ids: Sequence[int], limits: Callable[[], Limits]
    ) -> ProgramResult | None:
        """Return the rows for one row of terms; None if they have to be found in another way."""
        # Nothing can read the text of a term that no triple has.
        unread = [term for text, term in zip(texts, ids, strict=True) if core.registry.settled(text) is None]
        for at, term in enumerate(ids, 1):
            self.row[0, at] = term
        ran = self.run_rows(core, reader, self.row if ids else None, limits, may_evaluate=not unread)
        if ran is not None and ids:
            ran.columns = ran.columns[1:]
        if unread and ran is not None and any((column == term).any() for term in unread for column in ran.columns):
            return None
        return ran
