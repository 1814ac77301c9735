"""GraphChange against sets of tuples: operations in a row, read in between, stored beside what others have added."""

from __future__ import annotations

from typing import Literal

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzzed
from tests.property.test_tombstones import GRAPHS, QUADS, seen
from tests.quads import Quad, columns, quads_of
from wukongs.store.arrangement import Arrangement
from wukongs.store.graph_change import GraphChange
from wukongs.store.quads import Quads, last_signs

POOL: list[Quad] = [(graph, 2 * s, 4, 2 * o) for graph in GRAPHS[:2] for s in (1, 2) for o in (3, 4)]
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


def inserted(operations: list[Operation]) -> set[Quad]:
    """The quads that the change inserts, whether they were there or not."""
    return applied(set(), operations)


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
@given(
    st.lists(QUADS, max_size=3), st.lists(QUADS, max_size=2), OPERATIONS, st.lists(st.tuples(QUADS, QUADS), max_size=3)
)
def test_operations_in_a_row(
    sealed: list[list[Quad]],
    before: list[list[Quad]],
    operations: list[Operation],
    since: list[tuple[list[Quad], list[Quad]]],
) -> None:
    """since: retractions, and additions, of streams."""
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

    now = set(start)
    for gone, quads in since:
        arrangement.absorb(next_sn(arrangement), *columns(quads), gone=columns(set(gone) - set(quads)))
        now = (now - set(gone)) | set(quads)
    assert seen(arrangement.trace.read(arrangement.trace.upper)) == sorted(now)
    cleared = {graph for kind, _, graphs in operations if kind == "clear" for graph in graphs}
    rebased, unseen = arrangement.beside(change, handle.sn)
    assert set(quads_of_columns(unseen)) == {quad for quad in now - start if quad[0] in cleared}
    counts = arrangement.apply_difference(next_sn(arrangement), rebased)
    after = seen(arrangement.trace.read(arrangement.trace.upper))
    assert after == sorted((now - (start - expected)) | inserted(operations))
    assert counts == (len(now - set(after)), len(set(after) - now))
    assert seen(handle.read()) == sorted(start)

    again = Arrangement("again")  # from a log: the three parts, over all that was there by then
    again.absorb(1, *columns(now))
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


@fuzzed(150)
@given(st.lists(st.lists(st.tuples(st.booleans(), st.integers(0, 2), st.integers(0, 2), st.sampled_from(POOL)))))
def test_the_last_sign_of_each_quad_counts(ticks: list[list[tuple[bool, int, int, Quad]]]) -> None:
    """Signs at one SN, by two keys and then their places, over what was stored before."""
    arrangement, state = Arrangement("g"), set[Quad]()
    for signs in ticks:
        goes = np.array([sign for sign, *_ in signs], np.bool_)
        keys = [np.array([sign[at] for sign in signs], np.int64) for at in (1, 2)]
        quads = [quad for *_, quad in signs]
        gone, come = last_signs(columns(quads), goes, keys)
        arrangement.absorb(next_sn(arrangement), *come, gone=gone)
        for at in sorted(range(len(signs)), key=lambda at: (signs[at][1], signs[at][2], at)):
            state = state - {quads[at]} if signs[at][0] else state | {quads[at]}
        assert seen(arrangement.trace.read(arrangement.trace.upper)) == sorted(state)
        assert len(arrangement) == len(state)
