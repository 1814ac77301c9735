"""A node meets those that the log has added, lets them in, and meets those no more that were removed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.unit.protocol.test_placement import after
from wukongs.cluster.adding import Meeting
from wukongs.protocol.control import genesis
from wukongs.protocol.records import AddNode, Membership, RemoveNode, Role
from wukongs.wire.keys import make_keys, read_key_pair
from wukongs.wire.trust import Gate

ADDRESSES = {0: "tcp://a:1", 1: "tcp://b:1"}


class FakeNetwork:
    """Notes whom it is to reach, by which key, and whom it lets in."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.joined: list[tuple[Mapping[int, str], Mapping[int, str]]] = []

    def join(self, addresses: Mapping[int, str], keys: Mapping[int, str]) -> None:
        self.joined.append((dict(addresses), dict(keys)))

    def use(self, gate: Gate) -> None:
        self.gate = gate


def test_nodes_are_met_once_and_left_when_they_are_removed() -> None:
    network: Any = FakeNetwork(Gate())
    meeting = Meeting(network)
    control = genesis(2, 2, 8)
    meeting.begin(ADDRESSES, None, control)
    control = after(control, AddNode(2, "tcp://c:1", "tcp://c:2"))
    for _ in range(3):
        meeting.meet(control)
    control = after(control, RemoveNode(2))
    meeting.meet(control)
    control = after(control, Membership(0, 0, Role.OUT))
    meeting.meet(control)
    assert [sorted(addresses) for addresses, _ in network.joined] == [[0, 1], [0, 1, 2], [0, 1]]
    assert network.joined[1][0][2] == "tcp://c:1"


@pytest.mark.parametrize("is_shared", [True, False])
def test_added_nodes_are_reached_and_let_in_by_their_keys(tmp_path: Path, is_shared: bool) -> None:
    make_keys(tmp_path)
    (secret,) = tmp_path.glob("*secret*")
    pair = read_key_pair(str(secret))
    theirs = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
    network: Any = FakeNetwork(Gate(pair, frozenset({pair.public}), is_shared=is_shared))
    meeting = Meeting(network)
    meeting.begin(ADDRESSES, {} if is_shared else dict.fromkeys(ADDRESSES, pair.public), genesis(2, 2, 8))
    control = after(genesis(2, 2, 8), AddNode(2, "tcp://c:1", "tcp://c:2", "" if is_shared else theirs))
    meeting.meet(control)
    own = {} if is_shared else {0: pair.public, 1: pair.public, 2: theirs}
    allowed = {pair.public} if is_shared else {pair.public, theirs}
    assert network.joined[-1][1] == own, "of those that have other keys"
    assert network.gate.allowed == allowed
    network.gate = Gate(pair, frozenset({pair.public}), is_shared=is_shared)  # the files were read again
    meeting.meet(control)
    assert network.gate.allowed == allowed
    meeting.meet(after(control, RemoveNode(2)))
    assert sorted(network.joined[-1][0]) == [0, 1]
