"""Program: a query that kernels answer over the engine's table of windows, whatever operators it has.

A query of triple patterns alone is a CompiledQuery (query/plans/compiled.py). A program has other operators, too:
OPTIONAL, UNION, EXISTS, MINUS, conditions, computed values, groups, DISTINCT, ORDER BY, LIMIT. One call makes the
columns of the result from the windows. Expressions over texts are cached by term ids (memo.py). If the arena is too
small for a window, the executor evaluates it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from wukongs.csparql.algebra import Query
from wukongs.csparql.plan import FilteredBgp
from wukongs.csparql.terms import Variable
from wukongs.errors import BudgetExceeded
from wukongs.query.execution.answer import within
from wukongs.query.limits import Limits
from wukongs.query.plans.compiled import Columns, Windows, Workspace
from wukongs.query.plans.dataset import Resolve
from wukongs.query.plans.plan_layout import DONE
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.programs import program_layout as layout
from wukongs.query.programs.arena import Arena
from wukongs.query.programs.compile import Code, Compiler, Memos, NotCompiled, Relation
from wukongs.query.programs.memo import SLOTS_MAX, Memo
from wukongs.query.programs.program_kernels import run_program
from wukongs.query.programs.text_kernels import texts_size
from wukongs.query.refusals import REFUSED, Refusals
from wukongs.query.terms.query_terms import QueryTerms
from wukongs.store.dtypes import UNBOUND, Int64Array
from wukongs.store.jit import wrapping
from wukongs.store.term_ids import HASH_BITS, is_inlined
from wukongs.store.term_registry import TermReader, TermRegistry

MISSES_MAX = 64
"""Most memo misses of one run."""
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
    """Keys that a run adds to memos."""
    missed_size: int = 1 << 62
    """Bytes of the texts of these keys, and characters of what is computed."""


SHORT = Bounds(1 << 11, 1 << 10, 1 << 16, 1 << 9, 1 << 14)
"""Bounds of a program that runs with a lock held: one of many, with keys that seldom come again."""


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
    is_refused: bool = False
    """Whether the query has a part without an operation."""
    _code: Code | None = None
    """The operations for the current sizes; None before the first run."""
    _block: Int64Array = field(init=False)
    _address: int = 0
    """Address of the block."""
    _result: Relation = field(init=False)
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
        terms, limits                    Are called on a memo miss, once.
        rows : int64[n, arguments], contiguous.
        may_evaluate : bool              Whether expressions may be evaluated.

        Raises QueryTimeout."""
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
        block, epoch = self._block, self.registry.release_count + 1
        block[layout.PROGRAM_USED] = block[layout.PROGRAM_AT] = 0
        block[layout.PROGRAM_EPOCH] = epoch
        own, keys, size = None, 0, 0
        for _ in range(MISSES_MAX):
            with wrapping():
                status = run_program(self._address)
            if status == DONE:
                self._refusals.forget()
                return self._found(used, terms)
            if status != layout.MEMO_MISS:
                break
            memo, missed = self._missed()
            keys += len(missed)
            if self.bounds.missed_size < 1 << 62:
                with wrapping():
                    size += int(texts_size(self._address, missed.ravel()))
            if not may_evaluate or keys > self.bounds.missed or size > self.bounds.missed_size:
                return None
            used, own = used or self._terms_of(terms()), own or limits()
            computed = used.computed_size
            try:
                with within(own):
                    self._fill_memo(memo, missed, used, epoch)
            except BudgetExceeded:  # the executor may need less, or names the operator
                break
            size += used.computed_size - computed
            if size > self.bounds.missed_size:
                self._drop_computed()
                return None
        self._refusals.add(OTHERS if self.arguments else REFUSED)
        return None

    def _found(self, used: QueryTerms | None, terms: Callable[[], QueryTerms]) -> ProgramResult:
        """Copy the result out of the arena."""
        place = layout.PROGRAM_HEAD + self._result.number * layout.TABLE_WIDTH
        address, count, width = self._block[place : place + layout.TABLE_WIDTH].tolist()
        rows = self.arena.at(address, count * width).reshape(count, width).T.copy()
        known = self._terms
        if used is None and known is not None and known.has_computed:
            used = self._terms_of(terms())
        if known is not None and (
            known.computed_count > self.bounds.computed or known.computed_size > self.bounds.computed_size
        ):
            self._drop_computed()
        return ProgramResult(tuple(rows), count, used)

    def _drop_computed(self) -> None:
        """Drop all computed terms, and what holds their ids."""
        self._is_moved = True
        self._memos.clear()
        self._terms, self._has_values = None, False

    def _terms_of(self, terms: QueryTerms) -> QueryTerms:
        """Return the terms of this execution, with all computed terms."""
        self._terms = terms if self._terms is None else self._terms.renewed(terms.reader)
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

    def _missed(self) -> tuple[Memo, Int64Array]:
        """Return the memo of the operation that has stopped, and the keys that it lacks: int64[n, keys]."""
        assert self._code is not None, self.query
        memo = self._code.memos[int(self._block[layout.PROGRAM_AT])]
        count, keys = int(self._block[layout.PROGRAM_MISSED]), len(memo.variables)
        return memo, self.arena.at(int(self._block[layout.PROGRAM_MISSED_AT]), count * keys).reshape(count, keys)

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
            compiler = Compiler(*given, self._memos, self._wanted, self.arguments, rows, code)
            self._result = compiler.query(self.query)
        except NotCompiled:
            self.is_refused = True
            return False
        self._is_moved = True
        self._block, self._code, self._changes = code.block(self.arena), code, changes
        self._address = self._block.ctypes.data
        if self.plans.is_stale:  # a plan for other sizes does until the memo is renewed
            self._changes = []
        else:
            self._version = table.version
        return True

    def forget(self) -> None:
        """Compile anew at the next run: ids of constants have changed."""
        self._code, self._version = None, -1

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The columns of the rows of the last run."""
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
