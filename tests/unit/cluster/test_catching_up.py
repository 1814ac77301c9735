"""CatchingUp: the store of a node hears of nothing that it cannot place yet."""

from __future__ import annotations

from wukongs.cluster.host import CatchingUp
from wukongs.protocol.actions import Expose
from wukongs.protocol.control import genesis
from wukongs.protocol.records import BeginStream, Record, Sn, Vts

RECORD = BeginStream("s")


class Told:
    """A store that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def apply(self, index: int, record: Record, sn: Sn | None) -> None:
        self.told.append((index, sn))

    def pass_over(self, record: Record) -> None:
        self.told.append(record)

    def expose(self, sn: Sn, vts: Vts) -> None:
        self.told.append(sn)


def test_what_comes_before_it_is_installed_is_told_behind_what_it_takes_over() -> None:
    store = Told()
    node = CatchingUp(store, is_installed=False)  # type: ignore[arg-type]
    for index, sn in ((1, Sn(3, 1)), (2, Sn(3, 2)), (3, None)):
        node.apply(index, RECORD, sn)
        node.expose(Expose(Sn(3, index), {}))
    assert store.told == []
    node.go_on(Sn(3, 1))
    node.show()
    assert store.told == [RECORD, (2, Sn(3, 2)), (3, None), Sn(3, 3)]
    node.show()
    node.expose(Expose(Sn(4, 0), {}))
    assert store.told[4:] == [Sn(4, 0)], "what is shown is shown once"


def test_a_node_that_skips_records_shows_nothing_before_it_has_what_they_did() -> None:
    store = Told()
    node = CatchingUp(store, is_installed=True)  # type: ignore[arg-type]
    node.jump(genesis(2, 2, 4))
    node.apply(7, RECORD, Sn(1, 0))
    node.jump(genesis(2, 2, 4))
    assert store.told == [RECORD], "it came before the state from which the node goes on now"
    store.told.clear()
    node.expose(Expose(Sn(3, 0), {}))
    node.apply(9, RECORD, Sn(3, 1))
    assert store.told == [], "it lacks what the skipped records did"
    node.go_on(Sn(2, 0))
    node.show()
    assert store.told == [(9, Sn(3, 1)), Sn(3, 0)]
