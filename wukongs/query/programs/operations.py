"""Operations: the parts of a program as it is compiled: relations, operations, and the memory that they point at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from wukongs.csparql.algebra import Expression
from wukongs.csparql.terms import Term, Variable
from wukongs.query.binding_table import BindingTable
from wukongs.query.plans.compiled import CompiledSteps
from wukongs.query.programs import program_layout as layout
from wukongs.query.programs.arena import Arena
from wukongs.query.programs.hosting import Hosting
from wukongs.query.programs.memo import SLOTS_MAX, Memo, TextMemo
from wukongs.store.dtypes import Int64Array, UInt8Array


class NotCompiled(Exception):
    """The query has a part without an operation. Internal to this package."""


@dataclass(slots=True)
class Memos:
    """The memos of a query. They outlive recompilation. slots_max: of each."""

    slots_max: int = SLOTS_MAX
    known: dict[object, Memo] = field(default_factory=dict)
    texts: TextMemo = field(default_factory=TextMemo)

    def of(self, expression: Expression, variables: Sequence[Variable], *, is_condition: bool) -> Memo:
        """Return the memo of an expression."""
        key = expression, tuple(variables), is_condition
        found = self.known.get(key)
        if found is None:
            found = Memo(expression, variables, is_condition=is_condition, slots_max=self.slots_max)
            self.known[key] = found
        return found

    def clear(self) -> None:
        """Clear all memos."""
        for memo in (self.texts, *self.known.values()):
            memo.clear()


@dataclass(frozen=True, slots=True)
class Relation:
    """The output table of an operation."""

    number: int
    variables: tuple[Variable, ...]
    certain: frozenset[Variable]
    """Variables that every row binds."""
    rows: float = 1.0
    """Estimated rows."""
    is_by_row: bool = True
    """Whether the rows are in the order of the rows that they were explored from."""

    def column(self, variable: Variable) -> int:
        return self.variables.index(variable)


Evaluate: TypeAlias = Callable[[BindingTable, Hosting], BindingTable]


@dataclass(frozen=True, slots=True)
class HostedOperation:
    """An operation as Python evaluates it, with those behind it that only finish its result.

    operand, result    The relations that it reads and makes.
    behind             The operation at which the program goes on.
    evaluate           Returns the rows of the result for those of the operand."""

    operand: Relation
    result: Relation
    behind: int
    evaluate: Evaluate


class CodeEnd(NamedTuple):
    """An end of the code: the lengths of its lists, and the estimates there."""

    lengths: tuple[int, ...]
    estimated_cells: float
    estimated_rows: float


@dataclass(slots=True)
class Code:
    """The operations of a program, and the memory that they point at."""

    operations: list[list[int]] = field(default_factory=list)
    data: list[Int64Array | UInt8Array] = field(default_factory=list)
    explored: list[CompiledSteps] = field(default_factory=list)
    values: list[tuple[Int64Array, list[tuple[Term | None, ...]]]] = field(default_factory=list)
    """Cells of VALUES, and their terms: a program writes the ids before its first run."""
    memos: dict[int, Memo] = field(default_factory=dict)
    """By the operations that read them."""
    hosts: dict[int, HostedOperation] = field(default_factory=dict)
    """By the operations that Python may have to evaluate."""
    tables: list[tuple[int, int, int]] = field(default_factory=list)
    """Address, rows and columns of each table before the first operation."""
    estimated_cells: float = 0.0
    """Ids in the rows of all compiled plans, estimated."""
    estimated_rows: float = 0.0
    """Rows of all their steps, estimated."""

    def table(self, rows: int = 0, columns: int = 0, address: int = 0) -> int:
        """Return the number of a new table. address: of its rows, if no operation makes them."""
        self.tables.append((address, rows, columns))
        return len(self.tables) - 1

    def add(
        self,
        code: int,
        out: int,
        left: int = -1,
        right: int = -1,
        data: Int64Array | None = None,
        count: int = 0,
        memo: Memo | None = None,
        flag: int = 0,
    ) -> None:
        """Add an operation."""
        address = 0
        if data is not None:
            self.data.append(data)
            address = data.ctypes.data
        if memo is not None:
            self.memos[len(self.operations)] = memo
        self.operations.append([code, out, left, right, address, count, 0, flag])

    @property
    def _lists(self) -> tuple[list[Any], ...]:
        return self.operations, self.tables, self.data, self.explored, self.values

    def end(self) -> CodeEnd:
        """Return the end of the code, which `cut` takes."""
        return CodeEnd(tuple(map(len, self._lists)), self.estimated_cells, self.estimated_rows)

    def cut(self, end: CodeEnd) -> None:
        """Drop all that was added behind an end."""
        for one, length in zip(self._lists, end.lengths, strict=True):
            del one[length:]
        self.estimated_cells, self.estimated_rows = end.estimated_cells, end.estimated_rows
        for by_operation in (self.memos, self.hosts):
            for at in [at for at in by_operation if at >= len(self.operations)]:
                del by_operation[at]

    @property
    def is_hosted(self) -> bool:
        """Whether the executor evaluates all parts."""
        codes = {operation[layout.OPERATION_CODE] for operation in self.operations}
        return layout.EVALUATE in codes <= {layout.EVALUATE, layout.PROJECT}

    def block(self, arena: Arena, result: int) -> Int64Array:
        """Return the program as the kernel takes it: head, tables, operations. result: the number of its table."""
        head = np.zeros(layout.PROGRAM_HEAD, np.int64)
        head[layout.PROGRAM_OPERATIONS], head[layout.PROGRAM_TABLES] = len(self.operations), len(self.tables)
        head[layout.PROGRAM_ARENA], head[layout.PROGRAM_CELLS] = arena.address, len(arena)
        head[layout.PROGRAM_DICTIONARIES], head[layout.PROGRAM_RESULT] = arena.dictionaries_address, result
        parts = head, np.array(self.tables, np.int64).ravel(), np.array(self.operations, np.int64).ravel()
        return np.concatenate(parts, dtype=np.int64)

    def write_memos(self, block: Int64Array) -> None:
        """Write the addresses of the memos into a block."""
        first = layout.PROGRAM_HEAD + len(self.tables) * layout.TABLE_WIDTH + layout.OPERATION_MEMO
        for operation, memo in self.memos.items():
            block[first + operation * layout.OPERATION_WIDTH] = memo.address
