"""Program: a query that kernels answer over the engine's table of windows, whatever operators it has.

Beside triple patterns and above them: OPTIONAL, UNION, EXISTS, MINUS, conditions, computed values, groups, DISTINCT,
ORDER BY, LIMIT. A call makes the columns of the result from the windows; `run_together` has one call for many programs.
Expressions over texts are cached by term ids (memo.py). Python evaluates operators of which kernels are not capable
between two calls. If the arena is too small for a window, the executor evaluates the query.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from wukongs.csparql.algebra import Query
from wukongs.csparql.functions import PER_ROW, calls_within
from wukongs.csparql.plan import FilteredBgp
from wukongs.csparql.terms import Variable
from wukongs.errors import BudgetExceeded
from wukongs.query.binding_table import BindingTable
from wukongs.query.execution.answer import within
from wukongs.query.execution.executor import Executor
from wukongs.query.limits import Limits
from wukongs.query.paths.kept_paths import KeptPaths
from wukongs.query.plans.compiled import Columns, Windows, Workspace
from wukongs.query.plans.dataset import Resolve
from wukongs.query.plans.plan_layout import DONE
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.programs import program_layout as layout
from wukongs.query.programs.arena import Arena
from wukongs.query.programs.compile import Compiler
from wukongs.query.programs.hosting import Hosting
from wukongs.query.programs.memo import SLOTS_MAX, Memo
from wukongs.query.programs.operations import Code, Memos, NotCompiled, Relation
from wukongs.query.programs.program_kernels import run_programs
from wukongs.query.programs.text_kernels import texts_size
from wukongs.query.refusals import REFUSED, Refusals
from wukongs.query.terms.query_terms import QueryTerms
from wukongs.store.dtypes import UNBOUND, Int64Array
from wukongs.store.jit import wrapping
from wukongs.store.term_ids import HASH_BITS, is_inlined
from wukongs.store.term_registry import TermReader, TermRegistry

STOPS_MAX = 64
"""Most stops of one run: for keys that memos lack, and for operations that Python evaluates."""
TOGETHER_S = 1e-4
"""A program that takes longer is not run with others: their windows would wait for it."""
OTHERS = 2
"""Executions that are left after a failure with arguments: others may need less."""


class Bounds(NamedTuple):
    """The bounds of a program: what it may keep from run to run, and do in one."""

    slots: int = SLOTS_MAX
    """Slots of each memo."""
    computed: int = 1 << 14
    """Computed terms; beyond it all are dropped, with the memos."""
    computed_size: int = 1 << 22
    """Characters of their texts; beyond it they are dropped, too."""
    missed: int = 1 << 62
    """Rows that Python evaluates in a run: keys that memos lack, and operands."""
    missed_size: int = 1 << 62
    """Bytes of their texts, and characters of what is computed."""


SHORT = Bounds(1 << 11, 1 << 10, 1 << 16, 1 << 9, 1 << 14)
"""Bounds of a program that runs with a lock held: one of many, with terms that seldom come again."""


@dataclass(slots=True, eq=False, repr=False)
class Program:
    """The program of one query. One thread at a time may run it, while the table of windows is unchanged."""

    query: Query
    windows: Windows
    resolve: Resolve
    plans: PlanMemo
    workspace: Workspace
    arena: Arena
    registry: TermRegistry
    arguments: tuple[Variable, ...] = ()
    """The columns of rows of arguments, for each of which the query is answered: the first is their number, from 0."""
    bounds: Bounds = Bounds()  # noqa: RUF009
    may_host: bool = False
    """Whether the executor may evaluate parts of the query."""
    paths: KeptPaths | None = None
    """The paths that are kept from run to run."""
    has_hosted: bool = False
    """Whether the executor has evaluated a part in the last run."""
    is_refused: bool = False
    """Whether the query has a part without an operation."""
    _code: Code | None = None
    """The operations for the current sizes; None before the first run."""
    _block: Int64Array = field(init=False)
    address: Int64Array = field(default_factory=lambda: np.zeros(1, np.int64))
    """int64[1]: the address of the block."""
    _ran: Int64Array = field(default_factory=lambda: np.zeros((1, layout.FOUND_WIDTH), np.int64))
    """The status and result of a run, as the kernel writes them."""
    ready_version: int = -1
    """The version of the table of windows for which `run_together` may run the block as it is; -1: `run` has something
    to do before, or it takes long, or has never run."""
    _result: Relation = field(init=False)
    shown: Int64Array | None = None
    """The columns of the result that are shown, None for all of them."""
    _memos: Memos = field(init=False)
    _wanted: dict[tuple[int, ...], FilteredBgp] = field(default_factory=dict)
    _terms: QueryTerms | None = None
    """The terms of the last run with a memo miss; they include all computed terms."""
    _version: int = -1
    """The version of the table of windows that the operations are for; -1: to be checked."""
    _rows: Int64Array | None = None
    """The rows of arguments whose address the block has."""
    _has_values: bool = False
    """Whether the operations have the ids of VALUES."""
    _is_moved: bool = False
    """Whether a memo may lie elsewhere than the operations have it; also after an error in between."""
    _changes: list[int] = field(default_factory=list)
    _refusals: Refusals = field(default_factory=Refusals)

    def __post_init__(self) -> None:
        self._memos = Memos(self.bounds.slots)
        # Which value a row draws depends on all columns of the rows.
        self.may_host = self.may_host and not calls_within(self.query.pattern, PER_ROW)

    def run(
        self,
        reader: TermReader,
        terms: Callable[[], QueryTerms],
        limits: Callable[[], Limits],
        rows: Int64Array | None = None,
        *,
        may_evaluate: bool = True,
    ) -> ProgramResult | None:
        """Return the rows of the query; None if the executor has to evaluate it. With arguments their first column is
        the number of the row of arguments.

        Parameters
        ----------
        reader : TermReader              Reads the terms of the data.
        terms, limits                    Are called once, if Python has something to evaluate.
        rows : int64[n, arguments], contiguous.
        may_evaluate : bool              Whether expressions may be evaluated.

        Raises QueryTimeout."""
        self.ready_version, self.has_hosted = -1, False
        if self.is_refused or not self._refusals.passed():
            return None
        if self._version != self.windows.table.version and not self._renew(1 if rows is None else len(rows)):
            return None
        if self._code is None or self._code.estimated_cells > len(self.arena):
            return None  # it would run in vain
        if self._terms is not None and self.registry.hash_bits < HASH_BITS:
            self._drop_computed()  # data take ids of a few bits that computed terms have
        if self._is_moved:
            self._write_memos()
        if rows is not None and rows is not self._rows:
            self._rows = rows
            self._block[layout.PROGRAM_HEAD + layout.TABLE_ADDRESS] = rows.ctypes.data
            self._block[layout.PROGRAM_HEAD + layout.TABLE_ROWS] = len(rows)
        self.arena.read_by(reader)
        used = self._write_values(terms) if self._code.values and not self._has_values else None
        epoch = self.registry.release_count + 1
        own, hosting, count, size = None, None, 0, 0
        for stops in range(STOPS_MAX):
            began_s = time.perf_counter()
            with wrapping():
                run_programs(self.address, 0, epoch, stops > 0, self._ran)
            status = int(self._ran[0, layout.FOUND_STATUS])
            if status == DONE:
                self._refusals.forget()
                # One that stops would be run again from its beginning.
                is_short = time.perf_counter() - began_s < TOGETHER_S and not stops
                if is_short and not self.arguments and self.registry.hash_bits == HASH_BITS:
                    self.ready_version = self._version
                return self.result(_rows_of(self, *self._ran[0].tolist()), terms, used)
            if status not in (layout.MEMO_MISS, layout.HOST):
                break
            at = int(self._block[layout.PROGRAM_AT])
            read = self._missed(self._code.memos[at]) if status == layout.MEMO_MISS else self._operand(at)
            count += len(read)
            if self.bounds.missed_size < 1 << 62:
                with wrapping():
                    size += int(texts_size(self.address[0], read.ravel()))
            if not may_evaluate or count > self.bounds.missed or size > self.bounds.missed_size:
                return None
            used, own = used or self._terms_of(terms()), own or limits()
            computed = used.computed_size
            try:
                with within(own):
                    if status == layout.MEMO_MISS:
                        self._fill_memo(self._code.memos[at], read, used, epoch)
                    else:
                        hosting = hosting or Hosting(used, partial(self._executor, own))
                        if not self._evaluate(at, read, hosting):
                            break
            except BudgetExceeded:  # the executor may need less, or names the operator
                break
            size += used.computed_size - computed
            if size > self.bounds.missed_size:
                self._drop_computed()
                return None
        self._refusals.add(OTHERS if self.arguments else REFUSED)
        return None

    def result(
        self, rows: Int64Array, terms: Callable[[], QueryTerms], used: QueryTerms | None = None
    ) -> ProgramResult:
        """Return the result of a run that is done.

        rows : int64[columns, n]         Not of the arena.
        terms                            Is called if the program has computed terms.
        used : QueryTerms | None         The terms of the run, if there are any."""
        known = self._terms
        if used is None and known is not None and known.has_computed:
            used = self._terms_of(terms())
        if known is not None and (
            known.computed_count > self.bounds.computed or known.computed_size > self.bounds.computed_size
        ):
            self._drop_computed()
        return ProgramResult(tuple(rows), rows.shape[1], used)

    def _drop_computed(self) -> None:
        """Drop all computed terms, and what holds their ids."""
        self._is_moved, self.ready_version = True, -1
        self._memos.clear()
        self._terms, self._has_values = None, False

    def _terms_of(self, terms: QueryTerms) -> QueryTerms:
        """Return the terms of this execution, with all computed terms."""
        self._terms = terms if self._terms is None else self._terms.renewed(terms.reader, terms.moment)
        return self._terms

    def _write_values(self, terms: Callable[[], QueryTerms]) -> QueryTerms:
        """Write the ids of the terms of VALUES."""
        assert self._code is not None, self.query
        used = self._terms_of(terms())
        for cells, rows in self._code.values:
            for target, row in zip(cells, rows, strict=True):
                target[:] = [UNBOUND if term is None else used.ids([term.text])[0] for term in row]
        self._has_values = True
        return used

    def _missed(self, memo: Memo) -> Int64Array:
        """Return the keys that a memo lacks: int64[n, keys]."""
        count, keys = int(self._block[layout.PROGRAM_MISSED]), len(memo.variables)
        return self.arena.at(int(self._block[layout.PROGRAM_MISSED_AT]), count * keys).reshape(count, keys)

    def _table_entry(self, number: int) -> Int64Array:
        """Return the entry of a table."""
        first = layout.PROGRAM_HEAD + number * layout.TABLE_WIDTH
        return self._block[first : first + layout.TABLE_WIDTH]

    def _operand(self, at: int) -> Int64Array:
        """Return the rows that an operation reads: int64[n, columns]."""
        assert self._code is not None, self.query
        address, count, width = self._table_entry(self._code.hosts[at].operand.number).tolist()
        if self._rows is not None and address == self._rows.ctypes.data:
            return self._rows
        return self.arena.at(address, count * width).reshape(count, width).copy()

    def _executor(self, limits: Limits, terms: QueryTerms) -> Executor:
        """Return the executor of parts of the query, over the windows of now."""
        self.has_hosted = True
        dataset, _ = self.windows.dataset(self.query.dataset, self.resolve)
        return Executor(dataset, terms, limits, self.plans, in_order=True, paths=self.paths)

    def _evaluate(self, at: int, rows: Int64Array, hosting: Hosting) -> bool:
        """Do what an operation does, in the place of the kernel; return False if the arena is full.

        rows : int64[n, columns]   What it reads."""
        assert self._code is not None, self.query
        host, block = self._code.hosts[at], self._block
        found = host.evaluate(BindingTable(host.operand.variables, tuple(rows.T), len(rows)), hosting)
        begin, width = int(block[layout.PROGRAM_USED]), len(host.result.variables)
        end = begin + found.length * width
        if end > len(self.arena):
            return False
        target = self.arena.cells[begin:end].reshape(found.length, width)
        for column, own in zip(target.T, found.columns_of(host.result.variables), strict=True):
            column[:] = own
        address = self.arena.address + 8 * begin
        self._table_entry(host.result.number)[:] = address, found.length, width
        block[layout.PROGRAM_USED], block[layout.PROGRAM_AT] = end, host.behind
        return True

    def _fill_memo(self, memo: Memo, missed: Int64Array, terms: QueryTerms, epoch: int) -> None:
        """Insert the keys that the stopped operation misses."""

        def epochs(ids: Int64Array) -> Int64Array:
            stays = is_inlined(ids) | (ids < 0) | self.registry.persistent.contains(ids)
            return np.where(stays, layout.MEMO_PERMANENT, epoch)

        self._is_moved = True
        memo.insert(missed, epochs, terms, epoch)
        self._write_memos()

    # --- operations ---------------------------------------------------------------------------------------------------

    def _renew(self, rows: int) -> bool:
        """Recompile if sizes have changed by a factor. Returns False if there is no program. rows: of arguments."""
        table = self.windows.table
        changes = self.windows.changes()
        if self._code is not None and changes == self._changes:
            self._version = table.version
            return True
        self._version, self._code, code = -1, None, Code()
        self._has_values, self._rows = False, None
        given = self.query.dataset, self.windows, self.resolve, self.plans, self.workspace
        try:
            may_host = self.may_host and not self.arguments
            compiler = Compiler(*given, self._memos, self._wanted, self.arguments, rows, code, may_host)
            self._result, self.shown = compiler.query(self.query)
        except NotCompiled:
            self.is_refused = True
            return False
        self._is_moved = True
        self._block, self._code, self._changes = code.block(self.arena, self._result.number), code, changes
        self.address[0] = self._block.ctypes.data
        if self.plans.is_stale:  # a plan for other sizes does until the memo is renewed
            self._changes = []
        else:
            self._version = table.version
        return True

    def forget(self) -> None:
        """Compile anew at the next run: ids of constants have changed."""
        self._code, self._version, self.ready_version = None, -1, -1

    def may_run_together(self) -> bool:
        """Return whether `run_together` may run the block as it is, over the windows of now."""
        version = self.windows.table.version
        if self.ready_version == version:
            return True
        if self.ready_version < 0 or self.windows.changes() != self._changes:
            return False
        self._version = self.ready_version = version
        return True

    def note_stop(self, status: int) -> None:
        """Note that a run with others has ended with another status than DONE."""
        self.ready_version = -1
        if status == layout.FALL_BACK:
            self._refusals.add()

    @property
    def has_computed(self) -> bool:
        """Whether its rows may have terms that it has computed."""
        return self._terms is not None and self._terms.has_computed

    @property
    def estimated_rows(self) -> float:
        """The rows of all steps of its plans, estimated; 0 before the first run."""
        return 0.0 if self._code is None else self._code.estimated_rows

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The columns of the rows of the last run, but for a SELECT."""
        return self._result.variables

    def _write_memos(self) -> None:
        assert self._code is not None, self.query
        self._code.write_memos(self._block)
        self._is_moved = False


