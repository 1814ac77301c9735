"""Forces executions to be evaluated in pieces, by temporary files, however small the data are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from wukongs.csparql.algebra import Distinct, Group, Node, OrderBy
from wukongs.errors import BudgetExceeded
from wukongs.query.binding_table import BindingTable
from wukongs.query.execution import in_pieces
from wukongs.query.execution.executor import Executor
from wukongs.query.operators import external


class Forced:
    """count: how many nodes were evaluated in pieces."""

    def __init__(self) -> None:
        self.count = 0


@contextmanager
def in_small_pieces(rows: int = 3, work_bytes: int = 1) -> Iterator[Forced]:
    """Let each ORDER BY, DISTINCT, GROUP BY and whole answer fail for want of bytes when it is evaluated as a whole for
    the first time; pieces have few rows. With work_bytes = 1 runs have two rows, and no distinct rows stay in memory;
    with some thousands, runs have tens of rows, and the first rows of an order do."""
    forced, run = Forced(), Executor._run

    def fail_first(self: Executor, node: Node, rows_wanted: int | None) -> BindingTable:
        tried = self.__dict__.setdefault("tried", set())
        is_first_node = not tried
        if self._may_be_in_pieces and in_pieces.is_for(node) and id(node) not in tried:
            tried.add(id(node))
            if is_first_node or isinstance(node, OrderBy | Distinct | Group):
                forced.count += 1
                self._limits.lacks_bytes = True
                raise BudgetExceeded("forced by a test")
        tried.add(id(node))
        return run(self, node, rows_wanted)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Executor, "_run", fail_first)
        patch.setattr(in_pieces, "_ROWS_LEAST", rows)
        patch.setattr(in_pieces, "_ROWS_MAX", rows)
        patch.setattr(in_pieces, "work_bytes", lambda _: work_bytes)
        patch.setattr(external, "_BLOCK_ROWS_LEAST", 2)
        yield forced
