"""GraphChange against sets of tuples: operations in a row, read in between, stored beside what others have added."""

from __future__ import annotations

import itertools
from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzzed
from tests.property.test_tombstones import GRAPHS, QUADS, seen
from tests.quads import Quad, columns, quads_of
from wukongs.store.arrangement import Arrangement
from wukongs.store.graph_change import GraphChange
from wukongs.store.quads import Quads

Kind = Literal["delete", "insert", "clear", "look"]
Operation = tuple[Kind, list[Quad], list[int]]
OPERATIONS: st.SearchStrategy[list[Operation]] = st.lists(
    st.tuples(
        st.sampled_from(["delete", "insert", "insert", "clear", "look"]),  # type: ignore[arg-type]
        QUADS,
        st.lists(st.sampled_from(GRAPHS), max_size=2),
    ),
    max_size=12,
)


def applied(state: set[Quad], operations: list[Operation]) -> set[Quad]:
    """The set of quads after the change."""
    for kind, quads, graphs in operations:
        if kind == "delete":
            state = state - set(quads)
        elif kind == "insert":
            state = state | set(quads)
        elif kind == "clear":
            state = {quad for quad in state if quad[0] not in graphs}
    return state


def change_by(change: GraphChange, operation: Operation) -> None:
    kind, quads, graphs = operation
    if kind == "delete":
        change.delete(columns(quads))
    elif kind == "insert":
        change.insert(columns(quads))
    elif kind == "clear":
        change.clear(graphs)


def next_sn(arrangement: Arrangement) -> int:
    """Nothing is stored at SN 0, as in Core."""
    return max(arrangement.trace.upper, 1)


@fuzzed(150)
@given(st.lists(QUADS, max_size=3), st.lists(QUADS, max_size=2), OPERATIONS, st.lists(QUADS, max_size=2))
def test_operations_in_a_row(
    sealed: list[list[Quad]], before: list[list[Quad]], operations: list[Operation], since: list[list[Quad]]
) -> None:
    arrangement = Arrangement("g")
    for sn, quads in enumerate(sealed, 1):
        arrangement.absorb(sn, *columns(quads))
    for quads in before:  # so that the snapshot itself has tombstones
        arrangement.apply(next_sn(arrangement), columns(quads), columns([]))
    handle = arrangement.open(max(arrangement.trace.upper - 1, 0), "update", expires=False)
    start = set(seen(handle.read()))
    change = GraphChange(handle.read())
    for at, operation in enumerate(operations, 1):
        change_by(change, operation)
        if operation[0] == "look":
            assert set(seen(handle.read_with(change.difference()))) == applied(start, operations[:at])
    expected = applied(start, operations)
    difference = change.difference()
    assert set(quads_of(difference.additions)) == expected - start
    assert (difference.tombstones is None) == (not start - expected)
    assert set(quads_of(*filter(None, [difference.tombstones]))) == start - expected

    for quads in since:
        arrangement.absorb(next_sn(arrangement), *columns(quads))
    added = set(itertools.chain.from_iterable(since)) - start
    cleared = {graph for kind, _, graphs in operations if kind == "clear" for graph in graphs}
    rebased, unseen = change.beside(arrangement.trace.batches_from(handle.sn + 1))
    assert set(quads_of_columns(unseen)) == {quad for quad in added if quad[0] in cleared}
    counts = arrangement.apply_difference(next_sn(arrangement), rebased)
    after = seen(arrangement.trace.read(arrangement.trace.upper))
    assert after == sorted(expected | added)
    assert counts == (len((start | added) - set(after)), len(set(after) - (start | added)))
    assert seen(handle.read()) == sorted(start)

    again = Arrangement("again")  # from a log: the three parts, over all that was there by then
    again.absorb(1, *columns(start | added))
    come = [*quads_of_columns(change.come), *quads_of_columns(unseen)]
    again.apply(2, change.gone, columns(come), change.cleared.tolist())
    assert seen(again.trace.read(2)) == after
    handle.close()
    arrangement.trace.merge_all()
    assert seen(arrangement.trace.read(arrangement.trace.upper)) == after


def quads_of_columns(parts: Quads) -> list[Quad]:
    return list(zip(*(part.tolist() for part in parts), strict=True))


def test_parts_of_a_change_have_nothing_in_common() -> None:
    quads = [(graph, 2, 4, 6) for graph in (10, 12)]
    arrangement = Arrangement("g")
    arrangement.absorb(1, *columns(quads))
    change = GraphChange(arrangement.trace.read(1))
    change.insert(columns(quads))
    change.delete(columns(quads[:1]))
    assert (quads_of_columns(change.gone), quads_of_columns(change.come)) == (quads[:1], quads[1:])
    change.clear([12])
    assert (quads_of_columns(change.gone), quads_of_columns(change.come)) == (quads[:1], [])
    change.insert(columns([*quads, *quads]))
    assert change.cleared.tolist() == [12]
    assert (quads_of_columns(change.gone), set(quads_of_columns(change.come))) == ([], set(quads))
    assert change.difference().tombstones is None