@dataclass(slots=True)
class ProgramResult:
    """The rows of a program."""

    columns: Columns
    count: int
    terms: QueryTerms | None
    """None if the rows have terms of the data only."""


_NO_ROWS = np.empty((1 << 10, 0), np.int64)


def run_together(programs: Sequence[Program], reader: TermReader) -> list[Int64Array | None]:
    """Run many programs for which `may_run_together` holds, of one arena, in one kernel call.

    Returns the rows of each, int64[columns, n], for `Program.result`; None where `Program.run` has something to do."""
    arena = programs[0].arena
    arena.read_by(reader)
    addresses = np.concatenate([one.address for one in programs])
    epoch, found = programs[0].registry.release_count + 1, np.zeros((len(programs), layout.FOUND_WIDTH), np.int64)
    results, done = list[Int64Array | None](), 0
    while done < len(programs):
        with wrapping():
            done = int(run_programs(addresses, done, epoch, False, found))
        for row in found[len(results) : done].tolist():
            if row[layout.FOUND_STATUS] == DONE:
                results.append(_rows_of(programs[len(results)], *row))
            else:
                programs[len(results)].note_stop(row[layout.FOUND_STATUS])
                results.append(None)
    return results


def _rows_of(program: Program, _: int, begin: int, count: int, width: int) -> Int64Array:
    """Copy the result of a program out of the arena: int64[columns, n]."""
    columns = program.shown
    if not count:
        return _NO_ROWS[: width if columns is None else len(columns)]
    rows = program.arena.cells[begin : begin + count * width].reshape(count, width).T
    return rows.copy() if columns is None else rows[columns]
