"""Memo: cached values of expressions, and texts of computed terms, by the term ids that determine them.

A kernel cannot evaluate an expression over texts. It looks the ids of the row up in a memo. On a miss it stops, the
expression is evaluated by columns for all missing keys, and the kernel resumes. Inlined ids, and ids of the persistent
dictionary, never change their term. Any other id can get another term after its references are released, so its entry
is valid for one release epoch only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from wukongs.csparql.algebra import Expression
from wukongs.csparql.terms import Variable
from wukongs.query.binding_table import BindingTable
from wukongs.query.expressions.expressions import evaluate, holds
from wukongs.query.programs import program_layout as layout
from wukongs.query.programs.memo_kernels import insert_values
from wukongs.query.rows import numbered
from wukongs.query.terms.query_terms import QueryTerms
from wukongs.store.dtypes import Int64Array, UInt8Array
from wukongs.store.jit import wrapping

SLOTS_MIN, SLOTS_MAX = 64, 1 << 17
"""A memo doubles when it would be more than half full; beyond the maximum it is cleared, but for fewer entries than the
new keys: one run may need both."""

EpochsOf = Callable[[Int64Array], Int64Array]
"""Returns the epoch of each id."""


class Memo:
    """The values of one expression by the ids of its variables; of a condition 1 (true) or 0 (false or error)."""

    def __init__(
        self, expression: Expression, variables: Sequence[Variable], *, is_condition: bool, slots_max: int = SLOTS_MAX
    ) -> None:
        self._slots_max = slots_max
        self._expression, self.variables, self._is_condition = expression, tuple(variables), is_condition
        self._count = 0
        self._block = self._empty(SLOTS_MIN)

    def _empty(self, slots: int) -> Int64Array:
        keys = len(self.variables)
        block: Int64Array = np.full(layout.MEMO_HEAD + slots * (keys + 2), layout.MEMO_FREE, np.int64)
        block[layout.MEMO_SLOTS], block[layout.MEMO_KEYS] = slots, keys
        return block

    @property
    def address(self) -> int:
        """Address of the table; `insert` may change it."""
        return self._block.ctypes.data

    def clear(self) -> None:
        """Drop all entries."""
        self._count, self._block = 0, self._empty(SLOTS_MIN)

    def insert(self, keys: Int64Array, epochs_of: EpochsOf, terms: QueryTerms, epoch: int) -> None:
        """Evaluate the expression for keys, and insert the values.

        keys : int64[n, variables]   May repeat.
        epochs_of : EpochsOf
        epoch : int                  The current release epoch.

        Raises QueryTimeout, BudgetExceeded."""
        columns = [np.ascontiguousarray(column) for column in keys.T]
        firsts = numbered(columns, len(keys))[1] if columns else np.zeros(1, np.int64)
        table = BindingTable(self.variables, tuple(columns), len(keys)).take(firsts)
        epochs = np.zeros(len(firsts), np.int64)
        for column in table.columns:
            np.maximum(epochs, epochs_of(column), out=epochs)
        self._add(keys[firsts], epochs, self._values(table, terms))

    def _values(self, table: BindingTable, terms: QueryTerms) -> Int64Array:
        if self._is_condition:
            return holds(self._expression, table, terms).astype(np.int64)
        return evaluate(self._expression, table, terms)

    def _add(self, keys: Int64Array, epochs: Int64Array, values: Int64Array) -> None:
        slots = int(self._block[layout.MEMO_SLOTS])
        if 2 * (self._count + len(keys)) > slots:
            known = self._block[layout.MEMO_HEAD :].reshape(slots, -1)
            known = known[known[:, -2] != layout.MEMO_FREE]
            if _slots_of(len(known) + len(keys)) > self._slots_max and len(known) >= len(keys):
                known = known[:0]
            self._count, self._block = 0, self._empty(_slots_of(len(known) + len(keys)))
            self._insert(known[:, :-2], known[:, -2], known[:, -1])
        self._insert(keys, epochs, values)

    def _insert(self, keys: Int64Array, epochs: Int64Array, values: Int64Array) -> None:
        before = self._count
        self._count += len(keys)  # an error in between must not leave a table fuller than its count
        with wrapping():
            new = insert_values(self._block, *map(np.ascontiguousarray, (keys, epochs, values)))
        self._count = before + int(new)


def _slots_of(keys: int) -> int:
    """Return the slots of a memo for a number of keys and as many again."""
    slots = SLOTS_MIN
    while slots < 4 * keys:
        slots *= 2
    return slots


class TextMemo(Memo):
    """The texts of computed terms, which no dictionary has: addresses of the number of bytes, and the bytes."""

    def __init__(self) -> None:
        super().__init__(_TERM, (_TERM,), is_condition=False)
        self._texts: list[UInt8Array] = []

    def clear(self) -> None:
        """Drop all entries."""
        super().clear()
        self._texts = []

    def insert(self, keys: Int64Array, epochs_of: EpochsOf, terms: QueryTerms, epoch: int) -> None:
        """Insert the texts of terms. Parameters are those of Memo.insert."""
        ids = np.unique(keys[:, 0])
        texts = [text.encode() for text in terms.texts(ids)]
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum([-(-len(text) // 8) * 8 + 8 for text in texts])])
        block: UInt8Array = np.zeros(offsets[-1], np.uint8)
        for start, text in zip(offsets.tolist(), texts, strict=False):
            block[start : start + 8].view(np.int64)[0] = len(text)
            block[start + 8 : start + 8 + len(text)] = np.frombuffer(text, np.uint8)
        self._add(ids.reshape(-1, 1), epochs_of(ids), block.ctypes.data + offsets[:-1])
        self._texts.append(block)


_TERM = Variable(".term")
