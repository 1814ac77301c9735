"""LoggedArguments: the arguments of a live view as the log of a cluster has them, in texts.

The log has the first table in the registration, and a text for each change: what was bound (a table) or unbound
(numbers). A text for all of them takes their place now and then, so the log does not grow with the changes."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from wukongs.errors import DataError
from wukongs.live.argument_tables import table_text, text_table
from wukongs.live.query_group import bindings_table
from wukongs.store.dtypes import Int64Array

if TYPE_CHECKING:
    import pyarrow

What = Literal["bind", "unbind"]
TOGETHER_BYTES_MIN = 1 << 16
"""Changes of fewer bytes stay by themselves."""


@dataclass(frozen=True, slots=True)
class LoggedArguments:
    """table: the terms of those that are bound, a column for each variable.
    numbers: theirs. int64[n], rising
    version: how many changes there were, the first table among them if it has a row.
    next_number: of the next one that is bound."""

    table: pyarrow.Table
    numbers: Int64Array
    version: int
    next_number: int

    @staticmethod
    def of(bindings: str, changes: Sequence[str]) -> LoggedArguments:
        """Return what is bound. bindings: the first table; changes: of the log, in order. Raises DataError (texts that
        say something else)."""
        table = bindings_table(bindings, is_filled=False)
        found = LoggedArguments(table, np.arange(table.num_rows), min(1, table.num_rows), table.num_rows)
        for change in changes:
            try:
                found = found._after(json.loads(change))
            except (KeyError, ValueError, TypeError, RecursionError):
                raise DataError(f"expected a change of arguments, found {change[:100]!r}") from None
        return found

    def _after(self, change: Any) -> LoggedArguments:
        if isinstance(change, dict):
            numbers = np.array(change["numbers"], np.int64)
            return LoggedArguments(
                text_table(change["table"], "arguments"), numbers, change["version"], change["next_number"]
            )
        what, arguments, _ = change
        if what == "unbind":
            kept = ~np.isin(self.numbers, np.array(arguments, np.int64))
            table, numbers, end = self.table.filter(kept), self.numbers[kept], self.next_number
        else:
            table, numbers, end = self._bound(text_table(arguments, "arguments"))
        return LoggedArguments(table, numbers, self.version + 1, end)

    def _bound(self, more: pyarrow.Table) -> tuple[pyarrow.Table, Int64Array, int]:
        import pyarrow as pa

        end = self.next_number + more.num_rows
        numbers = np.concatenate([self.numbers, np.arange(self.next_number, end)])
        return pa.concat_tables([self.table, more.select(self.table.column_names)]), numbers, end

    def text(self) -> str:
        """Return one text in the place of all changes."""
        facts = {"numbers": self.numbers.tolist(), "version": self.version, "next_number": self.next_number}
        return json.dumps({**facts, "table": table_text(self.table.combine_chunks())})


def change_text(what: What, arguments: pyarrow.Table | Sequence[int]) -> str:
    """Return the text of one change, which no other call has: equal records of the log are one. arguments: a table of
    what is bound, or the numbers of what is unbound."""
    told = list(arguments) if isinstance(arguments, Sequence) else table_text(arguments)
    return json.dumps([what, told, uuid.uuid4().hex])


def change_of(text: str) -> tuple[What, Any] | None:
    """Return what a text of the log changes: what is bound (a table as text) or unbound (numbers). None: nothing, it
    stands for those before."""
    change = json.loads(text)
    return None if isinstance(change, dict) else (change[0], change[1])


def are_many(bindings: str, changes: Sequence[str]) -> bool:
    """Return whether one text is to take the place of some changes: these are longer than what is bound."""
    is_whole = bool(changes) and changes[0].startswith("{")
    first = len(changes[0]) if is_whole else len(bindings)
    return sum(map(len, changes[is_whole:])) > max(TOGETHER_BYTES_MIN, first)
