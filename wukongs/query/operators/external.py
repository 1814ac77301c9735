"""ORDER BY, DISTINCT and GROUP BY of more rows than there is memory for: by sorted runs in temporary files.

The rows arrive in pieces, and are written to files. Then `work_bytes` of them at a time are read, sorted and written as
a run, and the runs are merged, a block of each in memory. An operator's result is mapped (spill_files.py).

* Ranks are made once, of all distinct keys, since `=` does not let them be made run by run (ordering.py).
* The sort is stable: of rows that are equal, those of an earlier run are earlier.
* Each file is written and read once, or twice where DISTINCT keeps the order of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import numpy as np

from wukongs.csparql.algebra import Aggregate
from wukongs.csparql.terms import Variable
from wukongs.query.binding_table import BindingTable, TermSpace
from wukongs.query.limits import Limits
from wukongs.query.operators.aggregates import group
from wukongs.query.operators.operators import union
from wukongs.query.operators.ordering import ranks_of_ids
from wukongs.query.rows import numbered, put_together, stable_order, taken
from wukongs.query.spill_files import ColumnFiles
from wukongs.store.dtypes import Int64Array

Pieces = Iterator[BindingTable]
"""Tables with the same variables, one at least. A piece is held until the next one is asked for: before that, a caller
gives back what it has held for it."""
_PACKED_MAX = 1 << 62
_BLOCK_ROWS_LEAST = 256
_COPIES = 5
"""So many copies of its rows a sort of some rows holds, its orders included."""
_ADVICE = "Filter earlier"


class _Distinct:
    """The distinct ids of a column that arrives in pieces."""

    def __init__(self) -> None:
        self.ids = np.empty(0, np.int64)
        self._more: list[Int64Array] = []

    @property
    def size_bytes(self) -> int:
        """The bytes that it takes, and will to be settled."""
        return 2 * 8 * (len(self.ids) + sum(map(len, self._more)))

    def add(self, column: Int64Array) -> None:
        self._more.append(np.unique(column))
        if sum(map(len, self._more)) > len(self.ids):
            self.settle()

    def settle(self) -> None:
        self.ids = np.unique(np.concatenate([self.ids, *self._more]))
        self._more = []


def sorted_rows(
    pieces: Pieces,
    keys_of: Callable[[BindingTable], Sequence[Int64Array]],
    is_descending: Sequence[bool],
    terms: TermSpace,
    limits: Limits,
    work_bytes: int,
    rows_wanted: int | None = None,
) -> BindingTable:
    """Sort rows as order_by does. keys_of: returns the term ids of each condition; is_descending: for each of them;
    rows_wanted: the rows after these many may be left out; then equal ones are in canonical order, their columns being
    sorted by name."""
    with ExitStack() as files:
        raw, variables = None, tuple[Variable, ...]()
        distinct, held = [_Distinct() for _ in is_descending], 0
        for piece in pieces:
            mark = limits.mark()
            if raw is None:
                variables = piece.variables
                raw = files.enter_context(ColumnFiles(len(variables) + len(distinct), limits))
            limits.check()
            keys = keys_of(piece)
            raw.append((*piece.columns, *keys), piece.length)
            limits.check_rows(raw.length, _ADVICE)
            for found, key in zip(distinct, keys, strict=True):
                found.add(key)
            before, held = held, sum(found.size_bytes for found in distinct)
            limits.back_to(mark, held - before)
        assert raw is not None
        ranks = []
        for found, down in zip(distinct, is_descending, strict=True):
            found.settle()
            own = ranks_of_ids(found.ids, terms) if len(found.ids) else found.ids
            limits.hold(8 * len(own))
            ranks.append(own.max(initial=0) - own if down else own - own.min(initial=0))

        def ranks_of(columns: Sequence[Int64Array]) -> list[Int64Array]:
            found = columns[len(variables) :]
            keys = _packed(
                [of[np.searchsorted(one.ids, key)] for one, of, key in zip(distinct, ranks, found, strict=True)],
                [int(of.max(initial=0)) + 1 for of in ranks],
            )
            return keys if rows_wanted is None else [*keys, *columns[: len(variables)]]

        width = len(variables)
        if rows_wanted is not None and 8 * _COPIES * raw.width * rows_wanted <= work_bytes:
            first = _first_rows(raw, width, ranks_of, rows_wanted, limits, work_bytes)
            return BindingTable(variables, tuple(first), len(first[0]) if first else min(rows_wanted, raw.length))
        return _table(variables, _sorted(raw, width, ranks_of, limits, work_bytes), width, limits)


def distinct_rows(pieces: Pieces, is_ordered: bool, limits: Limits, work_bytes: int) -> BindingTable:
    """Keep the first of equal rows. is_ordered: rows keep their order. Few distinct rows never leave the memory."""
    kept: BindingTable | None = None
    rows = held = 0
    with ExitStack() as files:
        raw: ColumnFiles | None = None
        for piece in pieces:
            mark = limits.mark()
            limits.check()
            rows += piece.length
            limits.check_rows(rows, _ADVICE)
            own = _distinct(piece)
            before = held
            if raw is None:
                kept = own if kept is None else _distinct(union(kept, own, limits.rows_max))
                held = kept.size_bytes
                if 2 * held * _COPIES > work_bytes:
                    raw = files.enter_context(ColumnFiles(len(kept.variables) + 1, limits))
                    own, kept, held = kept, BindingTable.empty(kept.variables), 0
            if raw is not None:
                numbers = np.arange(raw.length, raw.length + own.length, dtype=np.int64)
                raw.append((*own.columns, numbers), own.length)
            limits.back_to(mark, held - before)
        assert kept is not None
        if raw is None:
            return kept
        width = len(kept.variables)
        by_rows = _sorted(raw, width + 1, lambda columns: list(columns[:width]), limits, work_bytes)
        first = _firsts(by_rows, width)
        if not is_ordered:
            return _table(kept.variables, first, width, limits)
        alone = files.enter_context(ColumnFiles(width + 1, limits))
        for columns in first:
            alone.append(columns[: width + 1], len(columns[0]))
        in_order = _sorted(alone, width, lambda columns: [columns[width]], limits, work_bytes)
        return _table(kept.variables, in_order, width, limits)


def grouped(
    pieces: Pieces,
    keys: Sequence[Variable],
    aggregates: Sequence[tuple[Variable, Aggregate]],
    terms: TermSpace,
    limits: Limits,
    work_bytes: int,
) -> BindingTable:
    """Group rows as `group` does; a group has to fit into the memory. Rows of a group keep their order."""
    with ExitStack() as files:
        raw, variables = None, tuple[Variable, ...]()
        for piece in pieces:
            if raw is None:
                variables = piece.variables
                raw = files.enter_context(ColumnFiles(len(variables) + len(keys), limits))
            limits.check()
            raw.append((*piece.columns, *(piece.column(key) for key in keys)), piece.length)
            limits.check_rows(raw.length, _ADVICE)
        assert raw is not None
        width, done = len(variables), list[BindingTable]()
        blocks = _sorted(raw, width, lambda columns: list(columns[width:]), limits, work_bytes)
        for whole in _whole_groups(blocks, width, limits):
            limits.check()
            mark, length = limits.mark(), len(whole[0])
            done.append(group(BindingTable(variables, tuple(whole[:width]), length), keys, aggregates, terms))
            limits.back_to(mark, done[-1].size_bytes)
        if not done:
            return group(BindingTable.empty(variables), keys, aggregates, terms)
        columns = zip(*(table.columns for table in done), strict=True)
        return BindingTable(done[0].variables, tuple(map(put_together, columns)), sum(table.length for table in done))


def counts_and_bests(aggregates: Sequence[tuple[Variable, Aggregate]]) -> bool:
    """Tell whether `grouped_by_parts` can be asked: each aggregate of all rows follows from those of parts of them."""
    return all(
        aggregate.name in ("MIN", "MAX", "SAMPLE") or (aggregate.name == "COUNT" and not aggregate.distinct)
        for _, aggregate in aggregates
    )


def grouped_by_parts(
    pieces: Pieces,
    keys: Sequence[Variable],
    aggregates: Sequence[tuple[Variable, Aggregate]],
    terms: TermSpace,
    limits: Limits,
    work_bytes: int,
) -> BindingTable | None:
    """Do the same as group, piece by piece, and group these groups; None if there are too many of them, which
    they are not without keys."""
    again = [
        (variable, Aggregate("SUM" if one.name == "COUNT" else one.name, variable)) for variable, one in aggregates
    ]
    parts, held, grouped_rows, empty = list[BindingTable](), 0, 0, BindingTable.empty()
    for piece in pieces:
        mark = limits.mark()
        limits.check()
        empty = BindingTable.empty(piece.variables)
        if piece.length:
            parts.append(group(piece, keys, aggregates, terms))
            if sum(part.length for part in parts) > 2 * grouped_rows or len(parts) > 64:
                parts = [_regrouped(parts, keys, again, terms)]
                grouped_rows = parts[0].length
        before, held = held, sum(part.size_bytes for part in parts)
        limits.back_to(mark, held - before)
        if keys and held * _COPIES > work_bytes:
            limits.give_back(held)
            return None
    return _regrouped(parts, keys, again, terms) if parts else group(empty, keys, aggregates, terms)


def gathered(pieces: Pieces, limits: Limits) -> BindingTable:
    """Return all rows as one table."""
    with ExitStack() as files:
        raw, variables = None, tuple[Variable, ...]()
        for piece in pieces:
            if raw is None:
                variables = piece.variables
                raw = files.enter_context(ColumnFiles(len(variables), limits))
            limits.check()
            raw.append(piece.columns, piece.length)
            limits.check_rows(raw.length, _ADVICE)
        assert raw is not None
        length = raw.length
        return BindingTable(variables, raw.mapped(), length)


# --- runs -------------------------------------------------------------------------------------------------------------


def _sorted(
    raw: ColumnFiles,
    width: int,
    keys_of: Callable[[Sequence[Int64Array]], list[Int64Array]],
    limits: Limits,
    work_bytes: int,
) -> Iterator[list[Int64Array]]:
    """Yield the rows of files in the order of their keys, as blocks: the first `width` columns, then the keys."""
    rows = raw.length
    at_once = max(_BLOCK_ROWS_LEAST, work_bytes // (8 * _COPIES * raw.width))
    if not rows:
        return
    with ExitStack() as files:
        runs: ColumnFiles | None = None
        for start in range(0, rows, at_once):
            mark, stop = limits.mark(), min(rows, start + at_once)
            columns = raw.read(start, stop)
            keys = keys_of(columns)
            limits.hold(sum(key.nbytes for key in keys))
            order = stable_order(keys)
            made = [taken(column, order) for column in (*columns[:width], *keys)]
            if stop - start == rows:
                cost = limits.mark() - mark
                yield made
                limits.give_back(cost)
                return
            if runs is None:
                runs = files.enter_context(ColumnFiles(len(made), limits))
            runs.append(made, stop - start)
            limits.back_to(mark, 0)
        raw.close()
        assert runs is not None
        yield from _merged(runs, range(0, rows, at_once), width, limits, work_bytes)


def _first_rows(
    raw: ColumnFiles,
    width: int,
    keys_of: Callable[[Sequence[Int64Array]], list[Int64Array]],
    count: int,
    limits: Limits,
    work_bytes: int,
) -> list[Int64Array]:
    """Return the first `width` columns of the first rows of files in the order of their keys: those of what was read so
    far are kept."""
    at_once = max(_BLOCK_ROWS_LEAST, work_bytes // (8 * _COPIES * raw.width))
    kept: list[Int64Array] = []
    held = 0
    for start in range(0, raw.length, at_once):
        mark = limits.mark()
        columns = raw.read(start, min(raw.length, start + at_once))
        rows = [*columns[:width], *keys_of(columns)]
        if kept:
            rows = [put_together(pair) for pair in zip(kept, rows, strict=True)]
        order = stable_order(rows[width:])[:count]
        kept = [taken(column, order) for column in rows]
        before, held = held, sum(column.nbytes for column in kept)
        limits.back_to(mark, held - before)
    return kept[:width] if kept else [np.empty(0, np.int64)] * width


def _merged(
    runs: ColumnFiles, starts: Sequence[int], width: int, limits: Limits, work_bytes: int
) -> Iterator[list[Int64Array]]:
    """Merge runs, of which the first `width` columns are followed by keys. In each round all rows leave that are not
    behind the last row in memory of a run that has more; of equal rows, those of earlier runs are before."""
    stops = [*starts[1:], runs.length]
    at = list(starts)
    nothing = [np.empty(0, np.int64)] * runs.width
    blocks = [nothing for _ in starts]
    rows_of_block = max(_BLOCK_ROWS_LEAST, work_bytes // (8 * _COPIES * runs.width * len(starts)))
    held = 0
    while True:
        limits.check()
        mark = limits.mark()
        bound: tuple[tuple[int, ...], int] | None = None
        for number, stop in enumerate(stops):
            if at[number] < stop and not len(blocks[number][0]):
                until = min(stop, at[number] + rows_of_block)
                blocks[number] = runs.read(at[number], until)
                at[number] = until
            if at[number] < stop:
                last = tuple(int(key[-1]) for key in blocks[number][width:]), number
                bound = last if bound is None or last < bound else bound
        parts = []
        for number, block in enumerate(blocks):
            count = len(block[0])
            if bound is not None and count:
                count = _rows_to(block[width:], bound[0], number <= bound[1])
            if count:
                parts.append([column[:count] for column in block])
                # Copied, since a view would keep the rows that have left.
                blocks[number] = [column[count:].copy() for column in block]
        if not parts:
            limits.give_back(held)
            return
        joined = [put_together(column) for column in zip(*parts, strict=True)]
        order = stable_order(joined[width:])
        made = [taken(column, order) for column in joined]
        cost = limits.mark() - mark
        yield made
        limits.give_back(cost)
        before, held = held, sum(column.nbytes for block in blocks for column in block)
        limits.hold(held - before)


def _rows_to(keys: Sequence[Int64Array], bound: Sequence[int], is_included: bool) -> int:
    """Return how many rows, sorted by these keys, are before a bound, or equal to it if that is included."""
    start, stop = 0, len(keys[0])
    for place, (key, value) in enumerate(zip(keys, bound, strict=True)):
        own = key[start:stop]
        last = place == len(keys) - 1
        low = start + int(np.searchsorted(own, value, "left"))
        high = start + int(np.searchsorted(own, value, "right"))
        if last:
            return high if is_included else low
        if low == high:
            return low
        start, stop = low, high
    return stop


def _packed(ranks: list[Int64Array], counts: Sequence[int]) -> list[Int64Array]:
    """Put ranks from 0 into one column, where they fit."""
    packed, room = list[Int64Array](), 0
    for rank, count in zip(ranks, counts, strict=True):
        if packed and room * count < _PACKED_MAX:
            packed[-1] = packed[-1] * count + rank
            room *= count
        else:
            packed.append(rank)
            room = count
    return packed


def _table(
    variables: tuple[Variable, ...], blocks: Iterator[list[Int64Array]], width: int, limits: Limits
) -> BindingTable:
    with ColumnFiles(width, limits) as out:
        length = 0
        for block in blocks:
            out.append(block[:width], len(block[0]))
            length += len(block[0])
        return BindingTable(variables, out.mapped(), length)


def _firsts(blocks: Iterator[list[Int64Array]], width: int) -> Iterator[list[Int64Array]]:
    """Keep the first of rows that are equal in the first columns. Rows are sorted by these."""
    last: list[Int64Array] = []
    for block in blocks:
        is_new = np.zeros(len(block[0]), np.bool_)
        is_new[0] = not last
        for place, column in enumerate(block[:width]):
            is_new[1:] |= column[1:] != column[:-1]
            if last:
                is_new[0] |= column[0] != last[place][0]
        last = [column[-1:].copy() for column in block[:width]]
        yield [column[is_new] for column in block]


def _whole_groups(blocks: Iterator[list[Int64Array]], width: int, limits: Limits) -> Iterator[list[Int64Array]]:
    """Cut sorted rows anew, so that rows with the same keys (the columns from width on) are together."""
    rest: list[Int64Array] | None = None
    held = 0
    for block in blocks:
        mark = limits.mark()
        rows = block if rest is None else [put_together(pair) for pair in zip(rest, block, strict=True)]
        is_last = np.ones(len(rows[0]), np.bool_)
        for key in rows[width:]:
            is_last &= key == key[-1]
        cut, cost = int(np.argmax(is_last)), limits.mark() - mark  # sorted: all from the first of them on
        if cut:
            yield [column[:cut] for column in rows]
        limits.give_back(cost)
        rest = [column[cut:].copy() for column in rows]
        before, held = held, sum(column.nbytes for column in rest)
        limits.hold(held - before)
    if rest is not None:
        yield rest
    limits.give_back(held)


def _distinct(table: BindingTable) -> BindingTable:
    _, firsts = numbered(table.columns, table.length)
    return table.take(firsts)


def _regrouped(
    parts: list[BindingTable],
    keys: Sequence[Variable],
    aggregates: Sequence[tuple[Variable, Aggregate]],
    terms: TermSpace,
) -> BindingTable:
    columns = tuple(map(put_together, zip(*(part.columns for part in parts), strict=True)))
    whole = BindingTable(parts[0].variables, columns, sum(part.length for part in parts))
    return group(whole, keys, aggregates, terms)
